"""The reference simulator of GPU clusters on cases whose answer is worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.oracle.gpu_model import BUILT_IN_INTERFERENCE, GpuCase, GpuRun, PiecePlace, jobs_of
from tests.oracle.gpu_nodes import Machine, drawn
from tests.oracle.gpu_reference import simulate


def group(nodes: int, gpus: int, gpu_type: str = "T4", cores: int = 8) -> dict[str, Any]:
    return {
        "name": f"{gpu_type}{gpus}",
        "nodes": nodes,
        "cores": cores,
        "memory_gb": 0.0,
        "gpus": gpus,
        "gpu_type": gpu_type,
    }


def case_of(groups: list[dict[str, Any]], rule: str = "fcfs", **given: Any) -> GpuCase:
    """Columns by their names, `submit`, `run` for short; whatever else is a setting. Estimates are exact."""
    columns = {"gpus", "gpu_milli", "nodes", "gpus_may_span_nodes", "priority", "cores", "gpu_types", "gpu_utilization"}
    count = len(given["run"])
    jobs = {
        "job_id": list(range(count)),
        "submit_s": given["submit"],
        "runtime_s": given["run"],
        "estimate_s": given.get("estimate", given["run"]),
        "nodes": [1] * count,
        **{name: value for name, value in given.items() if name in columns},
    }
    rest = {n: v for n, v in given.items() if n not in columns | {"submit", "run", "estimate"}}
    return GpuCase(0, groups, None, jobs, rest, rule)


def held(run: GpuRun) -> list[tuple[int, float, float, str, float]]:
    return [(s.job, s.start, s.end, s.outcome, s.lost) for s in run.segments]


URGENT: dict[str, Any] = {
    "submit": [0.0, 5.0],
    "run": [10.0, 4.0],
    "gpus": [1, 1],
    "priority": [0.0, 1.0],
    "rule": "priority",
    "preemption": True,
}
"""One GPU; at 5, a job comes that is more important than the one that runs."""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # It makes room at once, and goes on where it was.
        ({}, [(0, 0, 5, "preempted", 0), (1, 5, 9, "completed", 0), (0, 9, 14, "completed", 0)]),
        # A checkpoint every 2 s of work: of 5 s the last one is lost; 3 s to load it.
        (
            {"checkpoint": 2.0, "checkpoint_load": 3.0},
            [(0, 0, 5, "preempted", 1), (1, 5, 9, "completed", 0), (0, 9, 18, "completed", 0)],
        ),
        ({"checkpoint": math.inf}, [(0, 0, 5, "preempted", 5), (1, 5, 9, "completed", 0), (0, 9, 19, "completed", 0)]),
        # It works on for 2 s and saves for 1 s.
        (
            {"grace": 2.0, "checkpoint_write": 1.0},
            [(0, 0, 8, "preempted", 0), (1, 8, 12, "completed", 0), (0, 12, 15, "completed", 0)],
        ),
        # It finishes in its grace.
        ({"grace": 5.0}, [(0, 0, 10, "completed", 0), (1, 10, 14, "completed", 0)]),
        # Too young to be preempted.
        ({"min_run_before_preempt": 5.5}, [(0, 0, 10, "completed", 0), (1, 10, 14, "completed", 0)]),
        ({"preemption": False}, [(0, 0, 10, "completed", 0), (1, 10, 14, "completed", 0)]),
        # SchedulingPasses at 0, 4, 8, ...: it waits for one.
        (
            {"round_interval": 4.0, "rounds": True},
            [(0, 0, 8, "preempted", 0), (1, 8, 12, "completed", 0), (0, 12, 14, "completed", 0)],
        ),
    ],
)
def test_preemption(settings: dict[str, Any], expected: list[tuple[int, float, float, str, float]]) -> None:
    assert held(simulate(case_of([group(1, 1)], **{**URGENT, **settings}))) == expected


def test_claimed_gpus_are_not_given_to_other_jobs() -> None:
    """At 5 job 1 makes room on both GPUs, of which one is free already; job 2 would fit there, but it is claimed."""
    case = case_of(
        [group(1, 2)],
        rule="priority",
        submit=[0.0, 5.0, 5.0],
        run=[10.0, 4.0, 1.0],
        gpus=[1, 2, 1],
        priority=[0.0, 2.0, 1.0],
        preemption=True,
        grace=3.0,
        head_of_line_blocking=False,
    )
    assert [s[:3] for s in held(simulate(case))] == [(0, 0, 8), (1, 8, 12), (2, 12, 13), (0, 12, 14)]


def test_jobs_on_one_gpu_slow_each_other_down() -> None:
    """Alone until 4; with the other (load 600 + 600: 0.93) until it has done 9.3 at 14; alone again for 2.7."""
    case = case_of(
        [group(1, 1)],
        submit=[0.0, 4.0],
        run=[16.0, 9.3],
        gpus=[1, 1],
        gpu_milli=[500, 500],
        gpu_utilization=[0.6, 0.6],
        interference=BUILT_IN_INTERFERENCE,
    )
    run = simulate(case)
    assert [s.end for s in run.segments] == pytest.approx([16.7, 14.0])


def test_spread_gang_is_slower_and_migrates_to_fewer_nodes() -> None:
    """At 0 one GPU is left on each node; at 10 those beside it have gone, and both its GPUs go to node 0."""
    case = case_of(
        [group(2, 2)],
        submit=[0.0, 0.0, 1.0],
        run=[10.0, 12.0, 20.0],
        gpus=[1, 1, 2],
        gpus_may_span_nodes=[0, 0, 1],
        factor=[[1.0, 1.0, 0.5]],
        placement="worst",
        migration=True,
        checkpoint_load=2.0,
    )
    run = simulate(case)
    assert held(run)[2:] == [(2, 1, 10, "migrated", 0), (2, 10, 27.5, "completed", 0)]
    assert [s.pieces for s in run.segments[2:]] == [((0, 0b10, 1000), (1, 0b10, 1000)), ((0, 0b11, 1000),)]


def test_fastest_gpu_type_first() -> None:
    case = case_of(
        [group(1, 1), group(1, 1, "A10")],
        submit=[0.0, 0.0],
        run=[8.0, 8.0],
        gpus=[1, 1],
        gpu_type_order="fastest",
        speed=[[1.0, 1.0], [4.0, 4.0]],
    )
    run = simulate(case)
    assert [(s.pieces[0].node, s.end) for s in run.segments] == [(1, 2.0), (0, 8.0)]


def test_a_job_without_gpus_runs_at_speed_1_on_any_type() -> None:
    speeds: dict[str, Any] = {"gpu_type_order": "fastest", "speed": [[0.0], [4.0]]}
    case = case_of([group(1, 1), group(1, 1, "A10")], submit=[0.0], run=[8.0], gpus=[0], **speeds)
    assert [(s.pieces[0].node, s.end) for s in simulate(case).segments] == [(0, 8.0)]


def test_queue_uses_only_its_groups() -> None:
    """Node 1 alone is the queue's; who is of another queue may go anywhere; who asks for both nodes is rejected."""
    groups = [{**group(1, 1), "name": "a"}, {**group(1, 1), "name": "b"}]
    case = case_of(groups, submit=[0.0] * 3, run=[8.0] * 3, gpus=[1, 1, 2], nodes=[1, 1, 2])
    case.jobs["queue"] = ["q", "other", "q"]
    run = simulate(replace(case, queues={"q": ["b"]}))
    assert [(s.job, s.pieces[0].node) for s in run.segments] == [(0, 1), (1, 0)]
    assert run.jobs[2].outcome == "rejected"


