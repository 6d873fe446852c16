"""Tests that simulate, compare, the command line, evaluation and environments run with the same defaults."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import kilowait as kw
from kilowait.cli import main
from kilowait.evaluation.storage import load_run
from kilowait.experiments.scenario import prepare_scenario, run_scenario
from kilowait.experiments.settings import PowerSettings, Scenario

SCENARIOS = {
    "batch": Scenario("lublin:300:64:0.95:3"),
    "batch, estimates": Scenario("lublin:300:64:0.95:3", policy="sjf"),
    "GPU": Scenario("gpu:200:gpu-mixed:1.1:4", cluster="gpu-mixed", policy="las"),
    "GPU, round-based": Scenario("gpu:120:gpu-mixed:1.1:4", cluster="gpu-mixed", policy="gavel"),
    "predictions": Scenario("lublin:300:64:0.95:3", policy="saf", runtime_predictor="forest"),
    "power controls": Scenario(
        "lublin:300:64:0.6:3", power=PowerSettings("taurus"), power_controls="sleep=break-even+dvfs=1.1"
    ),
}
OPTIONS = {
    "predictions": ["--runtime-predictor", "forest"],
    "power controls": ["--power", "taurus", "--power-controls", "sleep=break-even+dvfs=1.1"],
}
"""Options of the scenarios on the command line, besides trace, cluster and policy."""


SETTINGS = ("backfill", "schedule_per", "on_oversized", "overrun")


def same(first: kw.ExecutionLog, second: kw.ExecutionLog) -> bool:
    first_jobs, second_jobs = first.jobs(), second.jobs()
    return all(np.array_equal(first_jobs[name], second_jobs[name]) for name in ("start_s", "end_s"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_defaults_are_the_same_everywhere(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    workload, cluster, _ = prepare_scenario(scenario)
    controls, power = scenario.power_controls, None if scenario.power is None else scenario.power.power
    command = ["simulate", scenario.trace, "--policy", scenario.policy, "--cluster", scenario.cluster]
    assert main([*command, *OPTIONS.get(name, ()), "--out", str(tmp_path / "run")]) == 0
    by_command_line = load_run(tmp_path / "run").log
    with_power = {} if power is None else {"power": power, "power_controls": controls}
    by_simulate = kw.simulate(workload.jobs, cluster, scenario.policy, **with_power)
    compared_power = {} if power is None else {"power": power, "power_controls": [controls]}
    by_compare = kw.compare(workload.jobs, cluster, [scenario.policy], **compared_power).logs(0, 0)
    by_scenario = run_scenario(scenario).log
    recorded = [{**log.run, "policy": ""} for log in (by_scenario, by_simulate, by_compare)]
    assert recorded[0] == recorded[1] == recorded[2]
    for log in (by_simulate, by_compare, by_command_line):
        assert same(by_scenario, log)


@pytest.mark.parametrize("name", ["batch", "GPU"])
def test_evaluation_has_the_defaults_of_simulate(name: str) -> None:
    scenario = SCENARIOS[name]
    workload, cluster, _ = prepare_scenario(scenario)
    result = kw.evaluate(scenario.policy, workload.jobs, cluster, ["sjf"], windows=2, window_jobs=20)
    assert result.labels == ("sjf", "agent")
    for number, window in enumerate(result.windows):
        assert same(result.logs(1, number), kw.simulate(window.jobs, cluster, scenario.policy))


def test_environments_have_the_defaults_of_simulate() -> None:
    """An agent that always chooses the oldest waiting job gives the log of fcfs."""
    pytest.importorskip("gymnasium")
    from kilowait.envs.batch_env import DecisionSettings, run_policy
    from kilowait.envs.gpu_env import run_gpu_policy

    workload, cluster, _ = prepare_scenario(SCENARIOS["batch"])
    settings = DecisionSettings(backfill_order="fcfs")
    log = run_policy(workload.jobs, cluster, lambda seen: seen["mask"].argmax(axis=1), decision_settings=settings)
    assert same(log, kw.simulate(workload.jobs, cluster, "fcfs"))
    workload, cluster, _ = prepare_scenario(SCENARIOS["GPU"])
    log = run_gpu_policy(workload.jobs, cluster, lambda seen: seen["mask"].argmax(axis=1))
    assert same(log, kw.simulate(workload.jobs, cluster, "fcfs", "skip"))


def test_linear_agents_train_on_the_schedules_of_simulate() -> None:
    """The agent of an untrained search is a policy whose log `simulate` gives too, under the default settings."""
    workload, cluster, _ = prepare_scenario(SCENARIOS["batch"])
    agent = kw.train(workload.jobs, cluster, generations=1, population=4, windows=2, window_jobs=20)
    evaluated = kw.evaluate(agent, workload.jobs, cluster, ["fcfs"], windows=1, window_jobs=20)
    assert same(evaluated.logs(1, 0), kw.simulate(evaluated.windows[0].jobs, cluster, agent))


def test_different_backfilling_gives_a_different_log() -> None:
    """The comparison of logs can fail: another backfilling gives another log."""
    scenario = SCENARIOS["batch"]
    workload, cluster, _ = prepare_scenario(scenario)
    other = kw.simulate(workload.jobs, cluster, scenario.policy, backfill="none")
    assert not same(run_scenario(scenario).log, other)


@pytest.mark.parametrize("blocking", [True, False])
def test_settings_of_a_comparison_are_used_in_its_runs(blocking: bool) -> None:
    workload, cluster, _ = prepare_scenario(SCENARIOS["GPU"])
    settings = kw.GpuSettings(head_of_line_blocking=blocking)
    log = kw.compare(workload.jobs, cluster, ["sjf"], settings=settings).logs(0, 0)
    assert log.run["head_of_line_blocking"] is blocking
    assert same(log, kw.simulate(workload.jobs, cluster, "sjf", settings=settings))


def test_default_backfilling_is_easy() -> None:
    jobs = kw.lublin(50, 16, load=0.9, seed=1)
    assert kw.simulate(jobs, kw.Cluster.from_nodes(16)).run["backfill"] == "easy" == kw.Settings().backfill


def test_simulate_and_compare_take_defaults_from_the_settings() -> None:
    """Arguments that are settings default to None or are passed by name to the settings object."""
    for module, function in (("policies/simulation.py", "simulate"), ("experiments/comparison/compare.py", "compare")):
        source = Path(kw.__file__).parent / module
        tree = ast.parse(source.read_text(encoding="utf-8"))
        found = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
        names = [arg.arg for arg in (*found.args.args, *found.args.kwonlyargs)]
        values = [*found.args.defaults, *found.args.kw_defaults]
        defaults = dict(zip(reversed(names), reversed(values), strict=False))
        for name in ("backfill", "backfill_order", "settings", "power_controls", "speeds", "preference"):
            if name in defaults:
                assert ast.literal_eval(defaults[name]) in (None, ("none",))  # compare: one set, no controls


def test_settings_have_no_other_defaults_in_the_package() -> None:
    """No other default of backfilling, limits or overruns is written down in the package."""
    root = Path(kw.__file__).parent
    written = []
    for path in sorted(root.rglob("*.py")):
        if path.name == "settings.py" and path.parent.name in ("engine", "gpu"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                pairs = [(node.target.id, node.value)]
            elif isinstance(node, ast.FunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args]
                pairs = [
                    *zip((one.arg for one in reversed(arguments)), reversed(node.args.defaults), strict=False),
                    *zip((one.arg for one in node.args.kwonlyargs), node.args.kw_defaults, strict=True),
                ]
            else:
                continue
            for name, value in pairs:
                if name not in SETTINGS or not isinstance(value, ast.Constant) or not isinstance(value.value, str):
                    continue
                # The command line must not import the engine before a verb runs; it repeats the values.
                if path.parent.name != "cli" or value.value != getattr(kw.Settings, name):
                    written.append(f"{path.relative_to(root)}: {name} = {value.value!r}")
    assert written == []
