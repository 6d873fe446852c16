"""Fuzzing of the command line: no argument or small input file gives a traceback, a raw control character or a hang.

    python -m benchmarks.fuzz_command_line --cases 3000 --seed 0

Most cases take a valid command and replace, add or remove options, with values made from the words of the option's own
help, numbers at the limits of their types, control characters and unusual paths (a folder, a pipe, a device, a name
that is no UTF-8). The others damage one small input file (CSV, EPW, JSON, TOML) and run a command that reads it. Cases
run in a long-lived child process without network, in a folder of its own; a case that takes long is interrupted as by
Ctrl-C, which must end it too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from benchmarks.fuzz_command_line_inputs import COMMANDS, READERS, WAITING, write_inputs
from benchmarks.fuzz_readers import NASTY
from kilowait.cli import main as kilowait_main
from kilowait.cli.app import command

__all__ = ["fuzz", "main"]

_CASE_LIMIT_S = 2.0
"""Time after which a case is interrupted as by Ctrl-C, seconds."""
_HANG_S = 30.0
"""Time after which a case that ignores the interrupt is a hang, seconds."""
_MEMORY_BYTES = 8 << 30
"""Address space of the child."""
_RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBERS = (
    "-1 0 1 2 3 -0 nan inf -inf 1e309 1e-320 -1e300 99999999999999999999 2147483648 9223372036854775807 0x10 1_0 ٣ 1,5 "
    "5% 100% 1000% -5% 1h -1h 0s 1e9d 0:0 5:2 :5 -3: 1:1e9 0.3 1. .5 +1 1/0"
).split()
_STRINGS = [
    "", " ", "-", "--", ":", "=", ",", ",,", "+", "a=b=c", ":::", "=1", "none", "all", "auto", "None",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07", "\x9b2J", "a\u202eb", "x\u2028y", "[red]x[/red]", "[/]", "%s%n{}", "{0.__class__}", "a\nb",
    "\udcff", "é" * 50, "x" * 5000, "'", '"', "\\", "$(id)", "٣", "2022-01-01", "9999-12-31", "0000-00-00", "UTC",
    "Mars/X",
]  # fmt: skip
PATHS = [
    "", ".", "/proc/nowhere", "folder", "missing", "missing/x.csv", "pipe", "pipe.csv", "null", "full", "loop",
    "dangling", "empty", "empty.csv", "random.bin", "bad\udcff.swf", "bad\udcff", "nam\x1b[31me.csv", "log.swf/x",
    "log.swf", "log.csv", "power.toml", "y" * 300, "run", "folder/new", "new.csv", "new.parquet", "new.swf.gz",
    "new\udcff", "new\n.csv",
]  # fmt: skip
"""Paths of the sandbox: `write_inputs` and `_special_files` make those that exist."""


def _options() -> dict[str, list[Any]]:
    """Command to its parameters, from the application itself."""
    found: dict[str, list[Any]] = {}

    def walk(group: Any, path: tuple[str, ...]) -> None:
        for name in getattr(group, "commands", ()):
            walk(group.commands[name], (*path, name))
        if not getattr(group, "commands", None):
            found[" ".join(path)] = [each for each in group.params if each.name != "help"]

    walk(command(), ())
    return found


def _value(parameter: Any, rng: np.random.Generator) -> str:
    """A value for a parameter: from its help, a number, a text or a path, alone or combined."""
    words: list[str] = re.findall(
        r"[\w.]+(?:[:=+,|%][\w.%]*)*", f"{parameter.metavar or ''} {getattr(parameter, 'help', '') or ''}"
    )
    kind = int(rng.integers(10))
    if kind < 3 and words:
        word = words[int(rng.integers(len(words)))].rstrip(".,")
        match int(rng.integers(5)):
            case 0:
                return word
            case 1:
                return f"{word}:{_pick(_NUMBERS, rng)}"
            case 2:
                return f"{word}={_pick(_NUMBERS + _STRINGS, rng)}"
            case 3:
                place = int(rng.integers(len(word) + 1))
                return word[:place] + _pick(_STRINGS, rng) + word[place:]
            case _:
                return f"{word},{_pick(words, rng)}+{_pick(words, rng)}"
    is_path = (
        re.search("FILE|DIR|OUT|TRACE|RUN|SAMPLES|IN$|PYTHON", parameter.metavar or "") or parameter.opts[0][0] != "-"
    )
    if kind < 6:
        return _pick(PATHS if is_path else _NUMBERS, rng)
    return _pick([_NUMBERS, _STRINGS, PATHS][kind % 3], rng)


def _pick(values: list[str], rng: np.random.Generator) -> str:
    return values[int(rng.integers(len(values)))]


_WORKLOADS = ["lublin", "lublin:{}", "lublin:{}:8", "lublin:20:{}", "lublin:20:8:{}", "lublin:20:8:0.9:{}", "gpu:20:{}",
              "gpu:{}:gpu-mixed", "gavel:{}:4", "gavel:10:{}:1", "lublin:20:8:0.9:1:{}"]  # fmt: skip


def case(number: int, seed: int, parameters: dict[str, list[Any]]) -> tuple[list[str], str, bytes | None]:
    """Arguments, and the input file with its damaged content if one is damaged."""
    rng = np.random.default_rng([seed, number])
    if rng.random() < 0.3:
        file = _pick(sorted(READERS), rng)
        lines = READERS[file]
        return lines[int(rng.integers(len(lines)))].split(), file, _damaged(Path(file).read_bytes(), rng)
    names = sorted(COMMANDS)
    weights = np.array([COMMANDS[name][0] for name in names], float)
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    arguments = COMMANDS[name][1].split()
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        parameter = parameters[name][int(rng.integers(len(parameters[name])))]
        if parameter.param_type_name == "argument":
            fixed = [place for place, word in enumerate(arguments) if not word.startswith("-")][:2]
            value = (
                _pick(_WORKLOADS, rng).format(_pick(_NUMBERS, rng)) if rng.random() < 0.5 else _value(parameter, rng)
            )
            if fixed:
                arguments[fixed[int(rng.integers(len(fixed)))]] = value
            else:
                arguments.append(value)
        elif getattr(parameter, "is_flag", False):
            arguments.append(parameter.opts[0])
        else:
            arguments.append(f"{parameter.opts[0]}={_value(parameter, rng)}")
    if arguments and rng.random() < 0.05:
        del arguments[int(rng.integers(len(arguments)))]
    return [*name.split(), *arguments], "", None


def _damaged(data: bytes, rng: np.random.Generator) -> bytes:
    for _ in range(int(rng.choice([1, 1, 2, 5]))):
        place = int(rng.integers(len(data) + 1))
        match int(rng.integers(8)):
            case 0:
                data = data[:place] + rng.bytes(1) + data[place + 1 :]
            case 1:
                data = (
                    data[:place]
                    + [b"\xff", b"\x00", b"\x1b[31m", b"\xe2\x80\xae", b"\xc3("][int(rng.integers(5))]
                    + data[place:]
                )
            case 2:
                data = data[:place]
            case 3:
                data = data[:place] + data[int(rng.integers(place, len(data) + 1)) :]
            case 4:
                lines = data.split(b"\n")
                line = int(rng.integers(len(lines)))
                lines.insert(line, lines[int(rng.integers(len(lines)))])
                data = b"\n".join(lines)
            case _:  # a number or a word
                words = list(re.finditer(rb"[\w.+-]+", data))
                if words:
                    word = words[int(rng.integers(len(words)))]
                    token = _pick([*_NUMBERS, *_STRINGS, *NASTY], rng).encode("utf-8", "surrogateescape")
                    data = data[: word.start()] + token + data[word.end() :]
    return data


# -- the child -------------------------------------------------------------------------------------


def _special_files() -> dict[str, int]:
    """Make files that are no regular files; name to type."""
    os.mkfifo("pipe")
    os.mkfifo("pipe.csv")
    os.symlink("loop", "loop")
    os.symlink("nowhere", "dangling")
    with contextlib.suppress(OSError):  # needs root
        os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod("full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
    return {
        name: stat.S_IFMT(os.lstat(name).st_mode)
        for name in ("pipe", "pipe.csv", "loop", "null", "full")
        if os.path.lexists(name)
    }


def _no_network(*_: Any, **__: Any) -> NoReturn:
    raise OSError(101, "Network is unreachable")


def _run(arguments: list[str], out: io.StringIO) -> tuple[Any, float]:
    """Exit status or traceback of a command, and its processor time in seconds."""
    began = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, _CASE_LIMIT_S, 1.0)
    status: Any = 130
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = kilowait_main(arguments)
    except KeyboardInterrupt:
        pass
    except BaseException:
        status = traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return status, time.process_time() - began


def _finding(arguments: list[str], status: Any, text: str, cpu_s: float, special: dict[str, int]) -> str:
    """What is wrong with the outcome of a case; "" if nothing is."""
    if not isinstance(status, int):
        return str(status)[-1500:]
    if status not in (0, 1, 2, 130):
        return f"exit status {status}: {text[-500:]}"
    if status in (1, 2) and not text.strip():
        return f"exit status {status} without a message"
    if "Traceback (most recent call last)" in text:
        return text[-1500:]
    if raw := _RAW.search(text):
        return f"raw control character {raw[0]!r} in {text[max(0, raw.start() - 100) : raw.end() + 100]!r}"
    if status == 130 and cpu_s < 0.1 and " ".join(arguments[:2]) not in WAITING:
        return f"blocked until it was interrupted, {cpu_s:.2f} s of processor time"
    for name, kind in special.items():
        if not os.path.lexists(name) or stat.S_IFMT(os.lstat(name).st_mode) != kind:
            return f"{name}, which is no regular file, was replaced"
    return ""


def _serve(template: str, seed: int) -> None:
    """Run the cases whose numbers come on standard input; write outcomes to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    setattr(socket.socket, "connect", _no_network)  # noqa: B010
    setattr(socket, "getaddrinfo", _no_network)  # noqa: B010
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    parameters = _options()
    with tempfile.TemporaryDirectory() as sandbox:
        fresh = True
        special: dict[str, int] = {}
        before: list[tuple[str, int, int]] = []
        for line in iter(sys.stdin.readline, ""):
            if fresh:
                os.chdir(sandbox)
                for entry in Path(sandbox).iterdir():
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
                shutil.copytree(template, sandbox, dirs_exist_ok=True)
                special, before = _special_files(), _snapshot()
            arguments, file, content = case(int(line), seed, parameters)
            if content is not None:
                Path(file).write_bytes(content)
            out = io.StringIO()
            status, cpu_s = _run(arguments, out)
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(0)
            found = _finding(arguments, status, out.getvalue(), cpu_s, special)
            fresh = file != "" or _snapshot() != before or bool(found)
            answers.write(json.dumps({"status": status if isinstance(status, int) else -1, "found": found}) + "\n")
            answers.flush()


