"""Initial state from a job table: needs, groups, dependencies and errors."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.cluster import Cluster, NodeGroup, Outage, Reservation
from kilowait.engine.settings import Settings
from kilowait.errors import TableError
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from kilowait.policies import simulate
from tests.engine.stepwise_policy import initial_state, starts, table

TWO = Cluster((NodeGroup("a", 4), NodeGroup("b", 8)), queues={"q": ("b", "a"), "s": ("a",)})


def test_resource_needs_in_a_shared_group() -> None:
    cluster = Cluster((NodeGroup("a", 4, cores=4, memory_gb=2, gpus=1, shared=True),))
    bare = initial_state(table((0, 3, 9)), cluster)
    assert bare.need.tolist() == [[12, 0, 0]]  # whole nodes' cores where the table has none
    full = initial_state(table((0, 3, 9), cores=[0], memory_mb=[250.25], gpus=[2]), cluster)
    assert full.need.tolist() == [[1, 251, 2]]  # at least a core; memory rounded up


def test_core_needs_differ_by_group_without_core_column() -> None:
    groups = (NodeGroup("a", 4, cores=4, shared=True), NodeGroup("b", 4, cores=16, shared=True))
    state = initial_state(table((0, 2, 9)), Cluster(groups))
    assert state.need[0, state.pools["need"]].tolist() == [8, 32]


def test_allowed_groups_belong_to_the_queue_and_are_large_enough() -> None:
    jobs = table(
        (0, 2, 9),
        (0, 5, 9),
        (0, 4, 9),
        (0, 8, 9),
        (0, 3, 9),
        queue=[0, 0, 1, -1, 2],
        labels={"queue": ("q", "s", "other")},
    )
    state = initial_state(jobs, TWO, Settings(on_oversized="drop"))
    assert state.job_state["allowed"].tolist() == [0b11, 0b10, 0b01, 0b10, 0b11]
    assert state.preference[state.job_state["preference_row"]].tolist() == [[1, 0], [1, 0], [0, -1], [0, 1], [0, 1]]


def test_queues_without_labels_are_numbers() -> None:
    cluster = Cluster((NodeGroup("a", 4), NodeGroup("b", 8)), queues={"3": ("b",), "words": ("a",)})
    log = simulate(table((0, 1, 9), (0, 1, 9), queue=[3, 4]), cluster, backfill="none")
    assert log.jobs()["group"].tolist() == [1, 0]


@pytest.mark.parametrize("name", ["--5", "²"])
def test_queue_names_may_contain_special_characters(name: str) -> None:
    cluster = Cluster((NodeGroup("a", 4),), queues={name: ("a",)})
    assert starts(simulate(table((0, 1, 9), queue=[3]), cluster, backfill="none")) == [0.0]


def test_gpu_job_cannot_use_a_shared_group_without_gpus() -> None:
    cluster = Cluster((NodeGroup("a", 4, cores=4, shared=True), NodeGroup("b", 4, gpus=1, shared=True)))
    state = initial_state(table((0, 1, 9), (0, 1, 9), gpus=[0, 1]), cluster)
    assert state.job_state["allowed"].tolist() == [0b11, 0b10]


def test_oversized_job_error_names_the_job() -> None:
    with pytest.raises(TableError) as caught:
        simulate(table((0, 1, 9), (0, 9, 9), (0, 10, 9)), TWO, backfill="none")
    assert str(caught.value) == (
        "2 job(s) are larger than any group they may use, first job 2 with 9 nodes; the machine has 4 nodes in a, "
        "8 nodes in b: use a larger cluster, or on_oversized='drop' to leave such jobs out"
    )


def test_oversized_job_is_dropped_on_request() -> None:
    log = simulate(table((0, 1, 9), (3, 9, 9), (5, 1, 9)), TWO, on_oversized="drop", backfill="none")
    assert starts(log) == [0.0, None, 5.0]
    assert log.job_outcome.tolist() == [Outcome.COMPLETED, Outcome.REJECTED, Outcome.COMPLETED]
    assert log.eligible_s.tolist() == [0.0, 3.0, 5.0]


def test_extremely_large_job_is_oversized() -> None:
    cluster = Cluster((NodeGroup("a", 4, cores=4, shared=True),))
    with pytest.raises(TableError, match="larger than any group"):
        simulate(table((0, 2**62, 9)), cluster, backfill="none")


@pytest.mark.parametrize(("after", "named"), [([1], "1"), ([2, 1], "1|2"), ([-1, 4, 2, 3], "2|3|4")])
def test_dependency_cycle_is_an_error(after: list[int], named: str) -> None:
    jobs = table(*[(0, 1, 9)] * len(after), after_id=after)
    with pytest.raises(TableError, match=rf"job ({named}) depends on itself through after_id; break the"):
        simulate(jobs, TWO, backfill="none")
    assert starts(simulate(jobs, TWO, dependencies=False, backfill="none")) == [0.0] * len(after)


def test_long_dependency_chain_is_not_a_cycle() -> None:
    jobs = table(*[(0, 1, 2)] * 50, after_id=[-1, *range(1, 50)], think_s=[1.0] * 50)
    assert starts(simulate(jobs, TWO, backfill="none")) == [3.0 * i for i in range(50)]


def test_dependency_on_a_missing_job_is_ignored() -> None:
    assert starts(simulate(table((0, 1, 9), (1, 1, 9), after_id=[77, 0]), TWO, backfill="none")) == [0.0, 1.0]


def test_no_jobs() -> None:
    empty = JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[])
    for backfill in ("none", "easy", "conservative"):
        log = simulate(empty, TWO.with_outages(Outage("a", 1, 3.0, 5.0)), backfill=backfill)
        assert len(log) == 0 and len(log.jobs()) == 0


def test_estimates_are_at_least_one_second_and_kill_uses_them() -> None:
    jobs = table((0, 1, 5, 0), (0, 1, 5, 3), (0, 1, 0.5, 0))
    assert initial_state(jobs, TWO).jobs["estimate_s"].tolist() == [1.0, 3.0, 1.0]
    log = simulate(jobs, TWO, at_limit="kill", backfill="none")
    assert log.jobs()["run_s"].tolist() == [1.0, 3.0, 0.5]
    assert log.job_outcome.tolist() == [Outcome.KILLED, Outcome.KILLED, Outcome.COMPLETED]


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_maximum_number_of_groups(backfill: str) -> None:
    """62 groups, the last two of them for advance reservations; each job starts on its own."""
    groups = tuple(NodeGroup(f"g{i}", i + 1) for i in range(60))
    cluster = Cluster(
        groups,
        queues={f"q{i}": (f"g{i}",) for i in range(60)},
        reservations=(Reservation("r0", "g59", 1, 0.0, 50.0), Reservation("r1", "g59", 1, 0.0, 50.0)),
    )
    names = (*(f"q{i}" for i in range(60)), "r0", "r1")
    sizes = [*range(1, 60), 58, 1, 1]  # two of the last group's nodes are reserved
    jobs = table(*[(0.0, n, 9.0) for n in sizes * 2], queue=[*range(62)] * 2, labels={"queue": names})
    log = simulate(jobs, cluster, backfill=backfill)
    assert log.jobs()["group"].tolist() == [*range(62)] * 2
    assert starts(log) == [0.0] * 62 + [9.0] * 62
    everywhere = simulate(table((0.0, 60, 9.0), (0.0, 60, 9.0)), Cluster(groups), backfill=backfill)
    assert everywhere.jobs()["group"].tolist() == [59, 59]
    assert starts(everywhere) == [0.0, 9.0]


def test_job_record_fields_visible_to_policies() -> None:
    jobs = table((4, 3, 9, 20), cores=[5], memory_mb=[7.5], gpus=[1], user=[2], account=[3], queue=[4], qos=[6])
    seen = initial_state(jobs, Cluster.from_nodes(4)).jobs[0]
    names = ("estimate_s", "nodes", "cores", "memory_mb", "gpus", "user", "account", "queue", "qos", "number")
    assert [seen[name].item() for name in names] == [20.0, 3, 5, 7.5, 1, 2, 3, 4, 6, 0]
    assert "runtime_s" not in (seen.dtype.names or ())


def test_unknown_users_have_number_minus_one() -> None:
    seen = initial_state(table((0, 1, 9)), Cluster.from_nodes(4)).jobs[0]
    assert [seen[name].item() for name in ("user", "account", "queue", "qos")] == [-1] * 4
    assert np.isfinite(seen["memory_mb"])