def test_least_attained_service_alternates_jobs() -> None:
    """A tick a second: whoever has had less goes on, the other waits; each does its 2 s."""
    case = case_of(
        [group(1, 1)], rule="las", submit=[0.0, 0.0], run=[2.0, 2.0], gpus=[1, 1], preemption=True, round_interval=1.0
    )
    assert [s[:3] for s in held(simulate(case))] == [(0, 0, 1), (1, 1, 3), (0, 3, 4)]


# -- placements ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("first", [(0, 0), (0, 0), (0, 1)]),
        ("best", [(0, 0), (0, 0), (0, 1)]),
        ("worst", [(1, 0), (1, 1), (1, 2)]),
        ("dot-product", [(0, 0), (0, 0), (0, 1)]),
        # All empty: 33 - 2 against 33 - 4; then a GPU is filled up to 800 (98, left * 100 // 1000 // 10 is 2).
        ("gpu-packing", [(0, 0), (0, 0), (0, 1)]),
        # A node with parts of GPUs only is best for another one.
        ("gpu-clustering", [(0, 0), (0, 0), (0, 1)]),
    ],
)
def test_gpu_shares_are_placed_by_every_placement(placement: str, expected: list[tuple[int, int]]) -> None:
    """A node of 2 GPUs and one of 4; parts of 400 each."""
    case = case_of(
        [group(1, 2), group(1, 4)],
        submit=[0.0] * 3,
        run=[1.0] * 3,
        gpus=[1] * 3,
        gpu_milli=[400] * 3,
        placement=placement,
    )
    places = [s.pieces[0] for s in simulate(case).segments]
    assert [(p.node, p.gpus.bit_length() - 1) for p in places] == expected


