"""Tests of GPU power caps: jobs run longer and draw less power, and energy is conserved."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.energy import PowerModel, account_energy, cap_gpus
from kilowait.errors import InputError
from kilowait.experiments.comparison.compare import prepare, prepare_control_comparison, run
from kilowait.experiments.comparison.plan import ComparisonPlan, WindowOptions
from kilowait.experiments.gpu_options import speeds_for
from kilowait.experiments.policies import make_policy_configs
from kilowait.experiments.power_controls import check_controls_supported, gpu_cap_share, parse_gpu_power_caps
from kilowait.experiments.scenario import run_scenario
from kilowait.experiments.settings import GpuOptions, PowerSettings, Scenario
from kilowait.policies.simulation import gpu_settings_for

TRACE = "gpu:150:gpu-mixed:1.1:4"
MIXED, POWER = kw.Cluster.preset("gpu-mixed"), PowerModel.preset("gpu-mixed")


def run_with(power_controls, **settings):
    return run_scenario(
        Scenario(TRACE, policy="las", power=PowerSettings(), power_controls=power_controls, gpu=GpuOptions(**settings))
    )


def test_gpu_power_caps_are_parsed():
    assert parse_gpu_power_caps(" none, 60%,0.6 ,0.825") == ["none", "gpu-cap=60%", "gpu-cap=82.5%"]
    assert gpu_cap_share("gpu-cap=82.5%") == 0.825 and gpu_cap_share("none") is None and gpu_cap_share("all") is None
    for text in ("200W", "0", "-5%", "101%", "nan", "inf", "", "60%%"):
        with pytest.raises(InputError, match="such as 60% or 0.6"):
            parse_gpu_power_caps(text)


def test_gpu_cap_slows_jobs_and_lowers_power():
    """The run and its accounts are equal to those of cap_gpus, simulate and account_energy called one by one."""
    uncapped, capped = run_with("none"), run_with("gpu-cap=60%")
    jobs = capped.workload.jobs
    caps = cap_gpus(jobs, MIXED, POWER, 0.6, speeds_for("auto", jobs, MIXED))
    log = kw.simulate(jobs, MIXED, "las", settings=gpu_settings_for("las"), speeds=caps.speeds)
    np.testing.assert_array_equal(capped.log.end_s, log.end_s)
    accounts = account_energy(log, MIXED, POWER, gpu_cap=caps.gpu_cap)
    assert capped.accounts.it_kwh == accounts.it_kwh and capped.accounts.by_state == accounts.by_state
    assert capped.accounts.notes == (*accounts.notes, *caps.notes)
    run_s = [float(result.log.jobs()["run_s"].sum()) for result in (uncapped, capped)]
    assert run_s[1] > 1.1 * run_s[0]
    assert capped.accounts.peak_it_w < 0.9 * uncapped.accounts.peak_it_w
    assert capped.accounts.by_state["jobs"] < uncapped.accounts.by_state["jobs"]
    assert "60 %" in capped.controls_description and capped.speeds.speed.max() < uncapped.speeds.speed.max()


@pytest.mark.parametrize("power_controls", ["none", "gpu-cap=90%", "gpu-cap=50%", "gpu-cap=100%"])
@pytest.mark.parametrize("types", ["any", "least-energy"])
def test_energy_is_conserved(power_controls, types):
    accounts = run_with(power_controls, gpu_type_order=types).accounts
    edges = accounts.it_power.edge_s
    it_kwh = float(np.dot(np.diff(edges), accounts.it_power.value)) / 3.6e6
    assert sum(accounts.by_state.values()) == pytest.approx(it_kwh, rel=1e-9)
    assert accounts.it_kwh == pytest.approx(it_kwh, rel=1e-9)
    assert sum(sum(group.values()) for group in accounts.by_group.values()) == pytest.approx(it_kwh, rel=1e-9)


def test_cap_of_100_percent_changes_nothing():
    uncapped, capped = run_with("none"), run_with("gpu-cap=100%")
    np.testing.assert_array_equal(uncapped.log.end_s, capped.log.end_s)
    assert uncapped.accounts.it_kwh == capped.accounts.it_kwh


def test_energy_is_above_the_lower_bound():
    """The lower bound uses the speeds of the run and the caps of the policies."""
    scenario = Scenario(TRACE, power=PowerSettings(), gpu=GpuOptions(gpu_type_order="least-energy"))
    configs = make_policy_configs("fcfs,las", "none", parse_gpu_power_caps("none,80%,60%"), clairvoyant=False)
    prepared = prepare(ComparisonPlan((scenario,), configs, WindowOptions(windows=2, window_jobs=60)))
    energy = run(prepared)[0].energy
    for policy in energy.metrics:
        for window in policy:
            assert 0 < window["least_kwh"] < window["energy_kwh"]
    context, jobs = prepared.cases[0].power_context, prepared.cases[0].workload.jobs
    speeds = speeds_for("auto", jobs, MIXED)
    minimum_kwh = context.minimum_kwh(jobs, speeds)
    assert context.minimum_kwh(jobs, speeds, (None, 0.8)) <= minimum_kwh
    assert context.minimum_kwh(jobs) < 0.9 * minimum_kwh  # without speeds a T4 is as fast as all others
    jobs_kwh = run_with("gpu-cap=80%", gpu_type_order="least-energy").accounts.by_state["jobs"]
    assert jobs_kwh >= context.minimum_kwh(jobs, speeds, (0.8,))


def test_power_controls_of_gpu_clusters_are_gpu_caps():
    prepared = prepare_control_comparison(Scenario(TRACE, power=PowerSettings()), "fcfs", "none")
    assert [config.power_controls for config in prepared.policies][:3] == ["none", "gpu-cap=90%", "gpu-cap=80%"]
    with pytest.raises(InputError, match="cap GPUs with --gpu-power-cap"):
        prepare_control_comparison(Scenario(TRACE, power=PowerSettings()), "fcfs", "none", "sleep=break-even")
    with pytest.raises(InputError, match="power caps are DVFS states"):
        check_controls_supported("gpu-cap=60%", kw.Cluster.from_nodes(4))
    with pytest.raises(InputError, match="gpu-cap=60% needs a power model"):
        Scenario(TRACE, power_controls="gpu-cap=60%")
