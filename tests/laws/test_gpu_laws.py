"""The laws of GPU clusters hold for the GPU reference simulator, and violations are detected."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.laws import gpu_laws as laws
from tests.oracle.gpu_model import GpuCase, GpuRun, JobResult, Piece, Segment
from tests.oracle.gpu_workloads import gpu_case, run_reference

CASES = 300


@cache
def answers() -> list[tuple[GpuCase, GpuRun]]:
    cases = [gpu_case(seed, queues=seed % 5 == 4) for seed in range(CASES)]
    return [(case, run_reference(case)) for case in cases]


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_laws(law: laws.Law) -> None:
    for case, run in answers():
        try:
            law(case, run)
        except AssertionError as broken:
            raise AssertionError(f"seed {case.seed}: {broken}") from None


def test_random_cases_cover_all_features() -> None:
    seen: Counter[str] = Counter()
    for _, run in answers():
        seen.update(name for name, count in run.notes.items() if count > 0)
        seen.update({job_result.outcome for job_result in run.jobs} | {segment.outcome for segment in run.segments})
        seen["a gang on several nodes"] += any(len(segment.pieces) > 1 for segment in run.segments)
    wanted = ("preempted", "migrated", "claimed", "put back", "back at once", "finished while ending", "slowed")
    few = {name: seen[name] for name in (*wanted, "killed", "cancelled", "rejected") if seen[name] < 10}
    assert not few, f"of {CASES} cases too few have these: {few}"
    assert seen["a gang on several nodes"] > CASES / 2


# -- the laws can be broken ----------------------------------------------------------------------

PAIR = GpuCase(
    seed=0,
    groups=[
        {"name": "g", "nodes": 1, "cores": 4, "memory_gb": 8.0, "gpus": 2, "gpu_type": "T4"},
        {"name": "h", "nodes": 1, "cores": 4, "memory_gb": 8.0, "gpus": 2, "gpu_type": "P100"},
    ],
    layout=None,
    jobs={
        "job_id": [1, 2],
        "submit_s": [0.0, 0.0],
        "runtime_s": [10.0, 4.0],
        "estimate_s": [10.0, 4.0],
        "nodes": [1, 1],
        "cores": [3, 2],
        "memory_mb": [5000.0, 1000.0],
        "gpus": [2, 1],
        "gpu_milli": [1000, 500],
        "gpu_types": ["T4", "T4"],
        "priority": [0.0, 1.0],
    },
    settings={"preemption": True, "checkpoint": 4.0, "min_run_before_preempt": 2.0, "checkpoint_load": 1.0},
    rule="priority",
)
"""One node for both: job 2 starts, and job 1 after it; or, were job 2 to come at 5, job 1 would make room."""

OTHER, FIRST, SECOND = (
    Segment(1, 0.0, 4.0, "completed", 4.0, 0.0, (Piece(0, 0b01, 500),)),
    Segment(0, 4.0, 9.0, "preempted", 5.0, 1.0, (Piece(0, 0b11, 1000),)),
    Segment(0, 9.0, 16.0, "completed", 6.0, 0.0, (Piece(0, 0b11, 1000),)),
)
BOTH = [JobResult(0.0, "completed"), JobResult(0.0, "completed")]


def test_example_schedule_obeys_all_laws() -> None:
    for law in laws.LAWS:
        law(PAIR, GpuRun([OTHER, FIRST, SECOND], BOTH, {}))


@pytest.mark.parametrize(
    ("law", "segments", "job_results"),
    [
        (laws.every_job_is_accounted_for, [OTHER, FIRST, SECOND], BOTH[:1]),
        (laws.every_job_is_accounted_for, [OTHER, FIRST, SECOND], [JobResult(1.0, "completed"), BOTH[1]]),
        (laws.every_job_is_accounted_for, [OTHER, FIRST, SECOND], [JobResult(0.0, "killed"), BOTH[1]]),
        (laws.every_job_is_accounted_for, [OTHER, FIRST, SECOND], [JobResult(0.0, "cancelled"), BOTH[1]]),
        (laws.every_job_is_accounted_for, [OTHER, FIRST], BOTH),
        (
            laws.every_job_is_accounted_for,
            [OTHER, FIRST._replace(outcome="migrated"), SECOND._replace(start=10.0)],
            BOTH,
        ),
        (laws.no_job_starts_before_it_is_eligible, [OTHER._replace(start=-1.0), FIRST, SECOND], BOTH),
        (laws.no_job_starts_before_it_is_eligible, [OTHER, FIRST, SECOND._replace(start=8.5)], BOTH),
        (laws.no_job_starts_before_it_is_eligible, [FIRST, OTHER, SECOND], BOTH),
        (laws.jobs_get_what_they_request, [OTHER, FIRST._replace(pieces=(Piece(0, 0b01, 1000),)), SECOND], BOTH),
        (laws.jobs_get_what_they_request, [OTHER, FIRST._replace(pieces=(Piece(1, 0b11, 1000),)), SECOND], BOTH),
        (laws.jobs_get_what_they_request, [OTHER._replace(pieces=(Piece(0, 0b100, 500),)), FIRST, SECOND], BOTH),
        (laws.never_oversubscribed, [OTHER, FIRST._replace(start=3.5), SECOND], BOTH),
        (laws.work_is_conserved, [OTHER, FIRST, SECOND._replace(work=5.0)], BOTH),
        (laws.work_is_conserved, [OTHER, FIRST, SECOND._replace(work=7.0)], BOTH),
        (laws.work_is_conserved, [OTHER, FIRST._replace(lost=-0.5), SECOND], BOTH),
        (laws.lost_work_is_limited_by_checkpoints, [OTHER, FIRST._replace(lost=4.5), SECOND], BOTH),
        (laws.lost_work_is_limited_by_checkpoints, [OTHER._replace(lost=0.1), FIRST, SECOND], BOTH),
        (laws.work_is_limited_by_speed, [OTHER, FIRST, SECOND._replace(end=15.5)], BOTH),
        (laws.work_is_limited_by_speed, [OTHER._replace(end=4.5), FIRST, SECOND], BOTH),
        (laws.disabled_features_do_not_occur, [OTHER, FIRST._replace(end=5.5), SECOND], BOTH),
        (laws.disabled_features_do_not_occur, [OTHER, FIRST._replace(outcome="migrated"), SECOND], BOTH),
    ],
)
def test_violated_law_is_detected(law: laws.Law, segments: list[Segment], job_results: list[JobResult]) -> None:
    with pytest.raises(AssertionError):
        law(PAIR, GpuRun(segments, job_results, {}))


@pytest.mark.parametrize(
    ("cores", "memory_mb", "gpus", "words"),
    [
        ([3, 2], [1.0, 1.0], 0b10, "5000 of cores, 2000000 bytes"),
        ([1, 1], [5e3, 4e3], 0b10, "2000 of cores, 9000000000 bytes"),
        ([1, 1], [1.0, 1.0], 0b01, r"\[1500, 0\] of GPUs"),
    ],
)
def test_oversubscription_of_each_resource_is_detected(
    cores: list[int], memory_mb: list[float], gpus: int, words: str
) -> None:
    """Two jobs at once that are too much for the node's 4 cores, 8 GB or first GPU, and for nothing else."""
    jobs = {**PAIR.jobs, "cores": cores, "memory_mb": memory_mb, "gpus": [1, 1]}
    case = GpuCase(0, PAIR.groups, None, jobs)
    one = Segment(0, 0.0, 10.0, "completed", 10.0, 0.0, (Piece(0, 0b01, 1000),))
    with pytest.raises(AssertionError, match=words):
        laws.never_oversubscribed(case, GpuRun([one, OTHER._replace(pieces=(Piece(0, gpus, 500),))], BOTH, {}))
