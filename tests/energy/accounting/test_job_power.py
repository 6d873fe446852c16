"""Power and nodes of segments, and the lower bound of the energy of jobs."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait
from kilowait.cluster import Cluster, NodeGroup, PowerControls
from kilowait.energy.accounting import account_energy, lower_bound_kwh
from kilowait.energy.power import ConstantUtilization, DvfsTable, PowerModel, best_level, job_power_w, level_tables
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from tests.energy.accounting.integrator import execution_log, small_model, table

NODES = Cluster.from_nodes(4)
ONE = table(nodes=[2], power_w=[150])


def levels(jobs: int = 1) -> DvfsTable:
    return DvfsTable(("full", "slow"), np.tile([1, 1.25], (jobs, 1)), np.tile([200.0, 150.0], (jobs, 1)))


def test_dvfs_tables_must_fit_the_run() -> None:
    log = execution_log(ONE, [(0, 0, 10)], level=[1])
    with pytest.raises(InputError, match="DVFS state 1 on the group 'nodes', for which no DVFS table was given"):
        account_energy(log, NODES, small_model())
    with pytest.raises(InputError, match="has 2 rows and the job table 1; compute it from the same jobs"):
        account_energy(log, NODES, small_model(), tables={"nodes": levels(2)})
    with pytest.raises(UnknownNameError, match="group of a DVFS table 'node'; did you mean 'nodes'"):
        account_energy(log, NODES, small_model(), tables={"node": levels()})
    higher = execution_log(ONE, [(0, 0, 10)], level=[2])
    with pytest.raises(InputError, match=r"DVFS state 2 on the group 'nodes', for which the DVFS table has 2 state"):
        account_energy(higher, NODES, small_model(), tables={"nodes": levels()})
    assert account_energy(log, NODES, small_model(), tables={"nodes": levels()}).per_job()["it_j"].tolist() == [1500]


def test_group_without_a_table_runs_at_full_speed() -> None:
    machine = Cluster((NodeGroup("g", 4), NodeGroup("h", 4)))
    jobs = table(nodes=[2, 2], power_w=[150, 160])
    log = execution_log(jobs, [(0, 0, 10), (1, 0, 10)], groups=("g", "h"), group=[0, 1], level=[1, 0])
    accounts = account_energy(log, machine, small_model(), tables={"g": levels(2)})
    assert accounts.per_job()["it_j"].tolist() == [1500, 1600]
    assert accounts.by_group["h"]["jobs"] * 3.6e6 == pytest.approx(1600)


def test_profile_fills_missing_measurements() -> None:
    jobs = table(nodes=[2, 2], power_w=[150, np.nan])
    log = execution_log(jobs, [(0, 0, 10), (1, 10, 20)])
    accounts = account_energy(log, NODES, small_model(), utilization=ConstantUtilization(0.5))
    assert accounts.per_job()["it_j"].tolist() == [1500, 2 * 55 * 10]
    assert "of 1 from the utilization profile" in accounts.notes[0]


def test_jobs_on_shared_nodes_count_by_share_of_cores() -> None:
    machine = Cluster((NodeGroup("g", 2, cores=8, shared=True),))
    jobs = table(nodes=[1, 1, 1], cores=[4, 4, 2], power_w=[np.nan, np.nan, 33])
    log = execution_log(jobs, [(0, 0, 10), (1, 0, 10), (2, 0, 10)], groups=("g",))
    accounts = account_energy(log, machine, small_model())
    assert accounts.per_job()["it_j"] == pytest.approx([500, 500, 330])
    assert accounts.by_state["idle"] * 3.6e6 == pytest.approx(0.75 * 10 * 10)
    assert accounts.notes[-1] == "jobs on shared nodes count with their share of the cores: g"
    assert lower_bound_kwh(jobs, machine, small_model()) == pytest.approx((50 + 50 + 33) * 3600 / 3.6e6)


def test_lower_bound_takes_the_cheapest_state_and_group() -> None:
    jobs = table(nodes=[1, 1], power_w=[200, 200])
    machine = Cluster((NodeGroup("g", 4), NodeGroup("h", 4)))
    table_g = DvfsTable(("full", "slow"), np.array([[1, 1.2], [1, 2.0]]), np.array([[200, 100.0], [200, 150.0]]))
    assert lower_bound_kwh(jobs, machine, small_model()) == pytest.approx(0.4)
    assert lower_bound_kwh(jobs, machine, small_model(), {"g": table_g}) == pytest.approx(0.12 + 0.2)
    with pytest.raises(UnknownNameError, match="group of a DVFS table"):
        lower_bound_kwh(jobs, machine, small_model(), {"x": table_g})


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "largest"])
def test_lower_bound_holds_for_every_policy(policy: str) -> None:
    rng = np.random.default_rng(5)
    jobs = JobTable(
        job_id=np.arange(80),
        submit_s=np.sort(rng.integers(0, 9000, 80)),
        runtime_s=rng.integers(1, 900, 80),
        nodes=rng.integers(1, 20, 80),
        beta=rng.uniform(0, 1, 80),
    )
    machine, model = Cluster.preset("theta"), PowerModel.preset("theta")
    full = job_power_w(jobs, model, ConstantUtilization())
    tables = {"theta": level_tables(jobs, full, model.group("theta"))}
    bound = lower_bound_kwh(jobs, machine, model, tables)
    best = best_level(tables["theta"])
    log = kilowait.simulate(
        jobs,
        machine,
        policy,
        "easy",
        power_controls=PowerControls(factor=tables["theta"].factor[None], preferred_level=best),
    )
    accounts = account_energy(log, machine, model, tables=tables)
    assert (log.level > 0).any()
    assert accounts.by_state["jobs"] == pytest.approx(bound, rel=1e-9)  # every job ran at its best level
    assert bound < accounts.it_kwh
    at_full = account_energy(kilowait.simulate(jobs, machine, policy, "easy"), machine, model)
    assert bound < at_full.by_state["jobs"]
    assert lower_bound_kwh(jobs, machine, model) == pytest.approx(at_full.by_state["jobs"], rel=1e-9)