def test_fgd_minimizes_fragmentation() -> None:
    """Half a GPU is no fragment while the table's jobs are halves, and one where they are whole ones."""
    for gpu_milli, best in (([500, 500, 500], (0,)), ([500, 1000, 1000], (0,))):
        case = case_of([group(1, 2)], submit=[0.0] * 3, run=[1.0] * 3, gpus=[1] * 3, gpu_milli=gpu_milli)
        jobs = jobs_of(case)
        machine = Machine(case, "fgd", 0)
        machine.expect(jobs)
        machine.put(jobs[0], [PiecePlace(0, best)], 1)
        node = machine.nodes[0]
        # By hand: free 500 and 1000. Halves fit both: no fragments. Whole ones (2 of 3) cannot use the 500.
        assert machine.fragments(node) == pytest.approx(0.0 if gpu_milli[1] == 500 else 500 * 2 / 3)
        assert machine.find(jobs[0]) == [PiecePlace(0, (0,))]


def test_capacity_placement_preserves_capacity_for_typical_jobs() -> None:
    """By hand, free 500 and 1000, 7 cores: of halves with 2 cores 0.8 * 3 + 0.2 * 3, of whole ones 0.8 + 0.2."""
    case = case_of(
        [group(1, 2)],
        submit=[0.0] * 4,
        run=[1.0] * 4,
        gpus=[1] * 4,
        gpu_milli=[500, 500, 500, 1000],
        cores=[2, 2, 2, 1],
    )
    jobs = jobs_of(case)
    machine = Machine(case, "capacity", 0)
    machine.expect(jobs)
    machine.nodes[0].cpu = 9000
    machine.put(jobs[0], [PiecePlace(0, (0,))], 1)
    assert machine.room(machine.nodes[0]) == pytest.approx(0.75 * 3.0 + 0.25 * 1.0)
    machine.nodes[0].cpu = 5000  # two halves, by their cores
    assert machine.room(machine.nodes[0]) == pytest.approx(0.75 * 2.8 + 0.25 * 1.0)
    assert machine.find(jobs[0]) == [PiecePlace(0, (0,))], "the whole GPU is left whole"
    machine.nodes[0].cpu = 1000
    assert machine.room(machine.nodes[0]) == pytest.approx(0.25 * 1.0)


def test_placement_hash_values_are_small_and_differ() -> None:
    draws = {drawn(seed, job, piece, node) for seed in (0, 1) for job in (0, 1) for piece in (0, 1) for node in (0, 1)}
    assert len(draws) == 16
    assert all(0 <= draw < 2**31 - 1 for draw in draws)


def test_endless_preemption_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take the GPU from each other every second, and neither ever has its 3 s in one piece."""
    monkeypatch.setattr("tests.oracle.gpu_scheduling_pass.MOST_STARTS", 20)
    case = case_of(
        [group(1, 1)],
        rule="las",
        submit=[0.0, 0.0],
        run=[3.0, 3.0],
        gpus=[1, 1],
        preemption=True,
        round_interval=1.0,
        checkpoint=math.inf,
    )
    with pytest.raises(RuntimeError, match="no progress"):
        simulate(case)
