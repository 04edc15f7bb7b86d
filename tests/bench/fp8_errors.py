#!/usr/bin/env python3
"""Errors of FP8 products against f64, for every recipe of train.precision.fp8: fp8_errors.py [TOKENS [WIDTH]].

A layer y = x w' with TOKENS rows (default 4096) and WIDTH inputs and outputs (512). Elements of x, w and dy are
normally distributed; rows of x and dy are multiplied by e^(spread z), with z normally distributed, and one column in 64
of x by 20, as a transformer's activations have such. Gradients are in e4m3. The table has the error's norm over that of
the exact result, in percent. Only rounding of the factors counts: sums are in f64. Needs numpy.
"""
import sys

import numpy as np

LARGEST, DIGITS, LEAST = 448.0, 3, -6  # of e4m3: the largest number, bits behind the first, the exponent of 2^-6
BLOCK = 128


def e4m3(x):
    """The nearest number of e4m3, ties to even; what is too large becomes the largest."""
    exponent = np.maximum(np.frexp(x)[1] - 1, LEAST)
    unit = np.ldexp(1.0, exponent - DIGITS)
    return np.clip(np.rint(x / unit) * unit, -LARGEST, LARGEST)


def quantized(x, scale):
    return e4m3(x / scale) * scale


def most(x, axis):
    return np.maximum(np.abs(x).max(axis=axis, keepdims=True), 2.0**-100) / LARGEST


def rows(x):
    return quantized(x, most(x, -1))


def tensor(x):
    return quantized(x, most(x, None))


def blocks(x):
    parts = x.reshape(x.shape[0], -1, BLOCK)
    return quantized(parts, most(parts, -1)).reshape(x.shape)


def squares(x):
    parts = x.reshape(x.shape[0] // BLOCK, BLOCK, -1, BLOCK)
    return quantized(parts, most(parts, (1, 3))).reshape(x.shape)


def gradient_by_rows(dy, x):
    """As fp8.scale = row makes the gradient of a weight: dy, which is e4m3 by rows, takes the scales of both factors
    and is rounded again with one scale."""
    of_dy, of_x = most(dy, -1), most(x, -1)
    scales = of_dy * of_x
    again = e4m3(e4m3(dy / of_dy) * (scales / scales.max()))
    return again.T @ e4m3(x / of_x) * scales.max()


RECIPES = {
    "row": (rows, rows, gradient_by_rows),
    "tensor": (tensor, tensor, lambda dy, x: tensor(dy).T @ tensor(x)),
    "block": (blocks, squares, lambda dy, x: blocks(dy.T.copy()) @ blocks(x.T.copy()).T),
}


def away(got, exact):
    return 100 * np.linalg.norm(got - exact) / np.linalg.norm(exact)


def main():
    tokens, width = (int(a) for a in (sys.argv[1:] + ["4096", "512"][len(sys.argv) - 1:]))
    draw = np.random.default_rng(0)
    w = draw.standard_normal((width, width))
    print("| spread of rows | scale | y | dx | dw |\n| --- | --- | --- | --- | --- |")
    for spread in (0, 1, 3):
        x, dy = (draw.standard_normal((tokens, width)) * np.exp(spread * draw.standard_normal((tokens, 1)))
                 for _ in range(2))
        x[:, ::64] *= 20
        for name, (activation, weight, gradient) in RECIPES.items():
            backward = weight(w.T.copy())
            errors = (away(activation(x) @ weight(w).T, x @ w.T), away(activation(dy) @ backward.T, dy @ w),
                      away(gradient(dy, x), dy.T @ x))
            print(f"| e^{spread} | {name} |", " | ".join(f"{e:.2f}" for e in errors), "|")


main()
