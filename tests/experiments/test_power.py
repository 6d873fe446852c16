"""Tests of power settings, and of comparisons of power controls: accounting, processes, resuming."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import load_comparison
from kilowait.experiments.comparison.compare import prepare, prepare_control_comparison, run, save
from kilowait.experiments.comparison.plan import ComparisonPlan, WindowOptions
from kilowait.experiments.comparison.results import summarize_comparison
from kilowait.experiments.policies import make_policy_configs
from kilowait.experiments.power import make_power_context, with_power
from kilowait.experiments.scenario import run_scenario
from kilowait.experiments.settings import PowerSettings, Scenario
from kilowait.jobs import JobTable

TRACE = "lublin:300:32:0.7:1"
POWER_CONTROLS = "none,sleep=break-even,dvfs=1.1,shift=lowest_window:12h,budget=80%,all"


@pytest.fixture
def carbon(tmp_path):
    """Two weeks from 2022-01-01 on, clean at night."""
    path = tmp_path / "carbon.csv"
    rows = [
        f"2022-01-{1 + hour // 24:02d} {hour % 24:02d}:00,{100 if hour % 24 < 6 else 400}" for hour in range(24 * 14)
    ]
    path.write_text("time (UTC),gCO2/kWh\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def settings(carbon):
    return PowerSettings("taurus", carbon=str(carbon), log_start="2022-01-02", repeat_signals=True)


def plan(settings, power_controls=POWER_CONTROLS, trace=TRACE, **window_options):
    window_options = {"windows": 2, "window_jobs": 100, "warmup_jobs": 20, "seed": 3, **window_options}
    policies = make_policy_configs("fcfs", "easy", power_controls, clairvoyant=False)
    return ComparisonPlan((Scenario(trace, power=settings),), policies, WindowOptions(**window_options))


def energy_metrics(comparison):
    return [[dict(cell) for cell in row] for row in comparison.energy.metrics]


def test_policies_are_combined_with_power_controls():
    configs = make_policy_configs("fcfs,sjf", "easy", "none,all")
    assert [config.label for config in configs] == [
        "fcfs", "fcfs, all", "sjf", "sjf, all", "fcfs, perfect estimates", "sjf, perfect estimates",
    ]  # fmt: skip
    with pytest.raises(UnknownNameError, match="did you mean 'sleep'"):
        make_policy_configs("fcfs", "easy", "none,sleeep=never")


def test_all_policies_are_accounted_over_the_same_time(settings):
    (comparison,) = run(prepare(plan(settings, windows=None)))
    results = comparison.energy
    for row in results.metrics:
        seconds = row[0]["energy_kwh"] / row[0]["mean_kw"]
        assert seconds == pytest.approx(results.metrics[0][0]["energy_kwh"] / results.metrics[0][0]["mean_kw"])
        parts = ("jobs_kwh", "idle_kwh", "sleep_kwh", "transition_kwh", "fixed_kwh")
        assert sum(row[0][part] for part in parts) == pytest.approx(row[0]["energy_kwh"], rel=1e-9)
        assert row[0]["least_kwh"] <= row[0]["jobs_kwh"] * (1 + 1e-9)
    energy = dict(zip(comparison.labels, comparison.values("energy_kwh")[:, 0], strict=True))
    co2 = dict(zip(comparison.labels, comparison.values("co2_kg")[:, 0], strict=True))
    assert energy["fcfs, all"] < energy["fcfs, sleep=break-even"] < energy["fcfs"]
    assert energy["fcfs, dvfs=1.1"] < energy["fcfs"]
    assert energy["fcfs, shift=lowest_window:12h"] == pytest.approx(energy["fcfs"])
    assert co2["fcfs, shift=lowest_window:12h"] < co2["fcfs"]
    peak = dict(zip(comparison.labels, comparison.values("peak_kw")[:, 0], strict=True))
    assert peak["fcfs, budget=80%"] <= 0.8 * 32 * 0.1907
    assert len(results.curves) == len(comparison.policies)
    assert results.curves[0].edge_s == results.curves[-1].edge_s == results.signals[0].edge_s
    mean_w = np.mean(results.curves[0].it_w)
    assert mean_w / 1e3 == pytest.approx(results.metrics[0][0]["mean_kw"])
    assert results.states[0]["asleep"] == 0 < results.states[1]["asleep"]


def test_results_are_the_same_with_two_processes_and_after_resuming(settings, tmp_path):
    out = tmp_path / "c"
    prepared = prepare(plan(settings))
    (one,) = run(prepared, workers=1, cache=prepared.cell_cache(out))
    (two,) = run(prepare(plan(settings)), workers=2)
    assert energy_metrics(one) == energy_metrics(two)
    cache = prepare(plan(settings)).cell_cache(out)
    (again,) = run(prepare(plan(settings)), workers=1, cache=cache)
    assert cache.hits == prepared.cell_count and energy_metrics(again) == energy_metrics(one)
    results = {"traces": [summarize_comparison(one, "mean_bsld", seed=0)]}
    save(out, prepared, [one], results, cache, command=["kilowait"], date="now")
    stored = load_comparison(out)
    assert energy_metrics(stored.comparisons[0]) == energy_metrics(one)
    assert stored.comparisons[0].energy.curves == one.energy.curves
    assert stored.scenario["case"][0]["power"]["power"] == "taurus"
    cache = prepare(plan(settings)).cell_cache(out)
    (last,) = run(prepare(plan(settings)), workers=1, cache=cache)
    assert cache.hits == prepared.cell_count and energy_metrics(last) == energy_metrics(one)


def test_cell_keys_depend_on_power_controls_model_and_signals(settings, carbon, tmp_path):
    def keys(power_settings, power_controls="sleep=break-even"):
        prepared = prepare(plan(power_settings, f"none,{power_controls}"))
        return [prepared.cell_cache(tmp_path / "c").key((0, policy, 0)) for policy in (0, 1)]

    plain, slept = keys(settings)
    assert keys(settings) == [plain, slept]
    assert keys(settings, "sleep=timeout:60")[1] != slept
    others = [replace(settings, power="mira"), replace(settings, forecast="persistence")]
    carbon.write_text(carbon.read_text().replace(",400", ",401"))
    for other in (*others, settings):
        assert keys(other)[0] == plain  # without power controls the run does not depend on power
        assert keys(other)[1] != slept


def test_savings_are_relative_to_the_first_policy(settings):
    (comparison,) = run(prepare(plan(settings, windows=None)))
    summary = summarize_comparison(comparison, "energy_kwh", seed=0)
    first = summary["rows"][0]
    assert first["saved"]["energy_kwh"] == 0 and first["power_controls"] == "none"
    row = summary["rows"][1]
    assert row["saved"]["energy_kwh"] == 1 - row["metrics"]["energy_kwh"] / first["metrics"]["energy_kwh"] > 0
    assert "cost" not in row["saved"]
    assert summary["energy"]["signals"]["carbon"]["unit"] == "g/kWh"
    assert json.dumps(summary["energy"])


def test_single_run_is_accounted(settings):
    result = run_scenario(Scenario(TRACE, power=settings, power_controls="shift=lowest_window:12h+sleep=break-even"))
    assert (
        result.accounts.by_state["asleep"] > 0
        and "shifted to times of low carbon intensity" in result.controls_description
    )
    assert "hold_until_s" not in result.log.jobs_table  # the log has the original jobs
    assert result.resolved()["power"]["log_start"] == "2022-01-02"
    assert "cooling" not in result.resolved()["power"]


def test_windows_have_the_start_date_of_the_log(settings):
    """The start is that of the log, not of each window."""
    prepared = prepare(plan(settings, "none"))
    zero = prepared.cases[0].workload.jobs.meta["unix_start_s"]
    assert {window.jobs.meta["unix_start_s"] for window in prepared.cases[0].windows} == {zero}
    submit = prepared.cases[0].workload.jobs["submit_s"]
    assert 0 <= zero + float(submit.min()) - 1641081600.0 < 1 and zero == int(zero)


def test_power_is_computed_from_measured_energy():
    jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[100, 100], nodes=[1, 1], energy_j=[15000, np.nan])
    jobs, notes = with_power(PowerSettings("taurus"), jobs)
    assert jobs["power_w"][0] == 150 and "1 with power from measured energy" in notes[0]
    context = make_power_context(PowerSettings("taurus", utilization="columns"), jobs, Cluster.from_nodes(2))
    assert context.utilization is None


def test_default_power_controls_of_a_cluster(settings):
    prepared = prepare_control_comparison(Scenario(TRACE, power=settings), "fcfs", "easy")
    assert [config.power_controls for config in prepared.policies] == [
        "none", "sleep=break-even", "sleep=predictive", "dvfs=1.1", "shift=carbon_time:6h", "all",
    ]  # fmt: skip
    prepared = prepare_control_comparison(Scenario(TRACE, power=PowerSettings("mira")), "fcfs", "easy")
    assert [config.power_controls for config in prepared.policies] == [
        "none",
        "sleep=break-even",
        "sleep=predictive",
        "all",
    ]
    with pytest.raises(InputError, match="name one with --power"):
        prepare_control_comparison(Scenario(TRACE), "fcfs", "easy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeat_signals": False}, r"missing 2022-01-15 00:00 UTC to .* ask for --repeat-signals to repeat"),
        ({"log_start": None}, "such as --log-start 2022-01-01"),
        ({"log_start": "soon"}, "'soon' is not a time"),
        ({"cooling": "economiser"}, r"needs the weather \(temperature, wet_bulb\); give --weather FILE"),
        ({"utilization": "columns"}, "needs power or utilization in the log"),
        ({"utilization": "cpu=high"}, "is not written as cpu=0.8"),
        ({"utilization": "cpu=1.5"}, "cpu utilization is 1.5"),
        ({"power": "auto"}, "no power model is known for the cluster '32 nodes'"),
        ({"power": "nowhere.toml"}, "no power file nowhere.toml"),
        ({"carbon": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_invalid_settings_are_rejected_before_any_run(settings, change, message):
    with pytest.raises(InputError, match=message):
        prepare(plan(replace(settings, **change), trace="lublin:3000:32:0.7:1"))


def test_negative_carbon_intensity_is_rejected(settings, carbon):
    carbon.write_text(carbon.read_text().replace(",400", ",-4", 1))
    with pytest.raises(InputError, match="carbon intensity is negative 1 time"):
        prepare(plan(settings))


def test_unknown_names_are_rejected(settings):
    for change, message in (
        ({"power": "polariss"}, "did you mean 'polaris'"),
        ({"forecast": "prefect"}, "did you mean 'perfect'"),
        ({"forecast": "noisy:CISSO"}, "did you mean 'CISO'|CISO"),
        ({"utilization": "cpus=1"}, "did you mean 'cpu'"),
    ):
        with pytest.raises(UnknownNameError, match=message):
            prepare(plan(replace(settings, **change)))


def test_power_controls_and_metrics_need_a_power_model(settings):
    with pytest.raises(InputError, match="power controls 'all' need a power model"):
        Scenario(TRACE, power_controls="all")
    with pytest.raises(InputError, match="power controls 'all' need a power model"):
        plan(None, "none,all")
    with pytest.raises(InputError, match="energy_kwh needs a power model"):
        ComparisonPlan((Scenario(TRACE),), make_policy_configs("fcfs", "easy"), WindowOptions(), "energy_kwh")
    with pytest.raises(InputError, match="give a file with --price"):
        ComparisonPlan((Scenario(TRACE, power=settings),), make_policy_configs("fcfs", "easy"), WindowOptions(), "cost")
    assert PowerSettings.from_options(None) is None
    with pytest.raises(InputError, match="--repeat-signals needs a power model"):
        PowerSettings.from_options(None, repeat_signals=True)
