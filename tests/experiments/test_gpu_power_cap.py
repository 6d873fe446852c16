"""GPU caps in words: jobs run longer, draw less, and no joule is lost."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.energy import PowerModel, account_energy, cap_gpus
from kilowait.errors import InputError
from kilowait.experiments.comparison_plan import (
    ComparisonPlan,
    prepare,
    prepare_control_comparison,
    run,
)
from kilowait.experiments.gpu_power_cap import check_controls_supported, gpu_cap_share, parse_gpu_power_caps
from kilowait.experiments.gpu_settings import GpuOptions, speeds_for
from kilowait.experiments.policy_configs import make_policy_configs
from kilowait.experiments.power import PowerSettings
from kilowait.experiments.scenario import Scenario, run_scenario
from kilowait.experiments.window_options import WindowOptions
from kilowait.policies.simulation import gpu_settings_for

TRACE = "gpu:150:gpu-mixed:1.1:4"
MIXED, POWER = kw.Cluster.preset("gpu-mixed"), PowerModel.preset("gpu-mixed")


def done_with(power_controls, **settings):
    return run_scenario(
        Scenario(
            TRACE,
            policy="las",
            power=PowerSettings(),
            power_controls=power_controls,
            gpu=GpuOptions(**settings),
        )
    )


def test_shares_are_read_and_written_alike():
    assert parse_gpu_power_caps(" none, 60%,0.6 ,0.825") == ["none", "gpu-cap=60%", "gpu-cap=82.5%"]
    assert (
        gpu_cap_share("gpu-cap=82.5%") == 0.825
        and gpu_cap_share("none") is None
        and gpu_cap_share("all") is None
    )
    for text in ("200W", "0", "-5%", "101%", "nan", "inf", "", "60%%"):
        with pytest.raises(InputError, match="such as 60% or 0.6"):
            parse_gpu_power_caps(text)


def test_a_cap_slows_jobs_before_the_clock_and_lowers_power_after_it():
    """The run and its accounts are those of cap_gpus, simulate and account, called by hand."""
    free, held = done_with("none"), done_with("gpu-cap=60%")
    jobs = held.workload.jobs
    capped = cap_gpus(jobs, MIXED, POWER, 0.6, speeds_for("auto", jobs, MIXED))
    log = kw.simulate(jobs, MIXED, "las", settings=gpu_settings_for("las"), speeds=capped.speeds)
    np.testing.assert_array_equal(held.log.end_s, log.end_s)
    spent = account_energy(log, MIXED, POWER, gpu_cap=capped.gpu_cap)
    assert held.accounts.it_kwh == spent.it_kwh and held.accounts.by_state == spent.by_state
    assert held.accounts.notes == (*spent.notes, *capped.notes)
    ran = [float(done.log.jobs()["run_s"].sum()) for done in (free, held)]
    assert ran[1] > 1.1 * ran[0]
    assert held.accounts.peak_it_w < 0.9 * free.accounts.peak_it_w
    assert held.accounts.by_state["jobs"] < free.accounts.by_state["jobs"]
    assert "60 %" in held.controls_description and held.speeds.speed.max() < free.speeds.speed.max()


@pytest.mark.parametrize("power_controls", ["none", "gpu-cap=90%", "gpu-cap=50%", "gpu-cap=100%"])
@pytest.mark.parametrize("types", ["any", "least-energy"])
def test_every_joule_is_somebody_s(power_controls, types):
    spent = done_with(power_controls, gpu_type_order=types).accounts
    edges = spent.it_power.edge_s
    drawn_kwh = float(np.dot(np.diff(edges), spent.it_power.value)) / 3.6e6
    assert sum(spent.by_state.values()) == pytest.approx(drawn_kwh, rel=1e-9)
    assert spent.it_kwh == pytest.approx(drawn_kwh, rel=1e-9)
    assert sum(sum(group.values()) for group in spent.by_group.values()) == pytest.approx(drawn_kwh, rel=1e-9)


def test_a_cap_of_all_is_none():
    free, held = done_with("none"), done_with("gpu-cap=100%")
    np.testing.assert_array_equal(free.log.end_s, held.log.end_s)
    assert free.accounts.it_kwh == held.accounts.it_kwh


def test_nobody_is_below_the_bound():
    """The bound knows the speeds of the run, and the contenders' caps."""
    scenario = Scenario(TRACE, power=PowerSettings(), gpu=GpuOptions(gpu_type_order="least-energy"))
    who = make_policy_configs("fcfs,las", "none", parse_gpu_power_caps("none,80%,60%"), clairvoyant=False)
    ready = prepare(ComparisonPlan((scenario,), who, WindowOptions(windows=2, window_jobs=60)))
    drew = run(ready)[0].energy
    for policy in drew.metrics:
        for window in policy:
            assert 0 < window["least_kwh"] < window["energy_kwh"]
    meter, jobs = ready.cases[0].meter, ready.workloads[0].jobs
    speeds = speeds_for("auto", jobs, MIXED)
    least = meter.minimum_kwh(jobs, speeds)
    assert meter.minimum_kwh(jobs, speeds, (None, 0.8)) <= least
    assert meter.minimum_kwh(jobs) < 0.9 * least  # as if a T4 were as fast as all others
    alone = done_with("gpu-cap=80%", gpu_type_order="least-energy").accounts.by_state["jobs"]
    assert alone >= meter.minimum_kwh(jobs, speeds, (0.8,))


def test_the_levers_of_placed_nodes_are_caps():
    ready = prepare_control_comparison(Scenario(TRACE, power=PowerSettings()), "fcfs", "none")
    assert [who.power_controls for who in ready.policies][:3] == ["none", "gpu-cap=90%", "gpu-cap=80%"]
    with pytest.raises(InputError, match="cap their GPUs with --gpu-power-cap"):
        prepare_control_comparison(Scenario(TRACE, power=PowerSettings()), "fcfs", "none", "sleep=break-even")
    with pytest.raises(InputError, match="power caps are DVFS states"):
        check_controls_supported("gpu-cap=60%", kw.Cluster.from_nodes(4))
    with pytest.raises(InputError, match="gpu-cap=60% needs a power model"):
        Scenario(TRACE, power_controls="gpu-cap=60%")
