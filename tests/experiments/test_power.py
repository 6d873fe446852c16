"""Power settings become a meter; comparisons with levers are the same on any number of processes and when resumed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import load_comparison
from kilowait.experiments.comparison_plan import (
    ComparisonPlan,
    prepare,
    prepare_control_comparison,
    run,
    save,
)
from kilowait.experiments.comparison_results import summarize_comparison
from kilowait.experiments.policy_configs import make_policy_configs
from kilowait.experiments.power import PowerSettings, make_power_context, with_power
from kilowait.experiments.scenario import Scenario, run_scenario
from kilowait.experiments.window_options import WindowOptions
from kilowait.jobs import JobTable

TRACE = "lublin:300:32:0.7:1"
POWER_CONTROLS = "none,sleep=break-even,dvfs=1.1,shift=lowest_window:12h,budget=80%,all"


@pytest.fixture
def carbon(tmp_path):
    """Two weeks from 2022-01-01 on, clean at night."""
    path = tmp_path / "carbon.csv"
    rows = [
        f"2022-01-{1 + hour // 24:02d} {hour % 24:02d}:00,{100 if hour % 24 < 6 else 400}"
        for hour in range(24 * 14)
    ]
    path.write_text("time (UTC),gCO2/kWh\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def settings(carbon):
    return PowerSettings("taurus", carbon=str(carbon), log_start="2022-01-02", repeat_signals=True)


def plan(settings, power_controls=POWER_CONTROLS, trace=TRACE, **protocol):
    protocol = {"windows": 2, "window_jobs": 100, "warmup_jobs": 20, "seed": 3, **protocol}
    policies = make_policy_configs("fcfs", "easy", power_controls, clairvoyant=False)
    return ComparisonPlan((Scenario(trace, power=settings),), policies, WindowOptions(**protocol))


def drawn(contest):
    return [[dict(cell) for cell in row] for row in contest.energy.metrics]


def test_contenders_are_rules_by_backfilling_by_levers():
    found = make_policy_configs("fcfs,sjf", "easy", "none,all")
    assert [who.label for who in found] == [
        "fcfs", "fcfs, all", "sjf", "sjf, all", "fcfs, perfect estimates", "sjf, perfect estimates",
    ]  # fmt: skip
    with pytest.raises(UnknownNameError, match="did you mean 'sleep'"):
        make_policy_configs("fcfs", "easy", "none,sleeep=never")


def test_all_contenders_are_accounted_over_the_same_time(settings):
    (contest,) = run(prepare(plan(settings, windows=None)))
    drew = contest.energy
    for row in drew.metrics:
        seconds = row[0]["energy_kwh"] / row[0]["mean_kw"]
        assert seconds == pytest.approx(drew.metrics[0][0]["energy_kwh"] / drew.metrics[0][0]["mean_kw"])
        parts = ("jobs_kwh", "idle_kwh", "sleep_kwh", "transition_kwh", "fixed_kwh")
        assert sum(row[0][part] for part in parts) == pytest.approx(row[0]["energy_kwh"], rel=1e-9)
        assert row[0]["least_kwh"] <= row[0]["jobs_kwh"] * (1 + 1e-9)
    energy = dict(zip(contest.labels, contest.values("energy_kwh")[:, 0], strict=True))
    co2 = dict(zip(contest.labels, contest.values("co2_kg")[:, 0], strict=True))
    assert energy["fcfs, all"] < energy["fcfs, sleep=break-even"] < energy["fcfs"]
    assert energy["fcfs, dvfs=1.1"] < energy["fcfs"]
    assert energy["fcfs, shift=lowest_window:12h"] == pytest.approx(energy["fcfs"])
    assert co2["fcfs, shift=lowest_window:12h"] < co2["fcfs"]
    peak = dict(zip(contest.labels, contest.values("peak_kw")[:, 0], strict=True))
    assert peak["fcfs, budget=80%"] <= 0.8 * 32 * 0.1907
    assert len(drew.curves) == len(contest.policies)
    assert drew.curves[0].edge_s == drew.curves[-1].edge_s == drew.signals[0].edge_s
    mean_w = np.mean(drew.curves[0].it_w)
    assert mean_w / 1e3 == pytest.approx(drew.metrics[0][0]["mean_kw"])
    assert drew.states[0]["asleep"] == 0 < drew.states[1]["asleep"]


def test_the_same_on_two_processes_and_when_taken_up_again(settings, tmp_path):
    out = tmp_path / "c"
    ready = prepare(plan(settings))
    (one,) = run(ready, workers=1, store=ready.store(out))
    (two,) = run(prepare(plan(settings)), workers=2)
    assert drawn(one) == drawn(two)
    store = prepare(plan(settings)).store(out)
    (again,) = run(prepare(plan(settings)), workers=1, store=store)
    assert store.found == ready.cells and drawn(again) == drawn(one)
    results = {"traces": [summarize_comparison(one, "mean_bsld", seed=0)]}
    save(out, ready, [one], results, store, command=["kilowait"], date="now")
    kept = load_comparison(out)
    assert drawn(kept.comparisons[0]) == drawn(one)
    assert kept.comparisons[0].energy.curves == one.energy.curves
    assert kept.scenario["case"][0]["power"]["power"] == "taurus"
    store = prepare(plan(settings)).store(out)
    (last,) = run(prepare(plan(settings)), workers=1, store=store)
    assert store.found == ready.cells and drawn(last) == drawn(one)


def test_keys_know_levers_power_and_signals(settings, carbon, tmp_path):
    def keys(given, power_controls="sleep=break-even"):
        ready = prepare(plan(given, f"none,{power_controls}"))
        return [ready.store(tmp_path / "c").key((0, policy, 0)) for policy in (0, 1)]

    plain, slept = keys(settings)
    assert keys(settings) == [plain, slept]
    assert keys(settings, "sleep=timeout:60")[1] != slept
    others = [replace(settings, power="mira"), replace(settings, forecast="persistence")]
    carbon.write_text(carbon.read_text().replace(",400", ",401"))
    for other in (*others, settings):
        assert keys(other)[0] == plain  # without levers the run is the same
        assert keys(other)[1] != slept


def test_savings_are_counted_from_the_first(settings):
    (contest,) = run(prepare(plan(settings, windows=None)))
    found = summarize_comparison(contest, "energy_kwh", seed=0)
    first = found["rows"][0]
    assert first["saved"]["energy_kwh"] == 0 and first["power_controls"] == "none"
    row = found["rows"][1]
    assert row["saved"]["energy_kwh"] == 1 - row["metrics"]["energy_kwh"] / first["metrics"]["energy_kwh"] > 0
    assert "cost" not in row["saved"]
    assert found["energy"]["signals"]["carbon"]["unit"] == "g/kWh"
    assert json.dumps(found["energy"])


def test_a_run_is_accounted(settings):
    done = run_scenario(
        Scenario(TRACE, power=settings, power_controls="shift=lowest_window:12h+sleep=break-even")
    )
    assert (
        done.accounts.by_state["asleep"] > 0
        and "shifted to times of low carbon intensity" in done.controls_description
    )
    assert "hold_until_s" not in done.log.jobs_table  # the jobs are those of the log
    assert done.resolved()["power"]["log_start"] == "2022-01-02"
    assert "cooling" not in done.resolved()["power"]


def test_windows_keep_their_dates(settings):
    """The start is that of the log, not of each window."""
    ready = prepare(plan(settings, "none"))
    zero = ready.workloads[0].jobs.meta["unix_start_s"]
    assert {window.jobs.meta["unix_start_s"] for window in ready.cases[0].windows} == {zero}
    submit = ready.workloads[0].jobs["submit_s"]
    assert 0 <= zero + float(submit.min()) - 1641081600.0 < 1 and zero == int(zero)


def test_measured_energy_becomes_power():
    jobs = JobTable(
        job_id=[1, 2], submit_s=[0, 0], runtime_s=[100, 100], nodes=[1, 1], energy_j=[15000, np.nan]
    )
    found, notes = with_power(PowerSettings("taurus"), jobs)
    assert found["power_w"][0] == 150 and "1 with power from measured energy" in notes[0]
    meter = make_power_context(PowerSettings("taurus", utilization="columns"), found, Cluster.from_nodes(2))
    assert meter.utilization is None


def test_levers_of_a_machine(settings):
    ready = prepare_control_comparison(Scenario(TRACE, power=settings), "fcfs", "easy")
    assert [who.power_controls for who in ready.policies] == [
        "none", "sleep=break-even", "sleep=predictive", "dvfs=1.1", "shift=carbon_time:6h", "all",
    ]  # fmt: skip
    ready = prepare_control_comparison(Scenario(TRACE, power=PowerSettings("mira")), "fcfs", "easy")
    assert [who.power_controls for who in ready.policies] == [
        "none",
        "sleep=break-even",
        "sleep=predictive",
        "all",
    ]
    with pytest.raises(InputError, match="name one with --power"):
        prepare_control_comparison(Scenario(TRACE), "fcfs", "easy")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"repeat_signals": False}, r"missing 2022-01-15 00:00 UTC to .* ask for --repeat-signals to repeat"),
        ({"log_start": None}, "such as --log-start 2022-01-01"),
        ({"log_start": "soon"}, "'soon' is not a time"),
        ({"cooling": "economiser"}, r"needs the weather \(temperature, wet_bulb\); give --weather FILE"),
        ({"utilization": "columns"}, "says nothing of power or utilization"),
        ({"utilization": "cpu=high"}, "is not written as cpu=0.8"),
        ({"utilization": "cpu=1.5"}, "cpu utilization is 1.5"),
        ({"power": "auto"}, "no power model is known for the cluster '32 nodes'"),
        ({"power": "nowhere.toml"}, "no power file nowhere.toml"),
        ({"carbon": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(settings, given, words):
    with pytest.raises(InputError, match=words):
        prepare(plan(replace(settings, **given), trace="lublin:3000:32:0.7:1"))


def test_negative_intensity(settings, carbon):
    carbon.write_text(carbon.read_text().replace(",400", ",-4", 1))
    with pytest.raises(InputError, match="carbon intensity is negative 1 time"):
        prepare(plan(settings))


def test_unknown_names(settings):
    for given, words in (
        ({"power": "polariss"}, "did you mean 'polaris'"),
        ({"forecast": "prefect"}, "did you mean 'perfect'"),
        ({"forecast": "noisy:CISSO"}, "did you mean 'CISO'|CISO"),
        ({"utilization": "cpus=1"}, "did you mean 'cpu'"),
    ):
        with pytest.raises(UnknownNameError, match=words):
            prepare(plan(replace(settings, **given)))


def test_levers_and_metrics_need_a_power_model(settings):
    with pytest.raises(InputError, match="levers 'all' need a power model"):
        Scenario(TRACE, power_controls="all")
    with pytest.raises(InputError, match="levers 'all' need a power model"):
        plan(None, "none,all")
    with pytest.raises(InputError, match="energy_kwh is known only with a power model"):
        ComparisonPlan((Scenario(TRACE),), make_policy_configs("fcfs", "easy"), WindowOptions(), "energy_kwh")
    with pytest.raises(InputError, match="give a file with --price"):
        ComparisonPlan(
            (Scenario(TRACE, power=settings),), make_policy_configs("fcfs", "easy"), WindowOptions(), "cost"
        )
    assert PowerSettings.from_options(None) is None
    with pytest.raises(InputError, match="--repeat-signals needs a power model"):
        PowerSettings.from_options(None, repeat_signals=True)
