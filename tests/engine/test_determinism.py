"""Runs are deterministic: repeated, in concurrent threads and in another process."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.engine.stepwise_policy import INTERPRETED, as_bytes
from tests.engine.test_stepwise import whole
from tests.oracle.workloads import random_case

SEEDS = range(300, 310 if INTERPRETED else 400)


def digest(seed: int) -> str:
    """One number for every array of the log of a random workload."""
    what = hashlib.sha256()
    for name, array in sorted(as_bytes(whole(random_case(seed))).items()):
        what.update(name.encode() + array)
    return what.hexdigest()


def test_two_runs_in_one_process_are_equal() -> None:
    first = {seed: digest(seed) for seed in SEEDS}
    assert {seed: digest(seed) for seed in reversed(SEEDS)} == first
    assert len(set(first.values())) == len(first)


def test_concurrent_runs_in_two_threads_are_equal() -> None:
    alone = [digest(seed) for seed in SEEDS]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(digest, [seed for seed in SEEDS for _ in range(2)]))
    assert both[::2] == alone
    assert both[1::2] == alone


def test_run_in_another_process_is_equal(project: Path) -> None:
    seeds = list(SEEDS[:10])
    code = (
        "import json; from tests.engine.test_determinism import digest; "
        f"print(json.dumps([digest(seed) for seed in {seeds}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=project)
    assert json.loads(done.stdout) == [digest(seed) for seed in seeds]
