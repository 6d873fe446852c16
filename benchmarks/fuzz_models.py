"""Fuzzing of saved predictors, agents and searches: a damaged or hostile file is refused in words, or still works.

    python -m benchmarks.fuzz_models --cases 10000 --seed 0

Every case mutates the files of a small saved object (`benchmarks.model_mutations`), loads it and uses it. Allowed are a
KilowaitError, and an object whose predictions or schedules are finite and valid. Findings are other exceptions,
signals, and cases that take too long or too much memory. Cases run in a child process, which is replaced if it ends.

The arrays of the environments in a training state are not mutated: compiled code reads them, and their values cannot be
checked. Resume only your own trainings.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from kilowait.errors import KilowaitError

__all__ = ["fuzz", "main", "run_cases"]

_CASE_LIMIT_S, _START_LIMIT_S = 60.0, 600.0
"""Wall-clock limits of a case, and of the start of a child process, seconds."""
_CASE_CPU_S = 10.0
"""Maximum CPU time of a case, seconds."""
_EXTRA_BYTES = 2**31
"""Address space of a child beyond what it needs before the first case, bytes."""


def run_cases(first: int, cases: int, seed: int) -> None:
    """Run cases and print a line of JSON for each of them: kind, mutation and outcome."""
    from benchmarks.model_mutations import mutate
    from benchmarks.model_samples import SAMPLES, sample_files

    logging.getLogger("kilowait").setLevel(logging.CRITICAL)
    kinds = list(SAMPLES)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    with tempfile.TemporaryDirectory() as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(root) / "object"
        for kind in kinds:  # compile, and see that intact files are accepted
            _write(folder, sample_files(kind))
            SAMPLES[kind].use(folder)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _EXTRA_BYTES, size + _EXTRA_BYTES))
        out.write(json.dumps("ready") + "\n")
        for case in range(first, first + cases):
            rng = np.random.default_rng([seed, case])
            kind = kinds[int(rng.integers(len(kinds)))]
            _write(folder, sample_files(kind))
            mutation = mutate(folder, rng)
            begin_s = time.process_time()
            try:
                SAMPLES[kind].use(folder)
                outcome = "accepted"
            except KilowaitError as refused:
                outcome = "refused" if str(refused) else "finding: an error without a message"
            except BaseException as error:
                lines = "".join(traceback.format_exception(error)[-3:])
                outcome = f"finding: {type(error).__name__}: {str(error)[:500]}\n{lines}"
            used_s = time.process_time() - begin_s
            if used_s > _CASE_CPU_S:
                outcome = f"finding: {used_s:.0f} s of CPU time"
            out.write(json.dumps([case, kind, mutation, outcome]) + "\n")


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a new folder; remove an earlier one."""
    if folder.exists():
        for entry in folder.iterdir():
            entry.rmdir() if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def fuzz(cases: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run the cases in child processes; returns the number of each outcome, and the findings as text.

    Args:
        cases: number of mutated objects.
        seed: the same seed gives the same cases.
    """
    counts: Counter[str] = Counter()
    findings: list[str] = []
    case = 0
    while case < cases:
        code = f"from benchmarks import fuzz_models; fuzz_models.run_cases({case}, {cases - case}, {seed})"
        # Some samples use torch: its threads slow one another down.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        ) as child:
            assert child.stdout is not None
            started = False
            problem = ""
            buffer = b""
            while not problem:
                limit_s = _CASE_LIMIT_S if started else _START_LIMIT_S
                if not select.select([child.stdout], [], [], limit_s)[0]:
                    child.kill()
                    problem = f"no end within {limit_s:.0f} s"
                    break
                data = os.read(child.stdout.fileno(), 65536)
                if not data:
                    problem = f"exit status {child.wait()}" if case < cases else "done"
                    break
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    if json.loads(line) == "ready":
                        started = True
                        continue
                    _, kind, mutation, outcome = json.loads(line)
                    counts[outcome.partition(":")[0]] += 1
                    counts[f"by {mutation}"] += 1
                    if outcome.startswith("finding"):
                        findings.append(f"seed {seed}, case {case}: {kind}, {mutation}: {outcome}")
                    case += 1
            if not started:
                raise RuntimeError(f"the child process did not start: {problem}")
            if case < cases:
                counts["finding"] += 1
                findings.append(f"seed {seed}, case {case}: {problem}")
                case += 1
    return counts, findings


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="mutated objects to load")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start_time = time.perf_counter()
    counts, findings = fuzz(options.cases, options.seed)
    for finding in findings[:50]:
        sys.stdout.write(f"{finding}\n")
    verdict = f"{len(findings)} findings" if findings else "nothing found"
    sys.stdout.write(f"{verdict}: {dict(sorted(counts.items()))} in {time.perf_counter() - start_time:.0f} s\n")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
