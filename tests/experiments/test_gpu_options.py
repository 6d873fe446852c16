"""Tests of GPU options, and of speeds and energy by GPU type."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster.gpu_speeds import SPEED_SOURCES, gpu_types, measured_speeds
from kilowait.energy import PowerModel, energy_by_type
from kilowait.errors import InputError, KilowaitError
from kilowait.experiments.gpu_options import gpu_type_energy, speed_sources_text, speeds_for
from kilowait.experiments.scenario import run_scenario
from kilowait.experiments.settings import GpuOptions, Scenario
from kilowait.policies.simulation import gpu_settings_for
from kilowait.synth import gavel_jobs, gpu_workload

MIXED, GAVEL = kw.Cluster.preset("gpu-mixed"), kw.Cluster.preset("gavel")


@pytest.mark.parametrize("policy", ["fcfs", "las", "gavel"])
def test_default_options_give_the_settings_of_the_policy(policy):
    assert GpuOptions().to_settings(policy, "none", None) == gpu_settings_for(policy)


def test_options_change_the_settings():
    options = GpuOptions(
        gpu_type_order="fastest",
        preempt=False,
        migrate=True,
        checkpoint_interval="never",
        checkpoint_load_time="1m",
        checkpoint_write_time="30",
        preempt_grace="2m",
        preempt_min_runtime="5m",
        round_interval="6m",
    )
    settings = options.to_settings("las", "skip", "fgd", at_limit="kill")
    assert (settings.gpu_type_order, settings.preempt, settings.migrate, settings.placement) == (
        "fastest",
        False,
        True,
        "fgd",
    )
    assert settings.checkpoint_s == math.inf and not settings.head_of_line_blocking and settings.at_limit == "kill"
    assert (
        settings.checkpoint_load_s,
        settings.checkpoint_write_s,
        settings.grace_s,
        settings.min_run_before_preempt_s,
    ) == (60.0, 30.0, 120.0, 300.0)
    assert (settings.round_interval_s, settings.rounds) == (360.0, True)
    assert not GpuOptions(round_interval="0").to_settings("fcfs", "none", None).rounds


def test_invalid_options_are_rejected_before_any_run():
    with pytest.raises(KilowaitError, match="did you mean 'fastest'"):
        GpuOptions(gpu_type_order="fast")
    with pytest.raises(InputError, match="--preempt-grace: 'soon' is not a span"):
        GpuOptions(preempt_grace="soon")
    with pytest.raises(KilowaitError, match="placement rule"):
        Scenario("x.swf", placement="frist")
    with pytest.raises(InputError, match="preempt_min_runtime is for GPU clusters"):
        run_scenario(Scenario("lublin:20:8", gpu=GpuOptions(preempt_min_runtime="5m")))
    with pytest.raises(InputError, match="GPU clusters have no reservations"):
        run_scenario(Scenario("gpu:20:gpu-mixed", backfill="easy"))


def test_measured_speeds_are_used_if_known(tmp_path):
    jobs = gavel_jobs(200, 4.0)
    measured = measured_speeds(jobs, gpu_types(GAVEL))
    speeds = speeds_for("auto", jobs, GAVEL)
    known = ~np.isnan(measured.speed)
    assert 0 < known.sum() < known.size
    np.testing.assert_array_equal(speeds.speed[known], measured.speed[known])
    others = [SPEED_SOURCES.index(name) for name in ("roofline", "recorded")]
    assert np.isin(speeds.source[~known], others).all()
    own = speeds.types.index("V100")
    assert (speeds.source[own] == SPEED_SOURCES.index("recorded")).all() and (speeds.speed[own] == 1).all()
    text = speed_sources_text(speeds, jobs)
    assert "measured" in text and "by roofline" in text
    assert (speeds_for("roofline", jobs, GAVEL).source[own + 1 :] == SPEED_SOURCES.index("roofline")).all()
    assert speeds_for("none", jobs, GAVEL) is None
    rows = {f"('{model}', 1)": {"null": 3.0} for model in jobs.labels["model"]}
    path = tmp_path / "fast.json"
    path.write_text(json.dumps({"v100": rows, "p100": rows, "k80": rows}))
    assert (speeds_for(str(path), jobs, GAVEL).speed == 1.0).all()
    with pytest.raises(InputError, match="speeds are 'no.json'"):
        speeds_for("no.json", jobs, GAVEL)


def test_unknown_gpu_types_have_speed_1():
    openb = kw.Cluster.preset("openb")
    speeds = speeds_for("auto", gpu_workload(20, openb), openb)
    speeds.require_known()
    assert (speeds.speed[speeds.types.index("G2")] == 1.0).all()


def test_unknown_types_of_run_times_and_logs_without_gpu_jobs_are_noted(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,runtime_s,nodes,cores,gpus\n1,0,60,1,1,1\n2,0,60,1,1,0\n")
    notes = run_scenario(Scenario(str(path), cluster="gpu-mixed")).notes
    assert "1 of 1 GPU jobs do not say on which GPU type their run time was measured" in " ".join(notes)
    assert not run_scenario(Scenario("gpu:20:gpu-mixed")).notes
    path.write_text("job_id,submit_s,runtime_s,nodes,cores,gpus\n2,0,60,1,1,0\n")
    notes = run_scenario(Scenario(str(path), cluster="gpu-mixed")).notes
    assert notes == ("none of the 1 jobs requests a GPU: all run on the cores of gpu-mixed",)


def test_least_energy_order_starts_with_the_most_efficient_type():
    jobs = gpu_workload(100, MIXED, seed=1)
    speeds = speeds_for("roofline", jobs, MIXED)
    by_catalogue = gpu_type_energy(jobs, MIXED, speeds)
    assert set(by_catalogue.argmin(0).tolist()) == {gpu_types(MIXED).index("T4")}
    options = GpuOptions(gpu_type_order="least-energy", gpu_speeds="roofline")
    pieces = run_scenario(Scenario("gpu:100:gpu-mixed:0.3:1", gpu=options)).log.pieces
    first_groups = pieces.node_group[pieces.node[pieces.segment == 0]]
    assert MIXED.groups[int(first_groups[0])].gpu_type == "T4"
    power = PowerModel.preset("gpu-mixed")
    np.testing.assert_array_equal(
        gpu_type_energy(jobs, MIXED, speeds, power), energy_by_type(jobs, MIXED, power, speeds)
    )
    with pytest.raises(InputError, match="power of GPU type 'G2' is unknown"):
        gpu_type_energy(jobs, kw.Cluster.preset("openb"), None)


def test_scenario_with_gpu_options_can_be_repeated():
    result = run_scenario(Scenario("gpu:50:gpu-mixed", policy="gavel", gpu=GpuOptions(checkpoint_load_time="1m")))
    resolved = result.resolved()
    assert resolved["gpu"] == {"checkpoint_load_time": "1m", "gpu_speeds": "auto"}
    assert (resolved["backfill"], resolved["placement"]) == ("none", "consolidate")
    again = Scenario(**{**resolved, "cluster": "auto", "gpu": GpuOptions(**resolved["gpu"])})
    np.testing.assert_array_equal(run_scenario(again).log.end_s, result.log.end_s)
    assert "gpu" not in Scenario("lublin:20:8").to_dict()


def test_comparison_on_a_gpu_cluster():
    jobs = gpu_workload(60, MIXED, seed=1)
    comparison = kw.compare(kw.cut_windows(jobs, 2, window_jobs=30, seed=0), MIXED, ["fcfs", "las", "gavel"])
    assert comparison.values("mean_turnaround_s").shape == (3, 2)
    assert [config.backfill for config in comparison.policies] == ["skip"] * 3, "as gavel skips jobs"
