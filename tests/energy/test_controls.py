"""Power controls given as text: their effects and their error messages."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.energy.accounting import account_energy
from kilowait.energy.controls import dvfs_tables, forecast_awake_nodes, parse_controls, resolve_controls
from kilowait.energy.power import PowerModel
from kilowait.energy.signals.forecast import persistence
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.series import Series

HOUR = 3600.0
NODES = Cluster.from_nodes(4)
TAURUS = PowerModel.preset("taurus")


def table(submit, runtime, nodes, **columns) -> JobTable:
    return JobTable(job_id=range(len(submit)), submit_s=submit, runtime_s=runtime, nodes=nodes, **columns)


def run_with(text: str, jobs: JobTable, cluster=NODES, model=TAURUS, **options):
    """The log and the energy accounts of a run with the power controls of a text."""
    resolved = resolve_controls(text, jobs, cluster, model, **options)
    log = kw.simulate(resolved.jobs, cluster, power_controls=resolved.controls, backfill="none")
    return log, account_energy(log, cluster, model, tables=resolved.tables)


TWO_JOBS = table([0, 10 * HOUR], [HOUR, HOUR], [4, 4])


def test_none_applies_no_control():
    for text in ("none", " none ", "sleep=never"):
        resolved = resolve_controls(text, TWO_JOBS, NODES, TAURUS)
        assert resolved.controls is None and resolved.tables is None and resolved.jobs is TWO_JOBS
    assert resolve_controls("none", TWO_JOBS, NODES, TAURUS).description == "no power controls"


@pytest.mark.parametrize(
    ("text", "timeout_s", "reserve", "wake_ahead"),
    [
        ("sleep=timeout:90", 90, 0, False),
        ("sleep=timeout:10m:reserve=3", 600, 3, False),
        ("sleep=timeout:0:reserve=99", 0, 4, False),
        ("sleep=break-even", TAURUS.group().sleep.break_even_s(95.0), 0, False),
        ("sleep=predictive", TAURUS.group().sleep.break_even_s(95.0), 0, True),
        ("sleep=predictive:5m", 300, 0, True),
    ],
)
def test_sleep_settings(text, timeout_s, reserve, wake_ahead):
    (policy,) = resolve_controls(text, TWO_JOBS, NODES, TAURUS).controls.sleep.values()
    assert (policy.timeout_s, policy.wake_ahead, policy.reserve[0]) == (timeout_s, wake_ahead, (-math.inf, reserve))
    assert (policy.shutdown_s, policy.wake_s) == (6.1, 151.52)


def test_sleep_savings_equal_the_break_even_model():
    """Four nodes idle for nine hours, then waking for a job."""
    awake, asleep = run_with("none", TWO_JOBS)[1], run_with("sleep=break-even", TWO_JOBS)[1]
    wait_s = 212.0 + 6.1 + 151.52
    saved_j = 4 * (9 * HOUR - wait_s) * (95 - 9.75)
    # Each run over its own horizon; the second job starts and ends later by the wake-up time.
    later_j = 4 * 151.52 * 125.2
    expected = saved_j - 4 * 6.1 * 6 - later_j + 4 * 151.52 * 95
    assert (awake.it_kwh - asleep.it_kwh) * 3.6e6 == pytest.approx(expected, rel=2e-3)
    assert asleep.log.jobs()["wait_s"].tolist() == [0, pytest.approx(151.52)]


def test_awake_reserve_starts_jobs_at_once():
    jobs = table([0, 10 * HOUR], [HOUR, HOUR], [4, 2])
    assert run_with("sleep=timeout:60:reserve=2", jobs)[0].jobs()["wait_s"][1] == 0
    assert run_with("sleep=timeout:60:reserve=1", jobs)[0].jobs()["wait_s"][1] > 151


def test_demand_forecast_uses_past_days_only():
    days = np.arange(9) * 24 * HOUR + 5 * HOUR
    jobs = table(days, [60] * 9, [6, 12, 1, 1, 1, 1, 1, 1, 600])
    steps = forecast_awake_nodes(jobs, HOUR, 1.0, 1000)
    at = dict(steps)
    assert at[-math.inf] == 0 and 5 * HOUR not in at  # the first day has no history
    assert at[29 * HOUR] == 6 and at[30 * HOUR] == 0
    assert at[53 * HOUR] == 9  # mean of two days
    assert at[days[8]] == math.ceil((12 + 6) / 7)  # the last seven days only
    assert max(nodes for _, nodes in steps) < 600  # the current hour is never counted
    later = table(days, [60] * 9, [6, 12, 1, 1, 1, 1, 1, 1, 7])
    assert forecast_awake_nodes(later, HOUR, 1.0, 1000) == steps
    assert max(nodes for _, nodes in forecast_awake_nodes(jobs, HOUR, 1.0, 5)) == 5
    assert forecast_awake_nodes(jobs[:0], HOUR, 1.0, 5) == ((-math.inf, 0),)


def test_memory_bound_jobs_run_at_the_lowest_energy_state():
    jobs = table([0, 0], [HOUR, HOUR], [1, 1], beta=[0.0, 1.0])
    resolved = resolve_controls("dvfs=1.1", jobs, NODES, TAURUS)
    slow, plain = resolved.controls.preferred_level.tolist()
    assert slow == len(TAURUS.group().levels) - 1  # no slowdown at the lowest clock
    assert plain == 0  # at beta 1 no state within a slowdown of 1.1 saves the idle power of a node
    assert resolved.controls.full_speed_backlog_nodes == 0
    log, energy = run_with("dvfs=1.1", jobs)
    assert log.jobs()["run_s"].tolist() == [HOUR, HOUR]
    assert energy.it_kwh < run_with("none", jobs)[1].it_kwh


def test_node_sleep_reduces_the_benefit_of_slow_states():
    """The idle power of a freed node favors slower states; a sleeping node does not."""
    jobs = table([0], [HOUR], [1], beta=[0.5])
    idle = resolve_controls("dvfs=2", jobs, NODES, TAURUS)
    asleep = resolve_controls("dvfs=2+sleep=break-even", jobs, NODES, TAURUS)
    assert idle.controls.preferred_level[0] > asleep.controls.preferred_level[0] > 0


def test_full_speed_while_jobs_wait():
    jobs = table([0] * 5, [HOUR] * 5, [2] * 5, beta=[0.2] * 5)
    levels = run_with("dvfs=1.5", jobs)[0].level.tolist()
    assert levels[0] == 0 and levels[-1] > 0
    assert min(run_with("dvfs=1.5:always", jobs)[0].level) == levels[-1]
    assert "unless" not in resolve_controls("dvfs=1.5:always", jobs, NODES, TAURUS).description


def test_shifted_jobs_start_in_the_clean_hour():
    carbon = Series(np.arange(9) * HOUR, [300, 300, 100, 300, 300, 300, 300, 300], "g/kWh")
    log = run_with("shift=lowest_window:3h", table([0], [HOUR], [1]), carbon=carbon)[0]
    assert log.jobs()["start_s"].tolist() == [2 * HOUR] and log.jobs()["wait_s"].tolist() == [2 * HOUR]
    cheap = carbon.scaled(1, "EUR/MWh")
    resolved = resolve_controls("shift=price:lowest_window:3h", table([0], [HOUR], [1]), NODES, TAURUS, price=cheap)
    assert resolved.jobs["hold_until_s"].tolist() == [2 * HOUR]
    assert (
        resolved.description
        == "jobs are shifted to times of low price by lowest_window, by at most 3 h 0 min, with a perfect forecast"
    )


def test_load_shifting_uses_the_forecast_only():
    """Yesterday the third hour was clean; today the second is, which persistence cannot predict."""
    yesterday, today = [300, 300, 100] + [300] * 21, [300, 100, 200] + [300] * 21
    carbon = Series(np.arange(-24, 25) * HOUR, [*yesterday, *today], "g/kWh", unix_zero_s=0.0)
    jobs = table([0], [HOUR], [1])
    resolved = resolve_controls(
        "shift=lowest_window:3h",
        jobs,
        NODES,
        TAURUS,
        carbon=carbon,
        make_forecast=lambda series, horizon_s: persistence(series, horizon_s=horizon_s),
    )
    assert resolved.jobs["hold_until_s"].tolist() == [2 * HOUR] and "persistence" in resolved.description
    assert (
        resolve_controls("shift=lowest_window:3h", jobs, NODES, TAURUS, carbon=carbon).jobs["hold_until_s"][0] == HOUR
    )


def test_slack_by_estimate():
    carbon = Series(np.arange(49) * HOUR, [300] * 20 + [100] + [300] * 27, "g/kWh")
    jobs = table([0, 0], [HOUR, 3 * HOUR], [1, 1])
    shift_until_s = resolve_controls("shift=lowest_slot:gaia", jobs, NODES, TAURUS, carbon=carbon).jobs["hold_until_s"]
    assert shift_until_s.tolist() == [-math.inf, 20 * HOUR]  # 6 h for short jobs, 24 h for long ones


@pytest.mark.parametrize("power_controls", ["", "+sleep=timeout:60", "+sleep=predictive:60", "+dvfs=1.2"])
def test_power_budget_is_never_exceeded(power_controls):
    rng = np.random.default_rng(5)
    n = 60
    jobs = table(
        np.sort(rng.uniform(0, 20 * HOUR, n)), rng.uniform(60, 2 * HOUR, n), rng.integers(1, 5, n)
    )  # fmt: skip
    cluster = Cluster.from_nodes(16)
    full = TAURUS.for_groups({"nodes": 16}).full_it_w()
    free = run_with(f"none{power_controls}".replace("none+", ""), jobs, cluster)[1].peak_it_w
    energy = run_with(f"budget=70%{power_controls}", jobs, cluster)[1]
    assert energy.peak_it_w <= 0.7 * full < free
    assert len(energy.log) == n


def test_power_budget_slows_jobs_down_before_delaying_them():
    jobs = table([0], [HOUR], [4])
    limit = 4 * 171.0  # the second level of Taurus
    log, energy = run_with(f"budget={limit}", jobs)
    assert log.level.tolist() == [1] and energy.peak_it_w == pytest.approx(limit)
    assert parse_controls("budget=1.5MW").budget.watts == 1.5e6
    assert parse_controls("budget=1_000 W").budget.watts == 1000


def test_all_selects_the_available_controls():
    carbon = Series.constant(100, "g/kWh")
    resolved = resolve_controls("all", TWO_JOBS, NODES, TAURUS, carbon=carbon)
    assert (
        resolved.controls.sleep
        and resolved.controls.preferred_level is not None
        and "carbon_time" in resolved.description
    )
    assert "hold_until_s" not in resolve_controls("all", TWO_JOBS, NODES, TAURUS).jobs
    assert (
        "low price" in resolve_controls("all", TWO_JOBS, NODES, TAURUS, price=carbon.scaled(1, "EUR/MWh")).description
    )
    mira = resolve_controls("all", TWO_JOBS, NODES, PowerModel.preset("mira"))
    assert mira.controls.sleep and mira.tables is None
    assert resolve_controls("all", TWO_JOBS, NODES, PowerModel.preset("frontier")).controls is None
    both = resolve_controls("all+budget=90%", TWO_JOBS, NODES, TAURUS)
    assert both.controls.budget is not None and both.controls.sleep


def test_groups_with_fewer_dvfs_states_repeat_the_last(tmp_path: Path):
    preset_text = (Path(kw.__file__).parent / "energy/power/presets/taurus.toml").read_text()
    group, facility = preset_text[preset_text.index("[[group]]") :].split("[facility]", 1)
    plain = group[: group.index("[[group.level]]")].replace('name = "taurus"', 'name = "plain"')
    (tmp_path / "two.toml").write_text(f'name = "two"\n{group}{plain}[facility]{facility}')
    model = PowerModel.from_file(tmp_path / "two.toml")
    cluster = Cluster((NodeGroup("taurus", 4), NodeGroup("plain", 2)))
    tables = dvfs_tables("dvfs=1.3", TWO_JOBS, cluster, model)
    assert len(set(tables["plain"].names)) == 1
    assert len(tables["plain"].names) == len(tables["taurus"].names) == 13
    assert (tables["plain"].factor == 1).all()
    log, energy = run_with("dvfs=1.3", TWO_JOBS, cluster, model)
    assert energy.it_kwh > 0 and len(log) == 2


def test_shared_nodes_count_by_their_share_of_cores():
    cluster = Cluster((NodeGroup("nodes", 4, cores=10, shared=True),))
    jobs = table([0, 0], [HOUR, HOUR], [1, 1], cores=[5, 5])
    log, energy = run_with("budget=65%", jobs, cluster)
    assert log.jobs()["wait_s"].tolist() == [0, 0]
    assert energy.peak_it_w <= 0.65 * 4 * 190.7
    with pytest.raises(InputError, match="have nodes that jobs share"):
        resolve_controls("sleep=break-even", jobs, cluster, TAURUS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sleap=never", "unknown power control 'sleap'; did you mean 'sleep'?"),
        ("sleep=timeut:5", "did you mean 'timeout'?"),
        ("shift=lowest_windw:6h", "did you mean 'lowest_window'?"),
        ("alls", "did you mean 'all'?"),
    ],
)
def test_unknown_names(text, message):
    with pytest.raises(UnknownNameError) as caught:
        parse_controls(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sleep", "power control 'sleep' has no value; write for example sleep=break-even"),
        ("sleep=timeout", "sleep=timeout has no timeout"),
        ("sleep=timeout:soon", "'soon' is not a span of time"),
        ("sleep=timeout:-5", "-5 is below 0"),
        ("sleep=break-even:5", "'5' is not a setting of break-even"),
        ("sleep=timeout:5:reserve=x", "'reserve=x' is not a setting of timeout"),
        ("sleep=never+sleep=break-even", "give sleep twice"),
        ("dvfs=0.9", "dvfs=0.9: give the maximum slowdown of a job, 1 or more"),
        ("dvfs=fast", "such as dvfs=1.1"),
        ("dvfs=1.1:often", "dvfs=1.1:always slows jobs down"),
        ("shift=lowest_window", "has no maximum delay"),
        ("shift=lowest_window:long", "'long' is not a span of time"),
        ("budget=much", "budget=much is not a power; write watts, 500kW"),
        ("budget=-5", "budget=-5 is not a power"),
    ],
)
def test_wrong_settings(text, message):
    with pytest.raises(InputError) as caught:
        parse_controls(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "preset", "message"),
    [
        ("budget=300W", "taurus", "budget of 300 W is below the 380 W that 'taurus' draws with every node idle"),
        ("budget=385+sleep=timeout:9", "taurus", "385 W is below the 404 W that 'taurus' may draw when its nodes"),
        ("dvfs=1.1", "mira", "the power model 'mira' has no DVFS states for the group 'nodes'"),
        ("sleep=break-even", "frontier", "the power model 'frontier' has no sleep states for the group 'nodes'"),
        ("shift=lowest_window:6h", "taurus", "needs the carbon intensity over time; give a file"),
        ("shift=price:lowest_window:6h", "taurus", "needs the price over time; give a file with"),
    ],
)  # fmt: skip
def test_unavailable_controls(text, preset, message):
    with pytest.raises(InputError) as caught:
        resolve_controls(text, TWO_JOBS, NODES, PowerModel.preset(preset))
    assert message in str(caught.value)


def test_daytime_budget_is_kept() -> None:
    """Estimates are exact, so no job started before eight exceeds the lower budget."""
    jobs = kw.lublin(400, 32, load=0.9, seed=2)
    cluster, model = kw.Cluster.from_nodes(32), PowerModel.preset("taurus")
    resolved = resolve_controls("budget=100%:75%@8-20", jobs, cluster, model)
    log = kw.simulate(resolved.jobs, cluster, "fcfs", "easy", power_controls=resolved.controls)
    assert len(log) == 400
    power = account_energy(log, cluster, model, tables=resolved.tables).it_power
    full = model.for_groups({"nodes": 32}).full_it_w()
    begin, end = power.edge_s[:-1] % 86400, power.edge_s[:-1] % 86400 + np.diff(power.edge_s)
    day = (begin < 20 * HOUR) & (end > 8 * HOUR)
    assert power.value[day].max() <= 0.75 * full + 1e-6
    assert power.value.max() > 0.9 * full
    assert "from 8 to 20 h" in resolved.description


@pytest.mark.parametrize("text", ["budget=100%:70%", "budget=100%:70%@20-8", "budget=90%:x@8-9", "budget=90%:50%@0-24"])
def test_wrong_budget_hours(text: str) -> None:
    with pytest.raises(InputError, match=r"write the first and last hour, such as budget=100%:70%@8-20|is not a power"):
        parse_controls(text)
