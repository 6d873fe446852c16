"""Fuzzing of the cache of compiled kernels: a damaged, foreign or replaced file is never loaded, and never stops a run.

    python -m benchmarks.fuzz_kernel_cache --cases 100000 --seed 0

A small function is compiled into a cache folder of its own. Every case damages its file (or puts something else in its
place), loads the function again through a new cache object, and checks that the function is taken from the cache only
if the file is byte for byte the one that was written. Cases run in child processes, so that machine code from a damaged
file would be seen as a signal.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from numba import types

from kilowait.engine.kernels.cache import KernelCache

__all__ = ["fuzz", "main"]

_CHILD_CASES = 20_000
"""Cases of one child process."""
_CHILD_LIMIT_S = 1800.0
"""Time limit of one child process, seconds."""


def _twice(number: int) -> int:
    return 2 * number


def _flip(file: Path, content: bytes, rng: np.random.Generator) -> None:
    array = np.frombuffer(content, np.uint8).copy()
    places = rng.integers(0, len(array), int(rng.integers(1, 9)))
    array[places] ^= rng.integers(1, 256, len(places)).astype(np.uint8)
    file.write_bytes(array.tobytes())


def _truncate(file: Path, content: bytes, rng: np.random.Generator) -> None:
    file.write_bytes(content[: int(rng.integers(0, len(content)))])


def _append(file: Path, content: bytes, rng: np.random.Generator) -> None:
    file.write_bytes(content + rng.bytes(int(rng.integers(1, 100))))


def _replace(file: Path, content: bytes, rng: np.random.Generator) -> None:
    file.write_bytes(rng.bytes(int(rng.integers(0, 2 * len(content)))))


def _open_to_others(file: Path, content: bytes, rng: np.random.Generator) -> None:
    file.chmod(0o600 | int(rng.choice([0o020, 0o002, 0o022, 0o066])))


def _link(file: Path, content: bytes, rng: np.random.Generator) -> None:
    target = file.with_name("elsewhere")
    if rng.integers(2):
        target.write_bytes(content)
    file.unlink()
    file.symlink_to(target)


def _folder(file: Path, content: bytes, rng: np.random.Generator) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path, content: bytes, rng: np.random.Generator) -> None:
    file.unlink()
    os.mkfifo(file)


def _remove(file: Path, content: bytes, rng: np.random.Generator) -> None:
    file.unlink()


def _leave(file: Path, content: bytes, rng: np.random.Generator) -> None:
    """The file as it was written: it must be loaded."""


DAMAGES: dict[str, tuple[Callable[[Path, bytes, np.random.Generator], None], float]] = {
    "flip": (_flip, 0.5),
    "truncate": (_truncate, 0.15),
    "append": (_append, 0.1),
    "replace": (_replace, 0.1),
    "open to others": (_open_to_others, 0.05),
    "link": (_link, 0.02),
    "folder": (_folder, 0.02),
    "pipe": (_pipe, 0.02),
    "remove": (_remove, 0.02),
    "leave": (_leave, 0.02),
}
"""Name to damage and its share of the cases."""


def _run_cases(cases: int, seed: int) -> Counter[str]:
    """Damage the file and load it, `cases` times; raises AssertionError at the first violated requirement."""
    rng = np.random.default_rng(seed)
    signature = types.int64(types.int64)
    logging.getLogger("kilowait").setLevel(logging.CRITICAL)
    counts: Counter[str] = Counter()
    names, shares = list(DAMAGES), np.array([share for _, share in DAMAGES.values()])
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        numba.config.CACHE_DIR = root
        compiled = numba.njit(_twice)
        compiled._cache = KernelCache(_twice, folder)
        compiled.compile(signature)
        (file,) = folder.rglob("*.nbc")
        content = file.read_bytes()
        for case in range(cases):
            name = names[int(rng.choice(len(names), p=shares / shares.sum()))]
            DAMAGES[name][0](file, content, rng)
            dispatcher = numba.njit(_twice)
            loaded = KernelCache(_twice, folder).load_overload(signature, dispatcher.targetctx)
            if (loaded is not None) != (name == "leave"):
                raise AssertionError(f"seed {seed}, case {case}: {name}: loaded {loaded is not None}")
            if loaded is not None and case % 50 == 0:
                dispatcher.add_overload(loaded)
                assert dispatcher(21) == 42
            counts[name] += 1
            if name == "folder":
                file.rmdir()
            elif name != "leave":
                file.unlink(missing_ok=True)
                file.with_name("elsewhere").unlink(missing_ok=True)
            if name != "leave":
                file.write_bytes(content)
                file.chmod(0o600)
    return counts


def fuzz(cases: int, seed: int) -> Counter[str]:
    """Run the cases in child processes; returns how often each damage was tried.

    Raises AssertionError when a damaged file was loaded, or a child ended with an error, by a signal or not in time.

    >>> sum(fuzz(30, seed=0).values())
    30
    """
    counts: Counter[str] = Counter()
    done = 0
    while done < cases:
        count = min(_CHILD_CASES, cases - done)
        run = f"fuzz_kernel_cache._run_cases({count}, {seed + done})"
        code = f"import json; from benchmarks import fuzz_kernel_cache; print(json.dumps({run}))"
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_CHILD_LIMIT_S, check=False
        )
        if child.returncode != 0:
            raise AssertionError(f"seed {seed + done}: exit status {child.returncode}: {child.stderr[-2000:]}")
        counts.update(json.loads(child.stdout))
        done += count
    return counts


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="damaged files to load")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start_time = time.perf_counter()
    counts = fuzz(options.cases, options.seed)
    sys.stdout.write(f"nothing found: {dict(counts)} in {time.perf_counter() - start_time:.0f} s\n")


if __name__ == "__main__":
    main()
