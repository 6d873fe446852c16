"""Fuzzing of folders: whatever a run, comparison, agent or generator folder holds, it is read or refused in words.

    python -m benchmarks.fuzz_folders --cases 10000 --seed 0

Every case damages one file of a small folder (bytes, JSON and TOML fields, Parquet columns, arrays) or puts something
else in its place (a link, a pipe, a folder, a name elsewhere in the manifest), and hands the folder to everything that
reads it. A case is a finding if a reader raises anything but a KilowaitError, takes too long, needs too much memory,
ends by a signal, or accepts a changed file whose checksum is in the manifest. The cases run in child processes of
limited memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.folder_damage import damaged
from benchmarks.folder_samples import GENERATOR_SAMPLES, SAMPLES, write_samples
from kilowait.errors import KilowaitError

__all__ = ["fuzz", "main"]

CASE_LIMIT_S = 20.0
"""Time limit of one case, seconds."""
MEMORY_BYTES = 6 * 2**30
"""Address space of a child process."""
REPORT_SHARE = 0.03
"""Share of the folders that are read without an error of which a page is written."""


class _TookTooLongError(Exception):
    """A case has exceeded its time limit."""


def _read(name: str, folder: Path, rng: np.random.Generator) -> None:
    """Hand a folder to everything that reads it."""
    if name in GENERATOR_SAMPLES:
        _read_generator(folder, rng)
        return
    from kilowait.evaluation.storage import open_folder
    from kilowait.report.folders import load_runs

    content = open_folder(folder)
    loaded = load_runs([folder], lambda _: None)
    for comparison in (each.comparison for each in loaded.comparisons):
        assert comparison.table
        comparison.significance("mean_bsld", seed=0)
    del content
    if rng.random() < REPORT_SHARE:
        from kilowait.report import write_report

        write_report([folder], folder.with_name("page.html"), figures=folder.with_name("figures"))
    if rng.random() < REPORT_SHARE:
        _command("report", folder, "--out", folder.with_name("page.html"))


def _read_generator(folder: Path, rng: np.random.Generator) -> None:
    from kilowait.synth import WhatIf, load_generator

    generator = load_generator(folder)
    generator.sample(20, seed=int(rng.integers(10)))
    if rng.random() < 0.2:
        generator.sample(days=1.0, what_if=WhatIf(load=0.5), seed=1)
    if rng.random() < 0.05:
        sample = folder.with_name("sample.csv")
        _command("synth", "sample", folder, "--jobs", 20, "--out", sample)


def _command(*words: object) -> None:
    """Run a command in this process; a bug raises."""
    from kilowait.cli import main as run_command

    status = run_command([str(word) for word in words])
    if status not in (0, 2):
        raise AssertionError(f"kilowait {words[0]} exits with {status}")


def _run_case(name: str, content: dict[str, bytes], seed: int, case: int, root: Path) -> str:
    """Damage a sample and read it: refused or read."""
    rng = np.random.default_rng([seed, case])
    folder = root / "folder"
    shutil.rmtree(root)
    root.mkdir()
    damage = damaged(content, folder, rng)
    try:
        _read(name, folder, rng)
    except KilowaitError as error:
        assert str(error), f"{damage}: an error without a message"
        assert len(str(error)) < 2000, f"{damage}: an error of {len(str(error)):,} characters"
        return "refused"
    assert not damage.must_be_refused, f"{damage} is not noticed"
    return "read"


def _child(names: list[str], seed: int, first: int, last: int) -> None:
    """Run cases; one line of JSON on standard output before and after each."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def interrupt(_: int, __: FrameType | None) -> None:
        raise _TookTooLongError

    signal.signal(signal.SIGALRM, interrupt)
    with tempfile.TemporaryDirectory() as folder:
        samples = write_samples(Path(folder) / "samples", names)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        (Path(folder) / "case").mkdir()
        for case in range(first, last):
            name = names[case % len(names)]
            out.write(json.dumps({"begin": case}) + "\n")
            out.flush()
            signal.setitimer(signal.ITIMER_REAL, CASE_LIMIT_S)
            try:
                result = {"outcome": _run_case(name, samples[name], seed, case, Path(folder) / "case")}
            except Exception as error:
                trace = traceback.extract_tb(error.__traceback__)
                ours = [frame for frame in trace if "kilowait" in frame.filename or "benchmarks" in frame.filename]
                where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(ours[-4:]))
                text = f"{type(error).__name__}: {str(error)[:300]} at {where}"
                result = {"outcome": "found", "name": name, "text": text}
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            out.write(json.dumps({"end": case, **result}) + "\n")
            out.flush()


def fuzz(cases: int, seed: int, names: list[str] | None = None, *, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Run cases `first` to `first` + `cases`; returns the number of cases by outcome, and the findings in words.

    >>> counts, findings = fuzz(20, 0, ["bootstrap"])
    >>> sum(counts.values()), findings
    (20, [])
    """
    chosen = list(SAMPLES) if names is None else names
    counts: Counter[str] = Counter()
    findings: list[str] = []
    at, last = first, first + cases
    while at < last:
        code = f"from benchmarks import fuzz_folders; fuzz_folders._child({chosen!r}, {seed}, {at}, {last})"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert child.stdout is not None
        begun: int | None = None
        for line in _lines(child):
            if "begin" in line:
                begun = line["begin"]
                continue
            counts[line["outcome"]] += 1
            at = line["end"] + 1
            if line["outcome"] == "found":
                findings.append(f"seed {seed}, case {line['end']}: {line['name']}: {line['text']}")
        child.stdout.close()
        status = child.wait()
        if begun is None:
            raise RuntimeError(f"the sample folders cannot be written: exit status {status}")
        if at < last:  # the child has ended, or did not answer
            counts["found"] += 1
            findings.append(
                f"seed {seed}, case {begun}: {chosen[begun % len(chosen)]}: the process ended with {status}"
            )
            at = begun + 1
    return counts, findings


def _lines(child: subprocess.Popen[bytes]) -> Any:
    """Lines of a child, until it ends or does not answer in time."""
    assert child.stdout is not None
    pending, limit_s = b"", 300.0  # the samples are written first
    while True:
        ready, _, _ = select.select([child.stdout], [], [], limit_s)
        part = os.read(child.stdout.fileno(), 65536) if ready else b""
        if not part:
            if not ready:
                child.kill()
            return
        limit_s = 3 * CASE_LIMIT_S
        *lines, pending = (pending + part).split(b"\n")
        yield from map(json.loads, lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="damaged folders to read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--samples", default=",".join(SAMPLES), help="comma-separated kinds of folders")
    options = parser.parse_args()
    start_time = time.perf_counter()
    counts, findings = fuzz(options.cases, options.seed, options.samples.split(","), first=options.first)
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    result = f"{len(findings)} findings" if findings else "nothing found"
    sys.stdout.write(f"{result}: {dict(counts)} in {time.perf_counter() - start_time:.0f} s\n")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
