"""Heddle from Python: compile a model, run the program, read its report and its log.

    import heddle
    tiny = heddle.compile("tiny.hd", "tiny", set={"layers": 2})
    print(tiny.report()["peak_bytes"])
    log = tiny.run(data="train.txt", steps=100)
    print(log.column("loss")[-1])
    log.plot("loss.png")

The tools do the work: this module starts `heddlec` and the programs that it builds, and reads the JSON that they write.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

__all__ = ["Error", "Log", "Program", "compile", "read_log", "report", "tool"]


class Error(RuntimeError):
    """A tool or a program ended with another status than 0. The text is what it said; `status` is the status."""

    def __init__(self, command, status, said):
        super().__init__(said.strip() or f"{command[0]} ended with status {status}")
        self.command, self.status = command, status


def tool(name):
    """The path of a tool: the package's own, or the one on PATH."""
    own = pathlib.Path(__file__).parent / "prefix" / "bin" / name
    found = str(own) if own.exists() else shutil.which(name)
    if not found:
        raise FileNotFoundError(f"{name} is neither part of this package nor on PATH")
    return found


def _options(named):
    """[--key=value]: `_` is `-`, True is a flag, None and False leave the option out, a list gives it several times, a
    dict gives NAME=VALUE each."""
    for key, value in named.items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, dict):
            value = [f"{k}={v}" for k, v in value.items()]
        for v in value if isinstance(value, (list, tuple)) else [value]:
            if v is True:
                yield flag
            elif v is not None and v is not False:
                yield f"{flag}={os.fspath(v) if isinstance(v, os.PathLike) else v}"


def _run(command, echo=False):
    done = subprocess.run(command, stdout=None if echo else subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace")
    if done.returncode:
        raise Error(command, done.returncode, done.stderr)
    return done.stdout


def _compile_command(model, settings, named):
    command = [tool("heddlec"), os.fspath(model), *_options(named)]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    return command


def compile(model, output=None, *, set=None, **options):
    """Compiles the .hd file `model` into the program `output` (default: named after the model, in the present folder).
    `set` has arguments and settings, {"layers": 2, "train.batch": 8}; `options` are those of heddlec with `_` for `-`:
    target="cuda", device_memory="80GiB". Raises Error with the compiler's messages."""
    output = pathlib.Path(output or pathlib.Path(model).stem)
    _run(_compile_command(model, set, {**options, "output": output}))
    return Program(output)


def report(model, *, set=None, **options):
    """The report of the plan of `model` as a dict, without building a program: memory, communication, predicted time.
    The same arguments as `compile`."""
    return json.loads(_run(_compile_command(model, set, {**options, "emit": "report"})))


class Program:
    """A program that heddlec has built."""

    def __init__(self, path):
        self.path = pathlib.Path(path).absolute()
        if not self.path.is_file():
            raise FileNotFoundError(f"{path} is no program")

    def report(self):
        """What one rank holds, as a dict."""
        return json.loads(_run([str(self.path), "--report=json"]))

    def run(self, *, log=None, echo=False, **options):
        """Runs the program until it ends and returns its Log. `options` are those of the program with `_` for `-`:
        data="a.bin", val=["b.bin", "c.bin"], data={"image": "x.npy"}, steps=100, save="checkpoint", ranks=4. `log`
        keeps the log in a file of that name; `echo` shows what the program prints. Raises Error with the program's
        messages."""
        with tempfile.TemporaryDirectory() as folder:
            path = log or os.path.join(folder, "log.jsonl")
            _run([str(self.path), *_options({**options, "log": path})], echo)
            return read_log(path) if os.path.exists(path) else Log([])


class Log:
    """The lines of a log. `headers`: what ran, one a run that wrote to it. `steps`: a dict a step. `validations`: a
    dict a validation."""

    def __init__(self, lines):
        self.headers = [x for x in lines if "step" not in x]
        self.validations = [x for x in lines if "step" in x and "val_loss" in x]
        self.steps = [x for x in lines if "step" in x and "val_loss" not in x]

    def column(self, name):
        """The values of `name` in order, an array where numpy is installed, else a list; of validations for names that
        begin with val_. A value that was not finite is nan."""
        rows = self.validations if name.startswith("val_") else self.steps
        if rows and not any(name in x for x in rows):
            raise KeyError(f"the log has no {name}; it has {', '.join(rows[0])}")
        values = [float("nan") if x.get(name) is None else x[name] for x in rows]
        try:
            import numpy
        except ImportError:
            return values
        return numpy.array(values)

    def plot(self, file=None, names=("loss", "val_loss")):
        """Draws `names` over the steps with matplotlib, into `file` or a window. Returns the figure."""
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ImportError("plot needs matplotlib: pip install matplotlib") from None
        figure, axes = pyplot.subplots()
        for name in names:
            rows = self.validations if name.startswith("val_") else self.steps
            if rows:
                axes.plot([x["step"] for x in rows], self.column(name), label=name,
                          marker="o" if name.startswith("val_") else None)
        axes.set_xlabel("step")
        axes.legend()
        if file:
            figure.savefig(file)
        else:
            pyplot.show()
        return figure


def read_log(path):
    """The Log of a file that a program wrote with --log. ValueError names a line that is no JSON."""
    lines = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            try:
                lines.append(json.loads(line))
            except ValueError:
                raise ValueError(f"{path}:{number}: no JSON object; is it a file of --log?") from None
            if not isinstance(lines[-1], dict):
                raise ValueError(f"{path}:{number}: no JSON object; is it a file of --log?")
    return Log(lines)
