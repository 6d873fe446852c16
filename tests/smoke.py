"""A smoke test of an installation without development tools: help of every command, short runs of the main ones.

    python -m tests.smoke

`make test-lowest` runs it with the lowest versions of the dependencies. It needs no pytest.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import kilowait
from kilowait.cli import main
from kilowait.cli.app import command


def run(*arguments: object, status: int = 0) -> str:
    """Standard output of a command, which must end with this exit status and print no traceback."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = main([str(argument) for argument in arguments])
    shown = f"{arguments}: exit status {ended}\n{out.getvalue()}{err.getvalue()}"
    assert ended == status, shown
    assert "Traceback" not in shown, shown
    return out.getvalue() + (err.getvalue() if status else "")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every command and subcommand."""
    yield path
    for name in getattr(group, "commands", ()):
        yield from commands(group.commands[name], (*path, name))


def check_help() -> int:
    """Help of every command, and messages of wrong options; returns the number of commands."""
    paths = list(commands(command()))
    for path in paths:
        text = run(*path, "--help")
        assert "Usage: kilowait" in text and "--help" in text, text
        assert "No such option" in run(*path, "--no-such-option", status=2)
    assert "simulate" in run("simulat", status=2)
    assert run("--version").startswith("kilowait ")
    return len(paths)


def check_runs(folder: Path) -> None:
    """Simulate, compare, convert, measure and report on synthetic workloads."""
    log = "lublin:300:32:0.9:7"
    written = json.loads(run("simulate", log, "--policy", "sjf", "--by", "size", "--json", "--out", folder / "run"))
    assert written["metrics"]["jobs"] == 300
    run("simulate", log, "--power", "taurus", "--power-controls", "sleep=break-even", "--out", folder / "power")
    run("simulate", "gpu:60:gpu-mixed", "--policy", "las", "--out", folder / "gpu")
    assert "best of its column" in run("compare", log, "--policies", "fcfs,sjf,saf", "--out", folder / "compared")
    assert "there is no file" in run("simulate", folder / "missing.swf", status=2)
    run("policies")
    run("clusters", "--json")
    run("traces", "list")
    for suffix in ("csv", "parquet", "swf"):
        run("traces", "convert", log, folder / f"log.{suffix}")
        assert "300" in run("traces", "describe", folder / f"log.{suffix}")
    if find_spec("matplotlib"):
        for name in ("run", "power", "gpu", "compared"):
            run("report", folder / name, "--out", folder / f"{name}.html")
            assert (folder / f"{name}.html").stat().st_size > 10_000
    if find_spec("lightgbm"):
        run("predict", "score", log, "--cluster", 32, "--models", "last2,forest,boosting:median")
    if find_spec("pandas"):
        assert len(kilowait.lublin(50, 16).to_pandas()) == 50
    if find_spec("polars"):
        from kilowait.jobs.conversion import to_polars

        assert len(to_polars(kilowait.lublin(50, 16))) == 50


def main_of_smoke() -> None:
    """Run everything; an AssertionError or a traceback means failure."""
    start_time = time.perf_counter()
    count = check_help()
    with tempfile.TemporaryDirectory() as folder:
        check_runs(Path(folder))
    sys.stdout.write(f"smoke test passed: {count} commands, in {time.perf_counter() - start_time:.0f} s\n")


if __name__ == "__main__":
    main_of_smoke()
