"""Energy conservation on random workloads with power controls, checked against a reference integrator."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

import kilowait
from kilowait.cluster import Cluster
from kilowait.energy.accounting import EnergyAccounts, account_energy
from kilowait.energy.power import Chiller, DvfsTable, Economiser, EfficiencyCurve, LinearCop, PowerModel
from kilowait.energy.signals import Weather
from kilowait.energy.signals.align import ExternalSignals
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Series
from tests.energy.accounting.integrator import integrate_by_second, small_model
from tests.oracle.conversion import DEPTHS, cluster, job_table, power_controls_of
from tests.oracle.energy import NodeWatts, joules
from tests.oracle.power_workloads import power_case
from tests.oracle.workloads import Case, run_reference

CASES = 60
LEVELS = 4
LONGEST_S = 400


def simulated(case: Case) -> tuple[ExecutionLog, Cluster]:
    """The execution log of a case, and its cluster."""
    assert case.power_controls is not None
    settings: dict[str, Any] = {"backfill": DEPTHS.get(case.depth, case.depth)}
    machine = cluster(case)
    log = kilowait.simulate(
        job_table(case.jobs),
        machine,
        policy=case.policy,
        backfill_order=case.backfill_order,
        at_limit=case.at_limit,
        schedule_per=case.schedule_per,
        placement=case.placement,
        overrun=case.overrun,
        on_oversized="drop",
        power_controls=power_controls_of(case.power_controls),
        **settings,
    )
    return log, machine


@dataclass
class Trial:
    """A random run with its power model, signals and energy accounts."""

    case: Case
    log: ExecutionLog
    machine: Cluster
    model: PowerModel
    tables: dict[str, DvfsTable]
    horizon: tuple[int, int]
    carbon: Series
    price: Series
    weather: Weather
    accounts: EnergyAccounts


def steps(rng: Random, horizon: tuple[int, int], low: float, high: float, unit: str) -> Series:
    """A series that covers the horizon and changes at whole seconds within it."""
    edge = sorted({horizon[0] - 1, *(rng.randint(*horizon) for _ in range(8)), horizon[1] + 1})
    return Series(edge, [rng.uniform(low, high) for _ in edge[1:]], unit)


def trials(whole: bool, count: int) -> list[Trial]:
    """Random runs in which at least one job ran; with `whole`, all events lie at whole seconds on whole nodes."""
    trials_made = []
    for seed in range(count):
        rng = Random(f"accounts {seed}")
        case = power_case(seed, whole=whole)
        log, machine = simulated(case)
        if not len(log):
            continue
        first = int(log.jobs_table["submit_s"].min()) - rng.randint(-3, 9)  # some horizons begin after the run
        horizon = (first, min(int(log.end_s.max()) + rng.randint(1, 9), first + LONGEST_S))
        if horizon[0] >= horizon[1]:
            continue
        model = small_model(
            rng.choice([LinearCop(), Chiller(2000.0), Economiser(Chiller(2000.0))]),
            fixed_w=rng.choice([0.0, 70.0]),
            switch_w=rng.choice([0.0, 30.0]),
            supply=rng.choice([None, EfficiencyCurve((0.1, 1.0), (0.8, 0.95), 1000.0)]),
        )
        names, jobs = tuple("abcd"), len(log.jobs_table)
        tables = {
            group.name: DvfsTable(
                names,
                np.ones((jobs, LEVELS)),
                np.array([[rng.randint(0, 300) for _ in names] for _ in range(jobs)], np.float64),
            )
            for group in machine.groups
        }
        carbon = steps(rng, horizon, 0, 800, "g/kWh")
        price = steps(rng, horizon, -50, 300, "EUR/MWh")
        weather = Weather(steps(rng, horizon, -5, 38, "°C"), steps(rng, horizon, 10, 100, "%"))
        accounts = account_energy(
            log,
            machine,
            model,
            tables=tables,
            horizon=horizon,
            signals=ExternalSignals(carbon=carbon, price=price, weather=weather),
        )
        trials_made.append(Trial(case, log, machine, model, tables, horizon, carbon, price, weather, accounts))
    return trials_made


@pytest.fixture(scope="module")
def whole() -> list[Trial]:
    return trials(True, 2 * CASES)


@pytest.mark.parametrize("kind", ["whole", "any"])
def test_energy_by_state_equals_the_integral_of_it_power(kind: str, whole: list[Trial]) -> None:
    occurrences: dict[str, int] = {}

    def count(what: str, happened: bool) -> None:
        occurrences[what] = occurrences.get(what, 0) + bool(happened)

    for trial in whole if kind == "whole" else trials(False, 2 * CASES):
        accounts, log = trial.accounts, trial.log
        assert sum(accounts.by_state.values()) == pytest.approx(accounts.it_kwh, rel=1e-9, abs=1e-12)
        per_job = accounts.per_job()
        assert float(per_job["it_j"].sum()) / 3.6e6 == pytest.approx(accounts.by_state["jobs"], rel=1e-9)
        idle_kwh = sum(accounts.by_state[name] for name in ("idle", "shutting_down", "asleep", "waking"))
        if (accounts.grid.ran_s > 0).any():
            assert float(per_job["idle_share_j"].sum()) / 3.6e6 == pytest.approx(idle_kwh, rel=1e-9)
        assert (accounts.facility_power.value >= accounts.it_power.value).all()
        hours = accounts.hourly()
        assert hours.it_kwh.sum() == pytest.approx(accounts.it_kwh, rel=1e-9)
        assert hours.facility_kwh.sum() == pytest.approx(accounts.facility_kwh, rel=1e-9)
        assert hours.co2_kg is not None and hours.cost is not None
        assert hours.co2_kg.sum() == pytest.approx(accounts.co2_kg, rel=1e-9)
        assert hours.cost.sum() == pytest.approx(accounts.cost, rel=1e-9, abs=1e-12)
        for name in ("shutting_down", "asleep", "waking"):
            count(name, accounts.by_state[name] > 0)
        count("levels", bool((log.level > 0).any()))
        count("outages", bool(trial.case.outages))
        count("reservations", bool((log.group >= len(trial.case.groups)).any()))
        count("kills", bool((log.outcome == Outcome.KILLED).any()))
    assert min(occurrences.values()) >= 3, occurrences  # each case occurred


def test_accounts_equal_the_reference_integrator(whole: list[Trial]) -> None:
    for trial in whole[:CASES]:
        accounts = trial.accounts
        integrated = integrate_by_second(
            trial.log, trial.machine, trial.model, trial.tables, trial.horizon, trial.carbon, trial.price, trial.weather
        )
        assert {k: v * 3.6e6 for k, v in accounts.by_state.items()} == pytest.approx(
            integrated.joules, rel=1e-9, abs=1e-9
        )
        assert accounts.it_kwh * 3.6e6 == pytest.approx(integrated.it_w.sum(), rel=1e-9, abs=1e-9)
        assert accounts.facility_kwh * 3.6e6 == pytest.approx(integrated.facility_w.sum(), rel=1e-9, abs=1e-9)
        assert accounts.co2_kg == pytest.approx(integrated.co2_g / 1e3, rel=1e-9, abs=1e-9)
        assert accounts.cost == pytest.approx(integrated.cost, rel=1e-9, abs=1e-9)
        assert accounts.peak_it_w == pytest.approx(integrated.it_w.max(), rel=1e-9, abs=1e-9)
        assert accounts.peak_facility_w == pytest.approx(integrated.facility_w.max(), rel=1e-9, abs=1e-9)
        assert accounts.it_power.at(range(*trial.horizon)) == pytest.approx(integrated.it_w, rel=1e-9, abs=1e-9)
        per_job = accounts.per_job()
        np.testing.assert_allclose(per_job["it_j"], integrated.job_it_j, rtol=1e-9)
        np.testing.assert_allclose(per_job["facility_j"], integrated.job_facility_j, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(per_job["co2_g"], integrated.job_co2_g, rtol=1e-9, atol=1e-9)


def test_accounts_equal_the_reference_simulator(whole: list[Trial]) -> None:
    """The reference simulator and its integrator share no code with the engine."""
    rates = NodeWatts(idle=10, shutting_down=5, asleep=1, waking=20)
    compared = 0
    for trial in whole:
        busy = tuple(
            tuple(tuple(int(watts) for watts in row) for row in trial.tables[group.name].power_w)
            for group in trial.machine.groups
        )
        groups = [rates] * len(trial.machine.groups)
        reference = joules(trial.case, run_reference(trial.case), busy, groups, *trial.horizon)
        accounted = {name: joule * 3.6e6 for name, joule in trial.accounts.by_state.items() if name != "fixed"}
        names = ("jobs", "idle", "shutting_down", "asleep", "waking")
        assert accounted == pytest.approx(dict(zip(names, reference[:5], strict=True)), rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(trial.accounts.per_job()["it_j"], reference.per_job, rtol=1e-9)
        compared += 1
    assert compared >= CASES
