"""Laws on random workloads with levers: nothing is lost, and a slow integrator finds the same."""

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
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Series
from tests.energy.accounting.integrator import second_by_second, toy
from tests.oracle.conversion import (
    DEPTHS,
    cluster,
    job_table,
    power_controls_of,
)
from tests.oracle.energy import NodeWatts, joules
from tests.oracle.power_workloads import power_case
from tests.oracle.workloads import Case, run_reference

CASES = 60
LEVELS = 4
LONGEST_S = 400


def simulated(case: Case) -> tuple[ExecutionLog, Cluster]:
    """The engine's log of a case, and its machine."""
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
    """A random run and what surrounds it; `found` are its accounts."""

    case: Case
    log: ExecutionLog
    machine: Cluster
    model: PowerModel
    tables: dict[str, DvfsTable]
    horizon: tuple[int, int]
    carbon: Series
    price: Series
    weather: Weather
    found: EnergyAccounts


def steps(rng: Random, horizon: tuple[int, int], low: float, high: float, unit: str) -> Series:
    """A series that covers the horizon and changes at whole seconds within it."""
    edge = sorted({horizon[0] - 1, *(rng.randint(*horizon) for _ in range(8)), horizon[1] + 1})
    return Series(edge, [rng.uniform(low, high) for _ in edge[1:]], unit)


def trials(whole: bool, count: int) -> list[Trial]:
    """Random runs in which some job ran; `whole`: everything happens at whole seconds, on whole nodes."""
    made = []
    for seed in range(count):
        rng = Random(f"accounts {seed}")
        case = power_case(seed, whole=whole)
        log, machine = simulated(case)
        if not len(log):
            continue
        first = int(log.jobs_table["submit_s"].min()) - rng.randint(-3, 9)  # some begin after the run does
        horizon = (first, min(int(log.end_s.max()) + rng.randint(1, 9), first + LONGEST_S))
        if horizon[0] >= horizon[1]:
            continue
        model = toy(
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
        found = account_energy(
            log,
            machine,
            model,
            tables=tables,
            horizon=horizon,
            carbon=carbon,
            price=price,
            weather=weather,
        )
        made.append(Trial(case, log, machine, model, tables, horizon, carbon, price, weather, found))
    return made


@pytest.fixture(scope="module")
def whole() -> list[Trial]:
    return trials(True, 2 * CASES)


@pytest.mark.parametrize("kind", ["whole", "any"])
def test_joules_of_states_are_the_integral_of_it_power(kind: str, whole: list[Trial]) -> None:
    seen: dict[str, int] = {}

    def count(what: str, happened: bool) -> None:
        seen[what] = seen.get(what, 0) + bool(happened)

    for trial in whole if kind == "whole" else trials(False, 2 * CASES):
        found, log = trial.found, trial.log
        assert sum(found.by_state.values()) == pytest.approx(found.it_kwh, rel=1e-9, abs=1e-12)
        spent = found.per_job()
        assert float(spent["it_j"].sum()) / 3.6e6 == pytest.approx(found.by_state["jobs"], rel=1e-9)
        waiting = sum(found.by_state[name] for name in ("idle", "shutting_down", "asleep", "waking"))
        if (found.grid.ran_s > 0).any():
            assert float(spent["idle_share_j"].sum()) / 3.6e6 == pytest.approx(waiting, rel=1e-9)
        assert (found.facility_power.value >= found.it_power.value).all()
        hours = found.hourly()
        assert hours.it_kwh.sum() == pytest.approx(found.it_kwh, rel=1e-9)
        assert hours.facility_kwh.sum() == pytest.approx(found.facility_kwh, rel=1e-9)
        assert hours.co2_kg is not None and hours.cost is not None
        assert hours.co2_kg.sum() == pytest.approx(found.co2_kg, rel=1e-9)
        assert hours.cost.sum() == pytest.approx(found.cost, rel=1e-9, abs=1e-12)
        for name in ("shutting_down", "asleep", "waking"):
            count(name, found.by_state[name] > 0)
        count("levels", bool((log.level > 0).any()))
        count("outages", bool(trial.case.outages))
        count("reservations", bool((log.group >= len(trial.case.groups)).any()))
        count("kills", bool((log.outcome == Outcome.KILLED).any()))
    assert min(seen.values()) >= 3, seen  # the law was tried on all of them


def test_a_second_by_second_integrator_agrees(whole: list[Trial]) -> None:
    for trial in whole[:CASES]:
        found = trial.found
        slow = second_by_second(
            trial.log,
            trial.machine,
            trial.model,
            trial.tables,
            trial.horizon,
            trial.carbon,
            trial.price,
            trial.weather,
        )
        assert {k: v * 3.6e6 for k, v in found.by_state.items()} == pytest.approx(
            slow.joules, rel=1e-9, abs=1e-9
        )
        assert found.it_kwh * 3.6e6 == pytest.approx(slow.it_w.sum(), rel=1e-9, abs=1e-9)
        assert found.facility_kwh * 3.6e6 == pytest.approx(slow.facility_w.sum(), rel=1e-9, abs=1e-9)
        assert found.co2_kg == pytest.approx(slow.co2_g / 1e3, rel=1e-9, abs=1e-9)
        assert found.cost == pytest.approx(slow.cost, rel=1e-9, abs=1e-9)
        assert found.peak_it_w == pytest.approx(slow.it_w.max(), rel=1e-9, abs=1e-9)
        assert found.peak_facility_w == pytest.approx(slow.facility_w.max(), rel=1e-9, abs=1e-9)
        assert found.it_power.at(range(*trial.horizon)) == pytest.approx(slow.it_w, rel=1e-9, abs=1e-9)
        spent = found.per_job()
        np.testing.assert_allclose(spent["it_j"], slow.job_it_j, rtol=1e-9)
        np.testing.assert_allclose(spent["facility_j"], slow.job_facility_j, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(spent["co2_g"], slow.job_co2_g, rtol=1e-9, atol=1e-9)


def test_the_twin_added_up_second_by_second_agrees(whole: list[Trial]) -> None:
    """A simulator and an integrator that share nothing with these."""
    rates = NodeWatts(idle=10, shutting_down=5, asleep=1, waking=20)
    compared = 0
    for trial in whole:
        busy = tuple(
            tuple(tuple(int(watts) for watts in row) for row in trial.tables[group.name].power_w)
            for group in trial.machine.groups
        )
        groups = [rates] * len(trial.machine.groups)
        twin = joules(trial.case, run_reference(trial.case), busy, groups, *trial.horizon)
        mine = {name: joule * 3.6e6 for name, joule in trial.found.by_state.items() if name != "fixed"}
        names = ("jobs", "idle", "shutting_down", "asleep", "waking")
        assert mine == pytest.approx(dict(zip(names, twin[:5], strict=True)), rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(trial.found.per_job()["it_j"], twin.per_job, rtol=1e-9)
        compared += 1
    assert compared >= CASES
