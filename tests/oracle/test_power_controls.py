"""The engine and the reference give the same log with power controls and node sleep, on random workloads."""

from __future__ import annotations

import inspect
import os

import pytest

import kilowait
from tests.oracle.conversion import difference, run_engine
from tests.oracle.power_workloads import power_case
from tests.oracle.workloads import run_reference

CASES = 400
BLOCK = 50

FIRST = int(os.environ.get("KILOWAIT_REFERENCE_FIRST_SEED", "0"))
LAST = FIRST + int(os.environ.get("KILOWAIT_REFERENCE_CASES", str(CASES)))

pytestmark = pytest.mark.skipif(
    "power_controls" not in inspect.signature(kilowait.simulate).parameters,
    reason="kilowait.simulate has no power controls",
)


@pytest.mark.parametrize("first", range(FIRST, LAST, BLOCK))
def test_engine_and_reference_give_the_same_log_with_power_controls(first: int) -> None:
    for seed in range(first, min(first + BLOCK, LAST)):
        case = power_case(seed)
        differs = difference(case, run_reference(case), run_engine(case))
        assert differs is None, differs
