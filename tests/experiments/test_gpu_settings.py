"""Settings of placed nodes in words; speeds and energy by GPU type."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster.gpu_speeds import SOURCES, gpu_types, measured_speeds
from kilowait.energy import PowerModel, energy_by_type
from kilowait.errors import InputError, KilowaitError
from kilowait.experiments.gpu_settings import (
    GpuOptions,
    gpu_type_energy,
    speed_sources_text,
    speeds_for,
)
from kilowait.experiments.scenario import Scenario, run_scenario
from kilowait.policies.simulation import gpu_settings_for
from kilowait.synth import gavel_jobs, gpu_workload

MIXED, GAVEL = kw.Cluster.preset("gpu-mixed"), kw.Cluster.preset("gavel")


@pytest.mark.parametrize("policy", ["fcfs", "las", "gavel"])
def test_what_is_not_asked_for_is_the_policy_s_own(policy):
    assert GpuOptions().to_settings(policy, "none", None) == gpu_settings_for(policy)


def test_what_is_asked_for_is_taken():
    asked = GpuOptions(
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
    found = asked.to_settings("las", "skip", "fgd", at_limit="kill")
    assert (found.gpu_type_order, found.preempt, found.migrate, found.placement) == (
        "fastest",
        False,
        True,
        "fgd",
    )
    assert found.checkpoint_s == math.inf and not found.head_of_line_blocking and found.at_limit == "kill"
    assert (
        found.checkpoint_load_s,
        found.checkpoint_write_s,
        found.grace_s,
        found.min_run_before_preempt_s,
    ) == (60.0, 30.0, 120.0, 300.0)
    assert (found.round_interval_s, found.rounds) == (360.0, True)
    assert not GpuOptions(round_interval="0").to_settings("fcfs", "none", None).rounds


def test_bad_settings_are_told_before_anything_runs():
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


def test_speeds_are_measured_where_they_can_be(tmp_path):
    jobs = gavel_jobs(200, 4.0)
    own = measured_speeds(jobs, gpu_types(GAVEL))
    found = speeds_for("auto", jobs, GAVEL)
    known = ~np.isnan(own.speed)
    assert 0 < known.sum() < known.size
    np.testing.assert_array_equal(found.speed[known], own.speed[known])
    assert (found.source[~known] == SOURCES.index("roofline")).all()
    assert "measured" in speed_sources_text(found, jobs) and "by roofline" in speed_sources_text(found, jobs)
    assert (speeds_for("roofline", jobs, GAVEL).source == SOURCES.index("roofline")).all()
    assert speeds_for("none", jobs, GAVEL) is None
    rows = {f"('{model}', 1)": {"null": 3.0} for model in jobs.labels["model"]}
    path = tmp_path / "fast.json"
    path.write_text(json.dumps({"v100": rows, "p100": rows, "k80": rows}))
    assert (speeds_for(str(path), jobs, GAVEL).speed == 1.0).all()
    with pytest.raises(InputError, match="speeds are 'no.json'"):
        speeds_for("no.json", jobs, GAVEL)


def test_types_nobody_knows_run_at_speed_1():
    openb = kw.Cluster.preset("openb")
    found = speeds_for("auto", gpu_workload(20, openb), openb)
    found.require_known()
    assert (found.speed[found.types.index("G2")] == 1.0).all()


def test_least_energy_goes_where_the_joules_are_fewest():
    jobs = gpu_workload(100, MIXED, seed=1)
    speeds = speeds_for("roofline", jobs, MIXED)
    by_catalogue = gpu_type_energy(jobs, MIXED, speeds)
    assert set(by_catalogue.argmin(0).tolist()) == {gpu_types(MIXED).index("T4")}
    settings = GpuOptions(gpu_type_order="least-energy", gpu_speeds="roofline")
    done = run_scenario(Scenario("gpu:100:gpu-mixed:0.3:1", gpu=settings))
    first = done.log.pieces.node_group[done.log.pieces.node[done.log.pieces.segment == 0]]
    assert MIXED.groups[int(first[0])].gpu_type == "T4"
    power = PowerModel.preset("gpu-mixed")
    np.testing.assert_array_equal(
        gpu_type_energy(jobs, MIXED, speeds, power), energy_by_type(jobs, MIXED, power, speeds)
    )
    with pytest.raises(InputError, match="what a GPU of type 'G2' draws"):
        gpu_type_energy(jobs, kw.Cluster.preset("openb"), None)


def test_the_scenario_holds_all_of_it():
    done = run_scenario(
        Scenario("gpu:50:gpu-mixed", policy="gavel", gpu=GpuOptions(checkpoint_load_time="1m"))
    )
    said = done.resolved()
    assert said["gpu"] == {"checkpoint_load_time": "1m", "gpu_speeds": "auto"}
    assert (said["backfill"], said["placement"]) == ("none", "consolidate")
    again = Scenario(**{**said, "cluster": "auto", "gpu": GpuOptions(**said["gpu"])})
    np.testing.assert_array_equal(run_scenario(again).log.end_s, done.log.end_s)
    assert "gpu" not in Scenario("lublin:20:8").to_dict()


def test_policies_side_by_side_from_python():
    jobs = gpu_workload(60, MIXED, seed=1)
    contest = kw.compare(kw.cut_windows(jobs, 2, window_jobs=30, seed=0), MIXED, ["fcfs", "las", "gavel"])
    assert contest.values("mean_turnaround_s").shape == (3, 2)
    assert [who.backfill for who in contest.policies] == ["none"] * 3
