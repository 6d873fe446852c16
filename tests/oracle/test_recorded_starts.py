"""Start times compared with those of other simulators; docs/validation.md explains the differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.oracle import recorded_starts
from tests.oracle.pyss_conservative import compressing
from tests.oracle.recorded_starts import KTH, LUBLIN, Recorded

EXACT = [run for run in LUBLIN + KTH if run.exact]
NEARLY = [run for run in KTH if not run.exact]


@pytest.mark.parametrize("run", EXACT, ids=lambda run: f"{run.log}-{run.run}")
def test_all_starts_equal_the_recorded_ones(data_dir: Path, run: Recorded) -> None:
    start, their_start = recorded_starts.ours(data_dir, run), recorded_starts.theirs(data_dir, run)
    different = np.flatnonzero(start != their_start)
    ids = recorded_starts.jobs_of(data_dir, run.log, run.perfect)["job_id"]
    assert not len(different), f"{len(different)} starts differ, first of job {ids[different[0]]}"


@pytest.mark.parametrize("run", NEARLY, ids=lambda run: run.run)
def test_means_agree_with_pyss_within_half_a_percent(data_dir: Path, run: Recorded) -> None:
    mine = recorded_starts.means(data_dir, run, recorded_starts.ours(data_dir, run))
    their_means = recorded_starts.means(data_dir, run, recorded_starts.theirs(data_dir, run))
    written = recorded_starts.oracle(data_dir, run.log)["runs"][run.run]["metrics"]
    names = ("avg_wait", "avg_turnaround", "avg_bsld")
    assert their_means == pytest.approx([written[name] for name in names], rel=1e-9)
    assert mine == pytest.approx(their_means, rel=0.005)


@pytest.mark.parametrize(
    ("name", "equal"), [("EASY", 28_016), ("EASY-SJBF", 28_344), ("EASY-perfect", 28_481), ("conservative", 27_775)]
)
def test_number_of_starts_equal_to_pyss(data_dir: Path, name: str, equal: int) -> None:
    run = next(run for run in KTH if run.run == name)
    assert int((recorded_starts.ours(data_dir, run) == recorded_starts.theirs(data_dir, run)).sum()) == equal


@pytest.mark.parametrize(("name", "equal"), [("EASY", 28_472), ("EASY-SJBF", 28_389), ("conservative", 28_479)])
def test_number_of_starts_equal_to_pyss_with_a_pass_per_event(data_dir: Path, name: str, equal: int) -> None:
    """pyss makes passes inside an instant: that is where it differs."""
    run = next(run for run in KTH if run.run == name)
    per_event = replace(run, settings={**run.settings, "schedule_per": "event"})
    assert int((recorded_starts.ours(data_dir, per_event) == recorded_starts.theirs(data_dir, run)).sum()) == equal


@pytest.mark.slow
def test_plain_conservative_program_reproduces_pyss(data_dir: Path) -> None:
    """All but two; see tests/oracle/pyss_conservative.py."""
    run = next(run for run in KTH if run.run == "conservative")
    jobs = recorded_starts.jobs_of(data_dir, run.log, False)
    columns = [jobs[name].tolist() for name in ("submit_s", "runtime_s", "estimate_s", "nodes")]
    start = np.array(compressing(*columns, machine=100))
    assert int((start == recorded_starts.theirs(data_dir, run)).sum()) == len(start) - 2
