"""Small GPU simulations with a known outcome, and errors of invalid input."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.errors import (
    ChoiceError,
    ClusterError,
    InputError,
    KilowaitError,
    NoProgressError,
    TableError,
    UnknownNameError,
)
from kilowait.jobs.execution_log import Outcome


def nodes(*groups, **more):
    """A cluster of (name, nodes, GPUs, type) of 8 cores each."""
    made = (NodeGroup(n, count, cores=8, gpus=g, gpu_type=t, node_level=True) for n, count, g, t in groups)
    return Cluster(groups=tuple(made), **more)


ONE = nodes(("a", 1, 2, "V100"))
TWO = nodes(("a", 2, 4, "V100"))


def table(runs, *, gpus, **columns):
    """Jobs of one core and one node each unless said otherwise, submitted at 0 with perfect estimates."""
    n = len(runs)
    usual = {"submit_s": [0] * n, "nodes": [1] * n, "cores": [1] * n}
    return kw.JobTable(job_id=range(n), runtime_s=runs, gpus=gpus, **{**usual, **columns})


def speeds(rows, spread=None):
    """Constant speeds by type."""
    speed = np.array(list(rows.values()), float)
    factor = np.ones_like(speed) if spread is None else np.array(list(spread.values()), float)
    return Speeds(tuple(rows), speed, factor, np.ones(speed.shape, np.int8))


def starts(log):
    return log.jobs()["start_s"].tolist()


def ends(log):
    return log.jobs()["end_s"].tolist()


def test_jobs_share_a_gpu_until_it_is_full():
    jobs = table([10, 10, 10], gpus=[1, 1, 1], gpu_milli=[600, 400, 600])
    log = kw.simulate(jobs, nodes(("a", 1, 1, "V100")), settings=GpuSettings(interference=None), gpu_speeds="none")
    assert starts(log) == [0, 0, 10]


def test_jobs_that_share_a_gpu_slow_each_other_down():
    jobs = table([10, 10], gpus=[1, 1], gpu_milli=[500, 500], gpu_utilization=[0.9, 0.8])
    log = kw.simulate(jobs, nodes(("a", 1, 1, "V100")), backfill="none", gpu_speeds="none")
    assert ends(log) == pytest.approx([10 / 0.75] * 2)  # together they load it 1.7 times: 0.75
    short = kw.simulate(
        table([2, 10], gpus=[1, 1], gpu_milli=[500, 500]),
        nodes(("a", 1, 1, "V100")),
        backfill="none",
        gpu_speeds="none",
    )
    first = 2 / 0.97  # two halves load it wholly
    assert ends(short) == pytest.approx([first, first + (10 - first * 0.97)])


def test_gang_starts_on_all_nodes_at_once():
    jobs = table([10, 10], gpus=[1, 8], nodes=[1, 2], cores=[1, 2])
    assert starts(kw.simulate(jobs, TWO, backfill="none", gpu_speeds="none")) == [0, 10]


def test_spread_gang_uses_leftover_gpus_at_lower_speed():
    jobs = table([10, 10], gpus=[6, 2], nodes=[6, 2], gpus_may_span_nodes=[1, 1])
    slow = speeds({"V100": [1, 1]}, {"V100": [0.5, 0.5]})
    log = kw.simulate(jobs, nodes(("a", 2, 4, "V100")), speeds=slow, backfill="none")
    assert ends(log) == [10, 10]  # six GPUs need two nodes: no more than they must
    apart = table([10, 10], gpus=[3, 4], nodes=[3, 4], gpus_may_span_nodes=[1, 1])
    assert ends(kw.simulate(apart, TWO, speeds=slow, backfill="none")) == [
        10,
        20,
    ]  # four would fit one node, but lie on two


def test_run_time_depends_on_the_gpu_type():
    cluster = nodes(("old", 1, 1, "K80"), ("new", 1, 1, "V100"))
    table_of = speeds({"K80": [0.25, 0.25], "V100": [1, 1]})
    jobs = table([10, 10], gpus=[1, 1])
    assert ends(kw.simulate(jobs, cluster, speeds=table_of, backfill="none")) == [40, 10]
    fast = kw.simulate(jobs, cluster, speeds=table_of, settings=GpuSettings(gpu_type_order="fastest"))
    assert ends(fast) == [10, 40]
    moved = kw.simulate(
        jobs,
        cluster,
        speeds=table_of,
        settings=GpuSettings(gpu_type_order="fastest", migrate=True, checkpoint_load_s=2),
    )
    assert ends(moved) == [10, 10 + 2 + 7.5]  # a quarter is done when the V100 falls free
    assert moved.outcome.tolist() == [Outcome.COMPLETED, Outcome.MIGRATED, Outcome.COMPLETED]


def test_gpu_types_by_preference():
    cluster = nodes(("a", 1, 1, "K80"), ("b", 1, 1, "V100"))
    wish = np.array([[2.0], [1.0]])
    log = kw.simulate(
        table([10], gpus=[1]), cluster, settings=GpuSettings(gpu_type_order="given"), preference=wish, gpu_speeds="none"
    )
    assert log.group.tolist() == [1]


def test_jobs_use_only_allowed_types_and_queues():
    cluster = nodes(("a", 1, 1, "K80"), ("b", 1, 1, "V100"), queues={"prod": ("b",)})
    jobs = kw.JobTable(
        job_id=[0, 1, 2],
        submit_s=[0, 0, 0],
        runtime_s=[10, 10, 10],
        nodes=[1, 1, 1],
        gpus=[1, 1, 1],
        gpu_types=[0, -1, 1],
        queue=[-1, 0, -1],
        labels={"gpu_types": ("V100", "V100|K80"), "queue": ("prod",)},
    )
    log = kw.simulate(jobs, cluster, "fcfs", "skip", gpu_speeds="none")
    assert log.jobs()["group"].tolist() == [1, 1, 0] and starts(log) == [0, 10, 0]


@pytest.mark.parametrize(
    ("label", "group"), [("any", 0), ("*", 0), ("NVIDIA A100-SXM4-80GB", 1), ("t4|Tesla V100-SXM2-16GB", 0)]
)
def test_jobs_may_name_any_gpu_and_the_names_of_nvidia_smi(label, group):
    cluster = nodes(("a", 1, 1, "V100"), ("b", 1, 1, "A100"))
    jobs = table([10], gpus=[1], gpu_types=[0], labels={"gpu_types": (label,)})
    assert kw.simulate(jobs, cluster, backfill="none", gpu_speeds="none").group.tolist() == [group]


@pytest.mark.parametrize(
    ("checkpoint_s", "lost", "end"), [(0, 0, 15), (3, 1, 16), (math.inf, 4, 19)], ids=["at once", "every 3", "never"]
)
def test_preempted_job_loses_work_since_its_checkpoint(checkpoint_s, lost, end):
    jobs = table([10, 5], gpus=[2, 2], submit_s=[0, 4], priority=[0, 1])
    how = GpuSettings(preempt=True, checkpoint_s=checkpoint_s, checkpoint_load_s=0)
    log = kw.simulate(jobs, ONE, "priority", settings=how, gpu_speeds="none")
    assert ends(log) == [end, 9]
    assert log.pieces.lost_s.tolist() == [lost, 0, 0] and log.outcome[0] == Outcome.PREEMPTED
    assert log.jobs()["run_s"].tolist() == [end - 5, 5] and log.jobs()["wait_s"].tolist() == [5, 0]


def test_grace_and_checkpoint_times_delay_jobs():
    jobs = table([10, 5], gpus=[2, 2], submit_s=[0, 4], priority=[0, 1])
    how = GpuSettings(preempt=True, grace_s=2, checkpoint_write_s=1, checkpoint_load_s=3)
    log = kw.simulate(jobs, ONE, "priority", settings=how, gpu_speeds="none")
    # It works on until 6, writes until 7; the other runs until 12; it loads until 15 and has 4 left.
    assert ends(log) == [19, 12] and log.pieces.work_s.tolist() == [6, 5, 4]


def test_job_can_finish_within_its_grace_period():
    jobs = table([5, 5], gpus=[2, 2], submit_s=[0, 4], priority=[0, 1])
    log = kw.simulate(jobs, ONE, "priority", settings=GpuSettings(preempt=True, grace_s=2), gpu_speeds="none")
    assert ends(log) == [5, 10] and (log.outcome == Outcome.COMPLETED).all()


def test_equal_priority_does_not_preempt():
    jobs = table([10, 5], gpus=[2, 2], submit_s=[0, 4], priority=[1, 1])
    assert starts(kw.simulate(jobs, ONE, "priority", backfill="none", gpu_speeds="none")) == [0, 10]


def test_rounds():
    jobs = table([10, 10], gpus=[2, 2], submit_s=[0, 1])
    log = kw.simulate(jobs, ONE, settings=GpuSettings(round_interval_s=4, rounds=True), gpu_speeds="none")
    assert starts(log) == [0, 12]


def test_head_of_line_blocking():
    jobs = table([10, 10, 10], gpus=[1, 2, 1])
    assert starts(kw.simulate(jobs, ONE, backfill="none", gpu_speeds="none")) == [0, 10, 20]
    assert starts(kw.simulate(jobs, ONE, "fcfs", "skip", gpu_speeds="none")) == [0, 10, 0]


def test_external_scheduler_steps_through_a_run():
    run = GpuSimulator(table([10, 10], gpus=[2, 2]), ONE, GpuSettings(checkpoint_load_s=0))
    view = run.advance()
    assert view.waiting["number"].tolist() == [0, 1] and view.free.tolist() == [2000]
    assert run.start(1) and not run.start(0)
    with pytest.raises(ChoiceError, match="cannot start job 1 at 0 s: it is not waiting"):
        run.start(1)
    with pytest.raises(ChoiceError, match="cannot preempt job 0 at 0 s: it is not running"):
        run.preempt(0)
    run.preempt(1)
    assert run.start(0)
    assert run.view().running["number"].tolist() == [0]
    while (view := run.advance()) is not None:
        for job in view.waiting["number"]:
            run.start(int(job))
    assert run.log("me").run["policy"] == "me" and ends(run.log()) == [10, 20]


def test_buffers_grow_during_a_run():
    jobs = table([1300, 1300], gpus=[2, 2])
    how = GpuSettings(preempt=True, round_interval_s=1, checkpoint_load_s=0)
    log = kw.simulate(jobs, ONE, "las", settings=how, gpu_speeds="none")
    assert len(log) > 1100 and log.pieces.work_s.sum() == pytest.approx(2600)


# -- bad input -----------------------------------------------------------------------------------


def test_unknown_gpu_type_is_an_error():
    jobs = table([10], gpus=[1], gpu_types=[0], labels={"gpu_types": ("V10",)})
    with pytest.raises(UnknownNameError, match="unknown GPU type 'V10'; did you mean 'v100'"):
        kw.simulate(jobs, ONE, backfill="none", gpu_speeds="none")
    known = table([10], gpus=[1], gpu_types=[0], labels={"gpu_types": ("H100",)})
    with pytest.raises(TableError, match="it fits on no nodes of the cluster"):
        kw.simulate(known, ONE, backfill="none", gpu_speeds="none")


def test_oversized_gpu_job():
    jobs = table([10, 10], gpus=[1, 3])
    with pytest.raises(TableError, match=r"job 1 needs 1 x \(3 GPUs, 1 cores, 0 MB\)"):
        kw.simulate(jobs, ONE, backfill="none", gpu_speeds="none")
    log = kw.simulate(jobs, ONE, on_oversized="drop", backfill="none", gpu_speeds="none")
    assert log.job_outcome.tolist() == [Outcome.COMPLETED, Outcome.REJECTED]


def test_memory_counts_to_the_byte():
    gib = 2**30 / 1e6
    cluster = Cluster(groups=(NodeGroup("a", 1, cores=8, memory_gb=512 * 2**30 / 1e9, node_level=True),))
    jobs = table([10, 10], gpus=[0, 0], memory_mb=[256 * gib, 256 * gib])
    assert starts(kw.simulate(jobs, cluster, backfill="none", gpu_speeds="none")) == [0, 0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"gpu_milli": [500], "gpus": [2]}, "gpu_milli 500 with 2 GPUs; a share of a GPU needs gpus 1"),
        ({"nodes": [2], "gpus": [3]}, "3 GPUs on 2 nodes; give a multiple"),
    ],
)
def test_invalid_gpu_requests(columns, words):
    with pytest.raises(TableError, match=words):
        kw.simulate(table([10], **columns), ONE, backfill="none", gpu_speeds="none")


def test_unsupported_inputs_of_node_level_clusters():
    jobs = table([10], gpus=[1])
    with pytest.raises(InputError, match="GPU clusters have no reservations"):
        kw.simulate(jobs, ONE, "fcfs", "easy", gpu_speeds="none")
    with pytest.raises(InputError, match="schedule_per is 'event'"):
        kw.simulate(jobs, ONE, schedule_per="event", backfill="none", gpu_speeds="none")
    with pytest.raises(InputError, match="the jobs request no cores, memory or GPUs"):
        kw.simulate(
            kw.JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1]), ONE, backfill="none", gpu_speeds="none"
        )
    with pytest.raises(InputError, match="some jobs depend on others"):
        kw.simulate(table([1, 1], gpus=[1, 1], after_id=[-1, 0]), ONE, backfill="none", gpu_speeds="none")
    with pytest.raises(InputError, match="allocates GPUs on single nodes"):
        kw.simulate(jobs, Cluster.from_nodes(4), "gavel", backfill="none")
    with pytest.raises(InputError, match="allocates GPUs on single nodes"):
        kw.simulate(jobs, Cluster.from_nodes(4), "las", backfill="none")
    with pytest.raises(ClusterError, match="no gpu_type"):
        kw.simulate(jobs, nodes(("a", 1, 2, "")), backfill="none", gpu_speeds="none")


def test_unknown_speed_is_an_error():
    jobs = table([10], gpus=[1])
    with pytest.raises(InputError, match="speeds are given for K80, not for V100"):
        kw.simulate(jobs, ONE, speeds=speeds({"K80": [1]}), backfill="none")
    with pytest.raises(InputError, match="the speed of job 0 on V100 is not known"):
        kw.simulate(jobs, ONE, speeds=speeds({"V100": [math.nan]}), backfill="none")


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="20,000 starts take half a minute interpreted")
def test_endless_preemption_is_an_error():
    jobs = table([100, 100], gpus=[2, 2])
    with pytest.raises(NoProgressError, match="because jobs preempt each other; give min_run_before_preempt_s"):
        kw.simulate(
            jobs,
            ONE,
            "las",
            settings=GpuSettings(preempt=True, round_interval_s=1, checkpoint_s=math.inf),
            gpu_speeds="none",
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"placement": "bset"},
        {"min_run_before_preempt_s": -1},
        {"checkpoint_s": math.nan},
        {"rounds": True},
        {"seed": -1},
        {"interference": ((1.0, 0.9), (0.5, 0.8))},
    ],
)
def test_invalid_gpu_settings(settings):
    with pytest.raises(KilowaitError):
        GpuSettings(**settings)
