"""Energy accounting of GPU clusters on cases computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kilowait
from kilowait.cluster import Cluster, NodeGroup
from kilowait.energy.accounting import account_energy, lower_bound_kwh
from kilowait.energy.controls import resolve_controls
from kilowait.energy.power import ConstantUtilization, DvfsTable, cap_gpus
from kilowait.energy.signals.align import ExternalSignals
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import run_gpu_simulation
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies.registry import resolve
from kilowait.series import Series
from tests.energy.accounting.gpu_integrator import fast, gpu_cluster, gpu_log, power_model, slow

J = 3.6e6


def table(**columns: Any) -> JobTable:
    """Jobs of one node submitted at 0 that run for 100 s, unless other columns are given."""
    n = len(columns["gpus"])
    defaults = {"job_id": range(1, n + 1), "submit_s": [0] * n, "runtime_s": [100] * n, "nodes": [1] * n}
    return JobTable(**{**defaults, **columns})


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
    return jobs, gpu_log(jobs, gpu_cluster(), [(0, 0, 100, [(0, 1, 500, 1)]), (1, 50, 150, [(0, 1, 250, 1)])])


def test_two_jobs_share_a_gpu():
    _, log = sharing()
    accounts = account_energy(
        log,
        gpu_cluster(),
        power_model(),
        signals=ExternalSignals(carbon=Series.constant(360, "g/kWh"), price=Series.constant(36, "EUR/MWh")),
    )
    # Idle: 55 W a node. The first is attributed 0.5 * 10 + 0.2 * 35 = 12 W of that and adds 50 + 16 = 66 W; the second
    # 0.25 * 10 + 0.1 * 35 = 6 W and adds 0.1 * 100 + 0.1 * 0.5 * 80 = 14 W.
    assert accounts.it_power.edge_s.tolist() == [0, 50, 100, 150]
    assert accounts.it_power.value == pytest.approx([176, 190, 124])
    assert accounts.it_kwh * J == pytest.approx(24_500)
    energy_j = {state: kwh * J for state, kwh in accounts.by_state.items() if kwh}
    assert energy_j == pytest.approx({"jobs": 9_800, "idle": 14_700})
    assert (accounts.peak_it_w, accounts.peak_it_s) == pytest.approx((190, 50))
    jobs = accounts.per_job()
    assert jobs["it_j"] == pytest.approx([7_800, 2_000])
    assert jobs["held_idle_j"] == pytest.approx([1_200, 600])
    assert jobs["idle_share_j"] == pytest.approx([9_800, 4_900])
    assert jobs["facility_j"] == pytest.approx([11_700, 3_000])
    assert accounts.facility_kwh * J == pytest.approx(36_750)
    assert accounts.co2_kg == pytest.approx(36_750 * 1e-7)
    assert jobs["co2_g"] == pytest.approx([1.17, 0.3])
    assert accounts.cost == pytest.approx(36_750 * 1e-8)
    assert [row.label for row in accounts.by_user()] == ["7", "8"]
    assert accounts.hourly().it_kwh.sum() * J == pytest.approx(24_500)
    assert any("idle power of the GPUs" in note for note in accounts.notes)


def test_migrated_job_draws_the_power_of_each_node():
    cluster, jobs = gpu_cluster(1, 1), table(gpus=[1], cores=[2])
    log = gpu_log(jobs, cluster, [(0, 0, 60, [(0, 2, 1000, 1)]), (0, 60, 160, [(1, 1, 1000, 1)])])
    accounts = account_energy(log, cluster, power_model(fast(1), slow(1)))
    # On fast 10 + 7 W idle and 100 + 16 W added; on slow 5 + 5 and 40 + 10.
    assert accounts.it_power.value == pytest.approx([55 + 116 + 15, 55 + 15 + 50])
    assert accounts.by_group["fast"]["jobs"] * J == pytest.approx(133 * 60)
    assert accounts.by_group["slow"]["jobs"] * J == pytest.approx(60 * 100)
    assert accounts.per_job()["it_j"] == pytest.approx([133 * 60 + 60 * 100])
    assert accounts.per_job()["held_idle_j"] == pytest.approx([17 * 60 + 10 * 100])


def test_an_idle_cluster_draws_its_idle_power():
    jobs = table(gpus=[1])
    accounts = account_energy(
        gpu_log(jobs, gpu_cluster(2, 1), []), gpu_cluster(2, 1), power_model(fast(), slow()), horizon=(0, 100)
    )
    assert accounts.it_power.value.tolist() == [125]
    assert {state: kwh * J for state, kwh in accounts.by_state.items() if kwh} == pytest.approx({"idle": 12_500})
    assert accounts.per_job()["it_j"].tolist() == [0]


def test_job_on_two_nodes_and_pieces_sharing_one():
    jobs = table(gpus=[4, 3], nodes=[2, 1], cores=[20, 3], gpus_may_span_nodes=[0, 1])
    cluster = gpu_cluster(4)
    whole, spread = [(0, 3, 2000, 1), (1, 3, 2000, 1)], [(2, 3, 2000, 2), (3, 1, 1000, 1)]
    log = gpu_log(jobs, cluster, [(0, 0, 10, whole), (1, 0, 10, spread)])
    accounts = account_energy(log, cluster, power_model(fast(4)))
    # The first has two nodes to itself; the second 3 GPUs at 110 W and 3 of 10 cores at 80 + 35 W.
    assert accounts.segment_w == pytest.approx([670, 330 + 0.3 * 115])
    assert accounts.segment_nodes[0] == pytest.approx(2)


def test_measured_power_covers_all_pieces():
    jobs = table(gpus=[1, 2], cores=[2, 10], power_w=[50, 30])
    log = gpu_log(jobs, gpu_cluster(), [(0, 0, 10, [(0, 1, 1000, 1)]), (1, 0, 10, [(1, 3, 2000, 1)])])
    accounts = account_energy(log, gpu_cluster(), power_model())
    # The measured 50 W include 17 W of idle power; the second job was measured below the idle power of its node.
    assert accounts.per_job()["it_j"] == pytest.approx([500, 300])
    assert accounts.it_kwh * J == pytest.approx((110 - 17 - 55 + 50 + 30) * 10)
    mixed = account_energy(
        gpu_log(jobs, gpu_cluster(2, 1), []), gpu_cluster(2, 1), power_model(fast(), slow()), horizon=(0, 1)
    )
    assert "measured power is assumed to be the same on all GPU types" in mixed.notes


def test_jobs_without_cores_get_the_share_of_their_gpus():
    jobs = table(gpus=[1, 1], gpu_milli=[1000, 500])
    log = gpu_log(jobs, gpu_cluster(), [(0, 0, 10, [(0, 1, 1000, 1)]), (1, 0, 10, [(0, 2, 500, 1)])])
    accounts = account_energy(log, gpu_cluster(), power_model())
    assert accounts.segment_w == pytest.approx([335 / 2, 335 / 4])
    assert any("has no cores of jobs" in note for note in accounts.notes)


def test_utilization_profile_fills_missing_columns():
    jobs = table(gpus=[2], gpu_utilization=[0.5], cores=[10])
    log = gpu_log(jobs, gpu_cluster(), [(0, 0, 10, [(0, 3, 2000, 1)])])
    accounts = account_energy(log, gpu_cluster(), power_model(), utilization=ConstantUtilization(0.25, 0.1))
    assert accounts.segment_w == pytest.approx([55 + 0.5 * 200 + 0.25 * 80])


def test_whole_nodes_draw_the_same_as_on_a_batch_cluster():
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
    gpu_nodes, batch_nodes = (Cluster((NodeGroup(**group, node_level=node_level),)) for node_level in (True, False))
    gpu_run = run_gpu_simulation(jobs, gpu_nodes, resolve("fcfs"), GpuSettings())
    batch_run = kilowait.simulate(jobs, batch_nodes, policy="fcfs", backfill="none")
    power = power_model(fast(4, lossy=True))
    gpu_accounts, batch_accounts = (
        account_energy(gpu_run, gpu_nodes, power),
        account_energy(batch_run, batch_nodes, power),
    )
    assert gpu_accounts.by_state == pytest.approx(batch_accounts.by_state, rel=1e-12)
    assert gpu_accounts.metrics() == pytest.approx(batch_accounts.metrics(), rel=1e-12)
    for name in ("it_j", "facility_j", "idle_share_j"):
        np.testing.assert_allclose(gpu_accounts.per_job()[name], batch_accounts.per_job()[name], rtol=1e-9)


# -- caps -----------------------------------------------------------------------------------------


def test_capped_run_is_longer_and_draws_less():
    cluster, jobs = gpu_cluster(1), table(gpus=[2], cores=[10])
    capped = cap_gpus(jobs, cluster, power_model(fast(1)), 0.5)
    log = run_gpu_simulation(jobs, cluster, resolve("fcfs"), GpuSettings(), speeds=capped.speeds)
    accounts = account_energy(log, cluster, power_model(fast(1)), gpu_cap=capped.gpu_cap)
    # 55 of 110 W: r = 0.5, so 1 + 0.58 times as long; 335 - 2 * 55 W.
    assert log.end_s.tolist() == pytest.approx([158])
    assert accounts.it_power.value == pytest.approx([225])
    assert accounts.per_job()["it_j"] == pytest.approx([225 * 158])
    assert any("50% of the limit" in note for note in accounts.notes)


def test_lower_bound_uses_the_most_efficient_type():
    cluster, jobs = gpu_cluster(1, 1), table(gpus=[1, 2], cores=[2, 2])
    power = power_model(fast(1), slow(1))
    # The first draws 60 W on slow; the second fits only on fast: 220 W of GPUs and a fifth of 115 W.
    assert lower_bound_kwh(jobs, cluster, power) * J == pytest.approx(60 * 100 + 243 * 100)
    log = run_gpu_simulation(jobs, cluster, resolve("fcfs"), GpuSettings())
    assert account_energy(log, cluster, power).by_state["jobs"] >= lower_bound_kwh(jobs, cluster, power)


# -- errors ---------------------------------------------------------------------------------------


def test_log_and_cluster_must_match():
    jobs, log = sharing()
    batch_cluster = Cluster((NodeGroup("fast", 2, 10, gpus=2, gpu_type="V100"),))
    with pytest.raises(InputError, match="are not node_level"):
        account_energy(log, batch_cluster, power_model())
    with pytest.raises(InputError, match="nodes of the log are not those"):
        account_energy(log, gpu_cluster(3), power_model())
    with pytest.raises(InputError, match="does not record the nodes"):
        account_energy(kilowait.simulate(jobs, batch_cluster), gpu_cluster(), power_model())


def test_dvfs_states_and_gpu_caps_need_their_cluster_kind():
    jobs, log = sharing()
    levels = {"fast": DvfsTable(("full",), np.ones((2, 1)), np.ones((2, 1)))}
    with pytest.raises(InputError, match="no DVFS states"):
        account_energy(log, gpu_cluster(), power_model(), tables=levels)
    batch_nodes = Cluster((NodeGroup("fast", 2, 10, gpus=2, gpu_type="V100"),))
    with pytest.raises(InputError, match="for node-level GPU clusters"):
        account_energy(kilowait.simulate(jobs, batch_nodes), batch_nodes, power_model(), gpu_cap=0.5)
    with pytest.raises(InputError, match="cap its GPUs"):
        resolve_controls("sleep=break-even", jobs, gpu_cluster(), power_model())
    assert resolve_controls("none", jobs, gpu_cluster(), power_model()).controls is None


def test_gpus_must_match_the_power_model():
    _, log = sharing()
    with pytest.raises(InputError, match="has 2 GPUs, but 1 in its power model"):
        account_energy(log, gpu_cluster(), power_model(slow(2)))


@pytest.mark.parametrize("cap", [0.0, 1.2, np.nan, [0.5]])
def test_invalid_caps(cap):
    _, log = sharing()
    with pytest.raises(InputError, match="gpu_cap"):
        account_energy(log, gpu_cluster(), power_model(), gpu_cap=cap)
