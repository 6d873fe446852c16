"""Energy accounting: cases computed by hand, and monotonicity."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kilowait
from kilowait.cluster import Cluster, NodeGroup, Outage, PowerControls, Reservation, SleepPolicy
from kilowait.energy.accounting import ENERGY_STATES, account_energy
from kilowait.energy.power import ConstantPue, DvfsTable, LinearCop
from kilowait.energy.signals import Weather
from kilowait.energy.signals.align import ExternalSignals
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.series import Series
from tests.energy.accounting.integrator import execution_log, small_model, table

HOUR = 3600.0
TWO = table(nodes=[1, 1], power_w=[60, 90], submit_s=[0, HOUR], user=[7, -1])
"""On two nodes: the first job runs in hours 0 to 1, the second in hours 1 to 3."""
LOG = execution_log(TWO, [(0, 0, HOUR), (1, HOUR, 3 * HOUR)])
NODES = Cluster.from_nodes(2)


def weather(edge_s: list[float], celsius: list[float]) -> Weather:
    return Weather(Series(edge_s, celsius, "°C"), Series([edge_s[0], edge_s[-1]], [50], "%"))


def test_two_jobs_on_two_nodes() -> None:
    accounts = account_energy(LOG, NODES, small_model(fixed_w=10.0, switch_w=5.0))
    # Hour 0: 60 + 10 + 5 W; hours 1 and 2: 90 + 10 + 5 W; the facility 1.5 times as much plus 10 W.
    assert accounts.by_state == pytest.approx(
        {"jobs": 0.24, "idle": 0.03, "shutting_down": 0, "asleep": 0, "waking": 0, "fixed": 0.015}
    )
    assert tuple(accounts.by_state) == ENERGY_STATES
    assert accounts.it_kwh == pytest.approx(0.285)
    assert accounts.facility_kwh == pytest.approx(0.285 * 1.5 + 0.03)
    assert accounts.pue == pytest.approx((0.285 * 1.5 + 0.03) / 0.285)
    assert (accounts.peak_it_w, accounts.peak_it_s) == (105.0, HOUR)
    assert (accounts.peak_facility_w, accounts.peak_facility_s) == (167.5, HOUR)
    assert accounts.mean_it_w == pytest.approx(95.0)
    assert accounts.energy_delay_j_s == pytest.approx(0.285 * 3.6e6 * 1.5 * HOUR)
    assert (accounts.co2_kg, accounts.cost, accounts.currency) == (None, None, "")
    assert accounts.by_group["nodes"] == pytest.approx(accounts.by_state)


def test_energy_per_job() -> None:
    accounts = account_energy(LOG, NODES, small_model(fixed_w=10.0, switch_w=5.0))
    per_job = accounts.per_job()
    assert per_job.columns == ("job_id", "it_j", "facility_j", "idle_share_j")
    assert per_job["it_j"] == pytest.approx([60 * HOUR, 180 * HOUR])
    # Facility power is split in proportion to IT power, hour by hour.
    assert per_job["facility_j"] == pytest.approx([60 / 75 * 122.5 * HOUR, 90 / 105 * 167.5 * 2 * HOUR])
    assert per_job["idle_share_j"] == pytest.approx([10 * HOUR, 20 * HOUR])
    user, other = sorted(accounts.by_user(), key=lambda row: row.it_kwh)
    assert (user.label, user.jobs, other.label, other.jobs) == ("7", 1, "-", 1)
    assert (user.it_kwh, user.idle_share_kwh) == pytest.approx((0.06, 0.01))
    assert (user.co2_kg, user.cost) == (None, None)
    with pytest.raises(UnknownNameError, match="did you mean 'user'"):
        accounts.by("users")


def test_carbon_and_price_change_during_a_job() -> None:
    carbon = Series([0, 2 * HOUR, 9 * HOUR], [400, 100], "g/kWh")
    price = Series([-HOUR, 1.5 * HOUR, 9 * HOUR], [200, -100], "EUR/MWh")
    accounts = account_energy(LOG, NODES, small_model(), signals=ExternalSignals(carbon=carbon, price=price))
    # IT: 70, 100, 100 W; facility: 105, 150, 150 W.
    assert accounts.co2_kg == pytest.approx((105 * 0.4 + 150 * 0.4 + 150 * 0.1) / 1e3)
    assert accounts.cost == pytest.approx((105 * 200 + 75 * 200 - 225 * 100) / 1e6)
    assert accounts.currency == "EUR"
    per_job = accounts.per_job()
    assert per_job["co2_g"] == pytest.approx([60 * 1.5 * 0.4, 90 * 1.5 * 0.5])
    assert per_job["cost"] == pytest.approx([90 * 200 / 1e6, 135 * (0.5 * 200 - 1.5 * 100) / 1e6])
    rows = {row.label: row for row in accounts.by_user()}
    assert (rows["7"].co2_kg, rows["7"].cost) == pytest.approx((0.036, 0.018))
    hours = accounts.hourly()
    assert hours.edge_s.tolist() == [0, HOUR, 2 * HOUR, 3 * HOUR]
    assert hours.it_kwh == pytest.approx([0.07, 0.1, 0.1])
    assert hours.facility_kwh == pytest.approx([0.105, 0.15, 0.15])
    assert hours.co2_kg == pytest.approx([0.042, 0.06, 0.015])
    assert hours.cost == pytest.approx([0.021, 0.0075, -0.015])
    assert accounts.metrics() == pytest.approx(
        {
            "energy_kwh": 0.27,
            "facility_kwh": 0.405,
            "jobs_kwh": 0.24,
            "idle_kwh": 0.03,
            "sleep_kwh": 0,
            "transition_kwh": 0,
            "fixed_kwh": 0,
            "mean_kw": 0.09,
            "peak_kw": 0.1,
            "peak_facility_kw": 0.15,
            "pue": 1.5,
            "edp_j_s": 0.27 * 3.6e6 * 1.5 * HOUR,
            "co2_kg": 0.117,
            "cost": 0.0135,
        }
    )


def test_weather_changes_during_a_job() -> None:
    weather_series = weather([0, 2.5 * HOUR, 3 * HOUR], [25, 45])  # COP 5, then 3
    accounts = account_energy(LOG, NODES, small_model(LinearCop()), signals=ExternalSignals(weather=weather_series))
    assert accounts.facility_kwh == pytest.approx(0.07 * 1.2 + 0.15 * 1.2 + 0.05 * 4 / 3)
    assert accounts.per_job()["facility_j"] == pytest.approx([72 * HOUR, 90 * HOUR * (1.5 * 1.2 + 0.5 * 4 / 3)])
    assert accounts.peak_facility_s == 2.5 * HOUR


def test_sleeping_nodes() -> None:
    # One of two nodes: idle until 100, shutting down until 110, asleep until 200, waking until 230, then idle.
    jobs = table(nodes=[1], power_w=[50], runtime_s=[300])
    states = [(100, 0, 1, 0, 0), (110, 0, 0, 1, 0), (200, 0, 0, 0, 1), (230, 0, 0, 0, 0)]
    log = execution_log(jobs, [(0, 0, 300)], states=states)
    accounts = account_energy(log, NODES, small_model())
    joules = {state: kwh * 3.6e6 for state, kwh in accounts.by_state.items()}
    expected = {"jobs": 50 * 300, "idle": 10 * 170, "shutting_down": 5 * 10, "asleep": 90, "waking": 20 * 30}
    assert joules == pytest.approx({**expected, "fixed": 0})
    assert accounts.per_job()["idle_share_j"] == pytest.approx([1700 + 50 + 90 + 600])
    assert accounts.metrics()["transition_kwh"] == pytest.approx(650 / 3.6e6)
    with pytest.raises(InputError, match="slept in this run, but the power model has no sleep states"):
        account_energy(log, NODES, small_model(sleep=None))


def test_outages_draw_nothing() -> None:
    outages = (Outage("nodes", 1, 100, 200), Outage("nodes", 2, 250, math.inf))
    jobs = table(nodes=[1], power_w=[50], runtime_s=[300])
    accounts = account_energy(execution_log(jobs, [(0, 0, 300)]), NODES.with_outages(*outages), small_model())
    assert accounts.by_state["jobs"] * 3.6e6 == pytest.approx(50 * 300)
    assert accounts.by_state["idle"] * 3.6e6 == pytest.approx(10 * (100 + 50))


def test_reserved_nodes_belong_to_their_group() -> None:
    jobs = table(nodes=[2, 3], power_w=[50, 70], runtime_s=[100, 100])
    reservations = (Reservation("course", "g", 3, 50, 250),)
    machine = Cluster((NodeGroup("g", 4), NodeGroup("h", 2)), reservations=reservations)
    # From 50 to 100 five of four nodes are in use: none is idle, none is counted twice.
    log = execution_log(jobs, [(0, 0, 100), (1, 50, 150)], groups=("g", "h", "course"), group=[0, 2])
    accounts = account_energy(log, machine, small_model())
    assert accounts.by_group["g"]["idle"] * 3.6e6 == pytest.approx(10 * (2 * 50 + 0 * 50 + 1 * 50))
    assert accounts.by_group["g"]["jobs"] * 3.6e6 == pytest.approx(50 * 100 + 70 * 100)
    # Nothing ran on h: its idle energy is split among all jobs.
    share = accounts.per_job()["idle_share_j"]
    assert share == pytest.approx([(1500 + 3000) * 200 / 500, (1500 + 3000) * 300 / 500])


def test_sleeping_reserved_nodes_belong_to_their_group() -> None:
    jobs = table(nodes=[1], power_w=[50], runtime_s=[100])
    machine = Cluster((NodeGroup("g", 4),), reservations=(Reservation("course", "g", 2, 0, 100),))
    states = [(0, 0, 0, 1, 0), (50, 1, 0, 1, 0)]
    accounts = account_energy(
        execution_log(jobs, [(0, 0, 100)], groups=("g", "course"), states=states), machine, small_model()
    )
    assert accounts.by_state["asleep"] * 3.6e6 == pytest.approx(100 + 50)
    assert accounts.by_state["idle"] * 3.6e6 == pytest.approx(10 * (2 * 50 + 1 * 50))


def test_interrupted_job_with_dvfs_states() -> None:
    jobs = table(nodes=[2])
    levels = DvfsTable(("full", "slow"), np.array([[1, 1.5]]), np.array([[200.0, 120.0]]))
    log = execution_log(jobs, [(0, 0, 10), (0, 20, 40)], level=[0, 1])
    accounts = account_energy(log, NODES, small_model(), tables={"nodes": levels})
    assert accounts.per_job()["it_j"].tolist() == [200 * 10 + 120 * 20]
    assert accounts.by_state["idle"] * 3.6e6 == pytest.approx(10 * 2 * 10)
    assert "in each job's DVFS state" in accounts.notes[0]


def test_only_the_horizon_counts() -> None:
    accounts = account_energy(LOG, NODES, small_model(), horizon=(0.5 * HOUR, 1.25 * HOUR))
    assert accounts.per_job()["it_j"] == pytest.approx([30 * HOUR, 22.5 * HOUR])
    assert accounts.it_kwh == pytest.approx(0.06)
    later = account_energy(LOG, NODES, small_model(), horizon=(5 * HOUR, 6 * HOUR))
    assert later.per_job()["it_j"].tolist() == later.per_job()["idle_share_j"].tolist() == [0, 0]
    assert later.it_kwh == pytest.approx(0.02)


def test_power_in_bins() -> None:
    accounts = account_energy(
        LOG, NODES, small_model(), signals=ExternalSignals(carbon=Series([0, 2 * HOUR, 3 * HOUR], [400, 100], "g/kWh"))
    )
    bins = accounts.power(2)
    assert bins.edge_s.tolist() == [0, 1.5 * HOUR, 3 * HOUR]
    assert bins.it_w == pytest.approx([80, 100])
    assert bins.facility_w == pytest.approx([120, 150])
    assert bins.carbon_g_per_kwh == pytest.approx([400, 200])
    assert bins.price_per_mwh is None
    with pytest.raises(InputError, match="bins is 0; it must be at least 1"):
        accounts.power(0)


def test_facility_energy_without_it_energy() -> None:
    jobs = table(nodes=[2], power_w=[0])
    model = small_model(fixed_w=100.0)
    accounts = account_energy(execution_log(jobs, [(0, 0, HOUR)]), NODES, model)
    assert (accounts.it_kwh, accounts.facility_kwh) == (0, pytest.approx(0.1))
    assert math.isnan(accounts.pue)
    assert accounts.per_job()["facility_j"].tolist() == [0]


def test_run_without_jobs_needs_a_horizon() -> None:
    log = execution_log(table(nodes=[1]), [])
    with pytest.raises(InputError, match="no job ran, so the run has no duration; give horizon"):
        account_energy(log, NODES, small_model())
    idle = account_energy(log, NODES, small_model(), horizon=(0, HOUR))
    assert idle.it_kwh == pytest.approx(0.02)
    assert math.isnan(idle.energy_delay_j_s)
    assert idle.per_job()["idle_share_j"].tolist() == [0]
    for wrong in ((3.0, 3.0), (0.0, math.inf), (math.nan, 4.0)):
        with pytest.raises(InputError, match="the horizon goes from"):
            account_energy(log, NODES, small_model(), horizon=wrong)


def test_notes_name_the_sources_of_power() -> None:
    jobs = table(nodes=[1, 1, 1], power_w=[60, np.nan, np.nan], cpu_utilization=[np.nan, 0.5, np.nan])
    log = execution_log(jobs, [(0, 0, HOUR), (1, HOUR, 2 * HOUR), (2, 2 * HOUR, 3 * HOUR)])
    accounts = account_energy(log, NODES, small_model())
    assert accounts.per_job()["it_j"] == pytest.approx([60 * HOUR, 55 * HOUR, 100 * HOUR])
    assert accounts.notes[0] == (
        "power of 1 of 3 jobs measured, of 1 from their utilization, of 1 from full load, which is an assumption"
    )
    assert accounts.notes[1] == "power model 'toy': 2 of 2 parts are estimates"


# -- monotonicity ------------------------------------------------------------------------------------


def random_jobs(seed: int, count: int = 60) -> JobTable:
    rng = np.random.default_rng(seed)
    return JobTable(
        job_id=np.arange(count),
        submit_s=np.sort(rng.integers(0, 4000, count)),
        runtime_s=rng.integers(1, 300, count),
        nodes=rng.integers(1, 5, count),
    )


@pytest.mark.parametrize("seed", range(5))
def test_more_sleep_never_raises_idle_energy(seed: int) -> None:
    """Instant sleep transitions do not change the schedule; longer sleep reduces idle energy."""
    jobs, nodes = random_jobs(seed), Cluster.from_nodes(8)
    awake = kilowait.simulate(jobs, nodes, backfill="easy")
    accounts = [account_energy(awake, nodes, small_model())]
    for timeout in (1000, 300, 60, 5, 0):
        log = kilowait.simulate(
            jobs, nodes, backfill="easy", power_controls=PowerControls({"nodes": SleepPolicy(timeout)})
        )
        assert (log.end_s == awake.end_s).all()
        accounts.append(account_energy(log, nodes, small_model()))
    idle = [result.by_state["idle"] for result in accounts]
    assert idle == sorted(idle, reverse=True) and idle[-1] == 0
    it_kwh = [result.it_kwh for result in accounts]
    assert it_kwh == sorted(it_kwh, reverse=True)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8))
def test_more_sleeping_nodes_never_use_more_energy(steps: list[tuple[int, int, int]]) -> None:
    times = np.cumsum([length for length, _, _ in steps])
    jobs = table(nodes=[2], power_w=[50], runtime_s=[50])

    def energy_with(more: int) -> tuple[float, float]:
        states = [
            (float(t), 0, 0, asleep + more * extra, 0) for t, (_, asleep, extra) in zip(times, steps, strict=True)
        ]
        accounts = account_energy(
            execution_log(jobs, [(0, 0, 50)], states=states), Cluster.from_nodes(6), small_model(), horizon=(0, 900)
        )
        assert sum(accounts.by_state.values()) == pytest.approx(accounts.it_kwh, rel=1e-9)
        return accounts.by_state["idle"], accounts.it_kwh

    (idle, whole_kwh), (less_idle, less_kwh) = energy_with(0), energy_with(1)
    assert less_idle <= idle and less_kwh <= whole_kwh * (1 + 1e-12)


def test_lower_intensity_and_temperature_reduce_emissions() -> None:
    jobs, nodes = random_jobs(9), Cluster.from_nodes(8)
    log = kilowait.simulate(jobs, nodes, backfill="easy")
    edge = np.append(np.arange(0.0, log.end_s.max(), 700.0), log.end_s.max() + 1)
    intensity = np.random.default_rng(3).uniform(0, 800, len(edge) - 1)
    dirty = Series(edge, intensity, "g/kWh")
    clean = Series(edge, intensity * np.random.default_rng(4).uniform(0, 1, len(intensity)), "g/kWh")
    hot, cool = (weather([-1.0, 9e4], [celsius]) for celsius in (35.0, 20.0))
    first = account_energy(log, nodes, small_model(LinearCop()), signals=ExternalSignals(carbon=dirty, weather=hot))
    second = account_energy(log, nodes, small_model(LinearCop()), signals=ExternalSignals(carbon=clean, weather=hot))
    third = account_energy(log, nodes, small_model(LinearCop()), signals=ExternalSignals(carbon=dirty, weather=cool))
    assert first.co2_kg is not None and second.co2_kg is not None and third.co2_kg is not None
    assert second.co2_kg < first.co2_kg and third.co2_kg < first.co2_kg
    assert (second.per_job()["co2_g"] <= first.per_job()["co2_g"]).all()
    assert third.it_kwh == first.it_kwh < third.facility_kwh < first.facility_kwh


def test_short_jobs_late_in_a_long_log_are_accurate() -> None:
    """A second at the end of ten years, while the PUE and the intensity change from hour to hour."""
    ten_years = 10 * 365 * 86400.0
    jobs = table(nodes=[1, 1], power_w=[50, 70], runtime_s=[ten_years, 1])
    log = execution_log(jobs, [(0, 0, ten_years + 1), (1, ten_years, ten_years + 1)])
    edge = np.append(np.arange(0, ten_years, HOUR), ten_years + 1)
    carbon = Series(edge, np.random.default_rng(0).uniform(100, 700, len(edge) - 1), "g/kWh")
    per_job = account_energy(
        log, NODES, small_model(ConstantPue(1.3), fixed_w=25.0), signals=ExternalSignals(carbon=carbon)
    ).per_job()
    facility = 70 / 120 * (120 * 1.3 + 25)
    assert per_job["facility_j"][1] == pytest.approx(facility, rel=1e-9)
    assert per_job["co2_g"][1] == pytest.approx(facility * carbon.value[-1] / 3.6e6, rel=1e-8)


def test_log_of_another_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="the log ran on nodes, but the cluster 'polaris' has polaris"):
        account_energy(LOG, Cluster.preset("polaris"), small_model())
    renamed = replace(LOG, groups=("g",))
    assert account_energy(renamed, Cluster((NodeGroup("g", 2),)), small_model()).it_kwh == pytest.approx(0.27)
