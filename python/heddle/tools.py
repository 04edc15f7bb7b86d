"""The commands that the package installs: each starts the tool of its name."""
import os
import sys

import heddle


def _start(name):
    path = heddle.tool(name)
    os.execv(path, [path, *sys.argv[1:]])


def heddlec():
    _start("heddlec")


def heddle_opt():
    _start("heddle-opt")


def heddle_translate():
    _start("heddle-translate")


def nvrtc_check():
    _start("nvrtc-check")


def _start_here(name):  # by the Python that has the packages beside this one
    path = heddle.tool(name)
    os.execv(sys.executable, [sys.executable, path, *sys.argv[1:]])


def heddle_data():
    _start_here("heddle-data")


def heddle_sample():
    _start_here("heddle-sample")
