"""Energy conservation on random GPU runs with preemption, sharing and migration, checked by a plain integrator."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.energy.accounting import account_energy
from kilowait.energy.power import (
    AffineLoss,
    Component,
    ConstantPue,
    Conversion,
    Facility,
    FixedLoad,
    GroupPower,
    NodePower,
    PowerModel,
)
from kilowait.energy.signals.align import ExternalSignals
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Series
from tests.energy.accounting.gpu_integrator import integrate_by_node
from tests.oracle.gpu_conversion import cluster_of, jobs_of, rule_of, settings_of, speeds_of
from tests.oracle.gpu_workloads import gpu_case

CASES = 150
J = 3.6e6


@dataclass
class Trial:
    """A random run and the power model of its cluster."""

    log: ExecutionLog
    cluster: Cluster
    model: PowerModel
    horizon: tuple[float, float]


def power_of(rng: Random, cluster: Cluster) -> PowerModel:
    """A random power model; some groups have conversion losses, some have switches."""
    groups = []
    for group in cluster.groups:
        idle, max_w = rng.uniform(0, 50), rng.uniform(50, 200)
        parts = [Component("CPU", "cpu", 1, idle, max_w), Component("memory", "memory", 2, 3, rng.choice([3, 8]))]
        if group.gpus:
            parts.append(Component("GPU", "gpu", group.gpus, rng.uniform(5, 40), rng.uniform(100, 400)))
        losses = (AffineLoss("supply", 11.0, 0.93),) if rng.random() < 0.5 else ()
        switch = (FixedLoad("switch", 20.0, 2),) if rng.random() < 0.3 else ()
        groups.append(GroupPower(group.name, group.nodes, NodePower(tuple(parts)), Conversion(losses), fixed=switch))
    return PowerModel("random", tuple(groups), Facility(5.0, ConstantPue(1.2)))


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    trials_made = []
    for seed in range(CASES):
        case = gpu_case(seed)
        rng = Random(f"placed accounts {seed}")
        jobs, cluster = jobs_of(case), cluster_of(case)
        columns = {}
        for name, maximum in (("gpu_utilization", 1.0), ("cpu_utilization", 1.0), ("power_w", 500.0)):
            known = rng.choice([0.0, 0.0, 0.5, 1.0]) if name != "power_w" else rng.choice([0.0, 0.0, 0.3])
            columns[name] = [rng.uniform(0, maximum) if rng.random() < known else np.nan for _ in range(len(jobs))]
        jobs = jobs.with_columns(**columns)
        simulator = GpuSimulator(jobs, cluster, settings_of(case), policy=rule_of(case, jobs), speeds=speeds_of(case))
        simulator.run()
        log = simulator.log()
        if not len(log) or log.end_s.max() <= jobs["submit_s"].min():
            continue
        first, last = float(jobs["submit_s"].min()), float(log.end_s.max())
        shortened = rng.random() < 0.3  # some horizons begin and end within the run
        horizon = (first + shortened * (last - first) / 4, last - shortened * (last - first) / 4)
        trials_made.append(Trial(log, cluster, power_of(rng, cluster), horizon))
    return trials_made


def test_energy_is_conserved(trials):
    occurrences = dict.fromkeys(("preempted", "migrated", "shared", "spanning"), 0)
    for trial in trials:
        carbon = Series.constant(400, "g/kWh")
        accounts = account_energy(
            trial.log, trial.cluster, trial.model, horizon=trial.horizon, signals=ExternalSignals(carbon=carbon)
        )
        per_job = accounts.per_job()
        assert sum(accounts.by_state.values()) == pytest.approx(accounts.it_kwh, rel=1e-9)
        assert per_job["it_j"].sum() / J == pytest.approx(accounts.by_state["jobs"], rel=1e-9)
        assert (per_job["it_j"] >= 0).all() and (per_job["held_idle_j"] >= 0).all()
        if per_job["held_idle_j"].any():
            assert per_job["idle_share_j"].sum() / J == pytest.approx(accounts.by_state["idle"], rel=1e-9)
        assert accounts.hourly().it_kwh.sum() == pytest.approx(accounts.it_kwh, rel=1e-9)
        assert accounts.co2_kg == pytest.approx(accounts.facility_kwh * 0.4, rel=1e-9)
        assert accounts.it_power.value.min() >= 0
        pieces, outcome = trial.log.pieces, trial.log.outcome
        occurrences["preempted"] += bool((outcome == Outcome.PREEMPTED).any())
        occurrences["migrated"] += bool((outcome == Outcome.MIGRATED).any())
        occurrences["shared"] += bool((pieces.gpu_milli % 1000 > 0).any())
        occurrences["spanning"] += bool((np.bincount(pieces.segment) > 1).any())
    assert min(occurrences.values()) >= 10, occurrences


def test_accounts_equal_the_node_by_node_integrator(trials):
    for trial in trials[:60]:
        accounts = account_energy(trial.log, trial.cluster, trial.model, horizon=trial.horizon)
        integrated = integrate_by_node(trial.log, trial.cluster, trial.model, trial.horizon)
        assert accounts.it_kwh * J == pytest.approx(integrated.it_j, rel=1e-9)
        assert accounts.peak_it_w == pytest.approx(integrated.peak_w, rel=1e-9)
        jobs = range(len(trial.log.jobs_table))
        np.testing.assert_allclose(
            accounts.per_job()["it_j"], [integrated.jobs_j[job] for job in jobs], rtol=1e-9, atol=1e-6
        )
        np.testing.assert_allclose(
            accounts.per_job()["held_idle_j"], [integrated.held_idle_j[job] for job in jobs], rtol=1e-9, atol=1e-6
        )


def test_power_never_exceeds_full_load(trials):
    checked = 0
    for trial in trials:
        if not np.isnan(trial.log.jobs_table.column("power_w")).all():
            continue
        accounts = account_energy(trial.log, trial.cluster, trial.model, horizon=trial.horizon)
        assert trial.model.idle_it_w() * (1 - 1e-12) <= accounts.it_power.value.min()
        assert accounts.peak_it_w <= trial.model.full_it_w() * (1 + 1e-12)
        checked += 1
    assert checked >= 30


def test_caps_never_raise_the_power(trials):
    lower = 0
    for number, trial in enumerate(trials):
        rng = np.random.default_rng(number)
        caps, lower_caps = np.sort(rng.uniform(0.45, 1, (2, len(trial.log.jobs_table))), axis=0)[::-1]
        powers = [
            account_energy(trial.log, trial.cluster, trial.model, horizon=trial.horizon, gpu_cap=cap).it_power.value
            for cap in (None, np.ones(len(caps)), caps, lower_caps)
        ]
        assert (powers[0] == powers[1]).all()
        for above, below in ((powers[0], powers[2]), (powers[2], powers[3])):
            assert (below <= above * (1 + 1e-12)).all()
        lower += bool((powers[3] < powers[0]).any())
    assert lower >= 30
