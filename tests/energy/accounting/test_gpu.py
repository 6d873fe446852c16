"""Accounts of placed nodes on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kilowait
from kilowait.cluster import Cluster, NodeGroup
from kilowait.energy.accounting import account_energy, lower_bound_kwh
from kilowait.energy.controls import resolve_controls
from kilowait.energy.power import ConstantUtilization, DvfsTable, cap_gpus
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import run_gpu_simulation
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies.registry import resolve
from kilowait.series import Series
from tests.energy.accounting.gpu_integrator import (
    fast,
    lay,
    machine,
    model,
    slow,
)

J = 3.6e6


def table(**columns: Any) -> JobTable:
    """Jobs of one node submitted at 0 that run for 100 s, unless told."""
    n = len(columns["gpus"])
    usual = {"job_id": range(1, n + 1), "submit_s": [0] * n, "runtime_s": [100] * n, "nodes": [1] * n}
    return JobTable(**{**usual, **columns})


def sharing() -> tuple[JobTable, Any]:
    """Half of a GPU and 2 cores at full load from 0 to 100 s; a quarter of it and 1 core from 50 to 150 s, which
    loads the GPU by a tenth and its core by half."""
    jobs = table(
        gpus=[1, 1],
        gpu_milli=[500, 250],
        cores=[2, 1],
        gpu_utilization=[np.nan, 0.1],
        cpu_utilization=[np.nan, 0.5],
        user=[7, 8],
    )
    return jobs, lay(jobs, machine(), [(0, 0, 100, [(0, 1, 500, 1)]), (1, 50, 150, [(0, 1, 250, 1)])])


def test_two_jobs_share_a_gpu():
    _, log = sharing()
    found = account_energy(
        log, machine(), model(), carbon=Series.constant(360, "g/kWh"), price=Series.constant(36, "EUR/MWh")
    )
    # Idle: 55 W a node. The first holds 0.5 * 10 + 0.2 * 35 = 12 W of that and adds 50 + 16 = 66 W; the second holds
    # 0.25 * 10 + 0.1 * 35 = 6 W and adds 0.1 * 100 + 0.1 * 0.5 * 80 = 14 W.
    assert found.it_power.edge_s.tolist() == [0, 50, 100, 150]
    assert found.it_power.value == pytest.approx([176, 190, 124])
    assert found.it_kwh * J == pytest.approx(24_500)
    spent = {state: kwh * J for state, kwh in found.by_state.items() if kwh}
    assert spent == pytest.approx({"jobs": 9_800, "idle": 14_700})
    assert (found.peak_it_w, found.peak_it_s) == pytest.approx((190, 50))
    jobs = found.per_job()
    assert jobs["it_j"] == pytest.approx([7_800, 2_000])
    assert jobs["held_idle_j"] == pytest.approx([1_200, 600])
    assert jobs["idle_share_j"] == pytest.approx([9_800, 4_900])
    assert jobs["facility_j"] == pytest.approx([11_700, 3_000])
    assert found.facility_kwh * J == pytest.approx(36_750)
    assert found.co2_kg == pytest.approx(36_750 * 1e-7)
    assert jobs["co2_g"] == pytest.approx([1.17, 0.3])
    assert found.cost == pytest.approx(36_750 * 1e-8)
    assert [row.label for row in found.by_user()] == ["7", "8"]
    assert found.hourly().it_kwh.sum() * J == pytest.approx(24_500)
    assert any("idle power of the GPUs" in note for note in found.notes)


def test_a_job_that_moves_draws_what_it_does_there():
    cluster, jobs = machine(1, 1), table(gpus=[1], cores=[2])
    log = lay(jobs, cluster, [(0, 0, 60, [(0, 2, 1000, 1)]), (0, 60, 160, [(1, 1, 1000, 1)])])
    found = account_energy(log, cluster, model(fast(1), slow(1)))
    # On fast 10 + 7 W are held and 100 + 16 W added; on slow 5 + 5 and 40 + 10.
    assert found.it_power.value == pytest.approx([55 + 116 + 15, 55 + 15 + 50])
    assert found.by_group["fast"]["jobs"] * J == pytest.approx(133 * 60)
    assert found.by_group["slow"]["jobs"] * J == pytest.approx(60 * 100)
    assert found.per_job()["it_j"] == pytest.approx([133 * 60 + 60 * 100])
    assert found.per_job()["held_idle_j"] == pytest.approx([17 * 60 + 10 * 100])


def test_an_idle_cluster_draws_its_idle_power():
    jobs = table(gpus=[1])
    found = account_energy(
        lay(jobs, machine(2, 1), []), machine(2, 1), model(fast(), slow()), horizon=(0, 100)
    )
    assert found.it_power.value.tolist() == [125]
    assert {state: kwh * J for state, kwh in found.by_state.items() if kwh} == pytest.approx({"idle": 12_500})
    assert found.per_job()["it_j"].tolist() == [0]


def test_a_gang_on_two_nodes_and_pieces_that_share_one():
    jobs = table(gpus=[4, 3], nodes=[2, 1], cores=[20, 3], gpus_may_span_nodes=[0, 1])
    cluster = machine(4)
    whole, spread = [(0, 3, 2000, 1), (1, 3, 2000, 1)], [(2, 3, 2000, 2), (3, 1, 1000, 1)]
    log = lay(jobs, cluster, [(0, 0, 10, whole), (1, 0, 10, spread)])
    found = account_energy(log, cluster, model(fast(4)))
    # The first has two nodes to itself; the second 3 GPUs at 110 W and 3 of 10 cores at 80 + 35 W.
    assert found.segment_w == pytest.approx([670, 330 + 0.3 * 115])
    assert found.segment_nodes[0] == pytest.approx(2)


def test_measured_power_is_that_of_all_it_holds():
    jobs = table(gpus=[1, 2], cores=[2, 10], power_w=[50, 30])
    log = lay(jobs, machine(), [(0, 0, 10, [(0, 1, 1000, 1)]), (1, 0, 10, [(1, 3, 2000, 1)])])
    found = account_energy(log, machine(), model())
    # 17 W of the first node's idle power are in the 50; the second job was measured to draw less than its idle node.
    assert found.per_job()["it_j"] == pytest.approx([500, 300])
    assert found.it_kwh * J == pytest.approx((110 - 17 - 55 + 50 + 30) * 10)
    several = account_energy(
        lay(jobs, machine(2, 1), []), machine(2, 1), model(fast(), slow()), horizon=(0, 1)
    )
    assert "measured power is assumed to be the same on all GPU types" in several.notes


def test_jobs_that_say_nothing_of_cores_have_as_much_of_them_as_of_the_gpus():
    jobs = table(gpus=[1, 1], gpu_milli=[1000, 500])
    log = lay(jobs, machine(), [(0, 0, 10, [(0, 1, 1000, 1)]), (1, 0, 10, [(0, 2, 500, 1)])])
    found = account_energy(log, machine(), model())
    assert found.segment_w == pytest.approx([335 / 2, 335 / 4])
    assert any("has no cores of jobs" in note for note in found.notes)


def test_a_profile_tells_what_columns_do_not():
    jobs = table(gpus=[2], gpu_utilization=[0.5], cores=[10])
    log = lay(jobs, machine(), [(0, 0, 10, [(0, 3, 2000, 1)])])
    found = account_energy(log, machine(), model(), utilization=ConstantUtilization(0.25, 0.1))
    assert found.segment_w == pytest.approx([55 + 0.5 * 200 + 0.25 * 80])


def test_whole_nodes_cost_what_they_do_on_a_plain_cluster():
    rng = np.random.default_rng(3)
    n = 40
    nodes = rng.integers(1, 4, n)
    jobs = JobTable(
        job_id=range(n),
        submit_s=np.cumsum(rng.integers(0, 60, n)),
        runtime_s=rng.integers(1, 200, n),
        nodes=nodes,
        cores=10 * nodes,
        gpus=2 * nodes,
        gpu_utilization=rng.random(n),
        cpu_utilization=rng.random(n),
        power_w=np.where(rng.random(n) < 0.3, 100.0 * nodes, np.nan),
    )
    group = {"name": "fast", "nodes": 4, "cores": 10, "gpus": 2, "gpu_type": "V100"}
    placed, plain = (Cluster((NodeGroup(**group, node_level=how),)) for how in (True, False))
    there = run_gpu_simulation(jobs, placed, resolve("fcfs"), GpuSettings())
    here = kilowait.simulate(jobs, plain, policy="fcfs", backfill="none")
    draws = model(fast(4, lossy=True))
    one, other = account_energy(there, placed, draws), account_energy(here, plain, draws)
    assert one.by_state == pytest.approx(other.by_state, rel=1e-12)
    assert one.metrics() == pytest.approx(other.metrics(), rel=1e-12)
    for name in ("it_j", "facility_j", "idle_share_j"):
        np.testing.assert_allclose(one.per_job()[name], other.per_job()[name], rtol=1e-9)


# -- caps -----------------------------------------------------------------------------------------


def test_a_capped_run_is_longer_and_draws_less():
    cluster, jobs = machine(1), table(gpus=[2], cores=[10])
    capped = cap_gpus(jobs, cluster, model(fast(1)), 0.5)
    log = run_gpu_simulation(jobs, cluster, resolve("fcfs"), GpuSettings(), speeds=capped.speeds)
    found = account_energy(log, cluster, model(fast(1)), gpu_cap=capped.gpu_cap)
    # 55 of 110 W: r = 0.5, so 1 + 0.58 times as long; 335 - 2 * 55 W.
    assert log.end_s.tolist() == pytest.approx([158])
    assert found.it_power.value == pytest.approx([225])
    assert found.per_job()["it_j"] == pytest.approx([225 * 158])
    assert any("50% of the limit" in note for note in found.notes)


def test_the_bound_is_the_work_where_it_takes_least():
    cluster, jobs = machine(1, 1), table(gpus=[1, 2], cores=[2, 2])
    draws = model(fast(1), slow(1))
    # The first takes 60 W on slow; the second only fits fast: 220 W of GPUs and a fifth of 115 W.
    assert lower_bound_kwh(jobs, cluster, draws) * J == pytest.approx(60 * 100 + 243 * 100)
    log = run_gpu_simulation(jobs, cluster, resolve("fcfs"), GpuSettings())
    assert account_energy(log, cluster, draws).by_state["jobs"] >= lower_bound_kwh(jobs, cluster, draws)


# -- what does not go -----------------------------------------------------------------------------


def test_a_log_and_a_cluster_that_do_not_belong_together():
    jobs, log = sharing()
    plain = Cluster((NodeGroup("fast", 2, 10, gpus=2, gpu_type="V100"),))
    with pytest.raises(InputError, match="are not node_level"):
        account_energy(log, plain, model())
    with pytest.raises(InputError, match="nodes of the log are not those"):
        account_energy(log, machine(3), model())
    with pytest.raises(InputError, match="does not record the nodes"):
        account_energy(kilowait.simulate(jobs, plain), machine(), model())


def test_levels_are_not_for_placed_nodes_and_caps_only_for_them():
    jobs, log = sharing()
    levels = {"fast": DvfsTable(("full",), np.ones((2, 1)), np.ones((2, 1)))}
    with pytest.raises(InputError, match="no DVFS states"):
        account_energy(log, machine(), model(), tables=levels)
    plain = Cluster((NodeGroup("fast", 2, 10, gpus=2, gpu_type="V100"),))
    with pytest.raises(InputError, match="for node-level GPU clusters"):
        account_energy(kilowait.simulate(jobs, plain), plain, model(), gpu_cap=0.5)
    with pytest.raises(InputError, match="cap its GPUs"):
        resolve_controls("sleep=break-even", jobs, machine(), model())
    assert resolve_controls("none", jobs, machine(), model()).controls is None


def test_gpus_must_be_those_of_the_power_model():
    _, log = sharing()
    with pytest.raises(InputError, match="has 2 GPUs, but 1 in its power model"):
        account_energy(log, machine(), model(slow(2)))


@pytest.mark.parametrize("cap", [0.0, 1.2, np.nan, [0.5]])
def test_impossible_caps(cap):
    _, log = sharing()
    with pytest.raises(InputError, match="gpu_cap"):
        account_energy(log, machine(), model(), gpu_cap=cap)
