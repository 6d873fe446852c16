"""The engine and the reference give the same log on GPU clusters: shared GPUs, gangs, preemption, migration."""

from __future__ import annotations

import os

import pytest

from tests.oracle.gpu_conversion import difference, run_engine
from tests.oracle.gpu_workloads import run_reference, soak_case

CASES = 1200
BLOCK = 100

FIRST = int(os.environ.get("KILOWAIT_REFERENCE_FIRST_SEED", "0"))
LAST = FIRST + int(os.environ.get("KILOWAIT_REFERENCE_CASES", str(CASES)))


@pytest.mark.parametrize("first", range(FIRST, LAST, BLOCK))
def test_engine_and_reference_give_the_same_log_on_gpu_clusters(first: int) -> None:
    for seed in range(first, min(first + BLOCK, LAST)):
        case = soak_case(seed)
        differs = difference(case, run_reference(case), run_engine(case, steps=seed % 4 == 0))
        assert differs is None, differs