def _snapshot() -> list[tuple[str, int, int]]:
    """Names, sizes and times of all files of the sandbox."""
    files = [Path(folder) / name for folder, folders, names in os.walk(".") for name in (*folders, *names)]
    return sorted((str(file), file.lstat().st_size, file.lstat().st_mtime_ns) for file in files)


# -- the parent ------------------------------------------------------------------------------------


class _Child:
    """The process that runs the cases, started again after a crash or a hang."""

    def __init__(self, template: Path, seed: int) -> None:
        code = f"from benchmarks import fuzz_command_line as f; f._serve({str(template)!r}, {seed})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True, env={**os.environ, "COLUMNS": "100"},
        )  # fmt: skip
        os.set_blocking(self.process.stderr.fileno(), False)  # type: ignore[union-attr]

    def run(self, number: int) -> dict[str, Any]:
        """The outcome of a case."""
        assert self.process.stdin is not None and self.process.stdout is not None and self.process.stderr is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        timed_out = False

        def stop(*_: Any) -> None:
            nonlocal timed_out
            timed_out = True
            self.stop()

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, _HANG_S)
        try:
            line = self.process.stdout.readline()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        if line:
            return dict(json.loads(line))
        reason = f"no end within {_HANG_S:g} s" if timed_out else f"exit status {self.process.wait()} of the process"
        return {"status": -2, "found": f"{reason}: {(self.process.stderr.read() or '')[-1500:]}"}

    def stop(self) -> None:
        """End the process and those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process, and release its pipes."""
        self.stop()
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()


