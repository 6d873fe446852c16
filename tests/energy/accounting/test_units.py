"""Energy of machines whose logs count cores or processors."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.energy.accounting import account_energy
from kilowait.energy.power import PowerModel
from kilowait.errors import InputError
from kilowait.jobs import JobTable

TAURUS = PowerModel.preset("taurus")
IDLE_W, FULL_W = TAURUS.groups[0].idle_w, TAURUS.groups[0].full_w


def log_of(cores: list[int]) -> JobTable:
    """Jobs of an hour on a machine of 24 nodes with 72 cores."""
    n = len(cores)
    return JobTable(
        job_id=range(n), submit_s=np.zeros(n), runtime_s=np.full(n, 3600.0), nodes=-(-np.array(cores) // 72),
        cores=cores, meta={"unit": "core", "max_nodes": 24, "max_procs": 1728},
    )  # fmt: skip


def test_idle_power_is_that_of_nodes_not_of_processors() -> None:
    log = kw.simulate(jobs := log_of([72]), machine := Cluster.from_trace(jobs))
    accounts = account_energy(log, machine, TAURUS)
    assert accounts.by_state["idle"] == pytest.approx(23 * IDLE_W / 1000)
    assert accounts.by_state["jobs"] == pytest.approx(FULL_W / 1000)


def test_a_job_draws_the_share_of_its_cores() -> None:
    log = kw.simulate(jobs := log_of([88, 1]), machine := Cluster.from_trace(jobs))
    accounts = account_energy(log, machine, TAURUS)
    assert accounts.by_state["jobs"] == pytest.approx(89 / 72 * FULL_W / 1000)
    assert accounts.by_state["idle"] == pytest.approx((24 - 89 / 72) * IDLE_W / 1000)


def test_the_whole_machine_draws_as_much_on_shared_as_on_exclusive_nodes() -> None:
    jobs = log_of([1728])
    energies = []
    for machine in (Cluster.from_trace(jobs), Cluster.from_nodes(24, cores=72)):
        energies.append(account_energy(kw.simulate(jobs, machine), machine, TAURUS).it_kwh)
    assert energies[0] == pytest.approx(energies[1]) == pytest.approx(24 * FULL_W / 1000)


def test_shares_of_nodes_that_differ() -> None:
    machine = Cluster.from_processors(2004, nodes=151)
    accounts = account_energy(kw.simulate(log_of([2004]), machine), machine, TAURUS)
    assert accounts.by_state["jobs"] == pytest.approx(151 * FULL_W / 1000)
    assert accounts.by_state["idle"] == pytest.approx(0.0, abs=1e-9)


def test_dvfs_saves_the_share_of_a_job() -> None:
    """A job on a quarter of a node saves a quarter of what it saves on the node."""
    saved = []
    for cores in (72, 18):
        jobs = log_of([cores])
        machine = Cluster.from_trace(jobs)
        energies = [
            account_energy(
                kw.simulate(jobs, machine, power_controls=text, power="taurus"), machine, TAURUS, horizon=(0, 7200)
            ).by_state["jobs"]
            for text in ("none", "dvfs=1.3:always")
        ]
        saved.append(energies[0] - energies[1])
    assert saved[0] > 0.001
    assert saved[1] == pytest.approx(saved[0] / 4)


def test_power_per_node_of_unknown_nodes_is_an_error() -> None:
    jobs = log_of([88]).with_unit("processor")
    machine = Cluster.from_processors(1728)
    with pytest.raises(InputError, match="counts 1,728 processors, .* power per node; .* --cores-per-node"):
        account_energy(kw.simulate(jobs, machine), machine, TAURUS)


def test_sleep_on_shared_nodes_is_an_error_with_a_remedy() -> None:
    jobs = log_of([88])
    with pytest.raises(InputError, match="jobs share; .* allocate whole nodes with --exclusive-nodes"):
        kw.simulate(jobs, Cluster.from_trace(jobs), power_controls="sleep=break-even", power="taurus")
    machine = Cluster.from_nodes(24, cores=72)
    log = kw.simulate(jobs, machine, power_controls="sleep=break-even", power="taurus")
    assert int(log.states.asleep.max(initial=0)) <= 22  # of 24 nodes, and two run the job