@contextlib.contextmanager
def _inputs() -> Iterator[Path]:
    """A folder with the inputs of the commands, as the current folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write_inputs()
            yield Path(folder)
        finally:
            os.chdir(before)


def fuzz(cases: int, seed: int, *, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Run the cases; returns how often each exit status occurred, and the findings."""
    counts: Counter[str] = Counter()
    findings: list[str] = []
    root = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    parameters = _options()
    with _inputs() as template:
        child = _Child(template, seed)
        for number in range(first, first + cases):
            outcome = child.run(number)
            counts[f"exit status {outcome['status']}"] += 1
            if outcome["found"]:
                arguments, file, _ = case(number, seed, parameters)
                damaged = f" with {file} damaged" if file else ""
                findings.append(f"case {number}, seed {seed}: {arguments}{damaged}: {outcome['found']}")
            if outcome["status"] == -2:
                child.close()
                child = _Child(template, seed)
        child.close()
    return counts, findings


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    options = parser.parse_args()
    start_time = time.perf_counter()
    counts, findings = fuzz(options.cases, options.seed, first=options.first)
    for finding in findings:
        sys.stdout.write(f"{finding.encode('utf-8', 'backslashreplace').decode()}\n\n")
    summary = f"{len(findings)} findings" if findings else "nothing found"
    sys.stdout.write(f"{summary}: {dict(counts)} in {time.perf_counter() - start_time:.0f} s\n")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
