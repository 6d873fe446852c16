"""``kilowait train --power`` and ``kilowait evaluate --power``: train and test agents that use power controls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kilowait.cli import console, options
from kilowait.cli.train_batch import TRAIN_LONGER_HINT
from kilowait.cli.train_resume import resumable, state_folder

__all__ = ["evaluate_on_test_jobs", "evaluate_on_windows", "show_energy_evaluation", "train_power_agent"]


def train_power_agent(
    context: typer.Context,
    trace: str,
    out: Path,
    *,
    power_controls: str,
    objective: str,
    max_slowdown_ratio: float,
    backfill: str,
    training: Mapping[str, Any],
    resume: bool,
    json: bool,
    force: bool,
) -> None:
    """Search the weights of a linear power agent with CMA-ES, test it, and write everything to a folder."""
    from kilowait.agents.linear_power.agent import WEIGHT_MEANINGS
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.comparison import split
    from kilowait.experiments import train_power
    from kilowait.experiments.linear_agent_folder import save_weights
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.scenario_inputs import parse_backfill
    from kilowait.experiments.train_batch import with_test_predictions

    state = state_folder(context, out, resume=resume, force=force)
    depth = parse_backfill(backfill)
    scenario = options.scenario_from_options(context, trace, backfill=depth, power_controls=power_controls)
    assert scenario.power is not None
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
        workload = with_test_predictions(workload)
        power_training = train_power.PowerTraining.of(scenario.power, power_controls, workload.jobs, machine)
    for note in (*notes, *workload.leakage_notes):
        console.note(note)
    parts = split(workload.jobs)
    _windows_of(parts.test, training["window_jobs"])  # raises before the training if the log is too short
    with console.steps(training["generations"]) as step, resumable(state, resume=resume):
        agent, history = train_power.train_power_agent(
            parts.train,
            parts.validation,
            machine,
            power_training,
            objective=objective,
            max_slowdown_ratio=max_slowdown_ratio,
            policy="saf",
            trace=trace,
            backfill=depth,
            progress=lambda done: step(
                f"best so far {done.best:.3f} of the best hand-tuned policy", done.number % 10 == 0, done.number
            ),
            folder=state,
            resume=resume,
            **training,
        )
    evaluation = evaluate_on_test_jobs(
        agent,
        parts.test,
        machine,
        power_training.context,
        power_controls,
        depth,
        training["window_jobs"],
        objective,
        training["seed"],
    )
    manifest = workload.provenance(trace, console.command(context), console.today())
    save_weights(
        out,
        agent,
        history,
        WEIGHT_MEANINGS,
        scenario={
            **scenario.to_dict(),
            "training": {
                "algo": "cma-es",
                "objective": objective,
                "max_slowdown_ratio": max_slowdown_ratio,
                **training,
            },
            "cluster": to_dict(machine),
        },
        results={"judged": evaluation},
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": training["seed"]}},
        force=force or resume,
    )
    if json:
        console.json_document({"agent": agent.provenance, "judged": evaluation, "out": out})
        return
    show_energy_evaluation(evaluation)
    print(
        f"\nwritten to {out}; use it with: kilowait simulate --policy "
        f"agent:{out / 'agent.json'} --power ... --power-controls {power_controls}"
    )
    print(TRAIN_LONGER_HINT)


def evaluate_on_test_jobs(
    agent: Any,
    later: Any,
    machine: Any,
    power_context: Any,
    power_controls: str,
    backfill: str | int,
    window_jobs: int,
    objective: str,
    seed: int,
) -> dict[str, Any]:
    """Test the agent against policies with hand-tuned power controls on consecutive windows of the test jobs."""
    windows = _windows_of(later, window_jobs)
    return evaluate_on_windows(
        agent, windows, machine, power_context, power_controls, backfill, objective=objective, seed=seed
    )


def evaluate_on_windows(
    agent: Any,
    windows: list[Any],
    machine: Any,
    power_context: Any,
    power_controls: str,
    backfill: str | int,
    *,
    objective: str = "energy",
    seed: int,
) -> dict[str, Any]:
    """Test the agent against policies with hand-tuned power controls on these windows."""
    from kilowait.experiments.evaluate_power import evaluate_power_agent
    from kilowait.experiments.train_power import bind_agent_power

    with console.busy("testing the agent on later jobs ..."):
        return evaluate_power_agent(
            bind_agent_power(agent, power_context, power_controls),
            windows,
            machine,
            power_context,
            power_controls=power_controls,
            backfill=backfill,
            objective=objective,
            seed=seed,
        )


def _windows_of(later: Any, window_jobs: int) -> list[Any]:
    from kilowait.errors import InputError

    count = len(later) // window_jobs
    if count == 0:
        raise InputError(
            f"the {len(later):,} test jobs, the last 20 % of the log, are fewer than one window of {window_jobs:,} "
            "jobs; choose a shorter --window"
        )
    return [later[i * window_jobs : (i + 1) * window_jobs] for i in range(count)]


def show_energy_evaluation(evaluation: Mapping[str, Any]) -> None:
    """Print the test results with energy, and how the agent compares with the Pareto front."""
    from kilowait.units import format_duration

    objective, policies = evaluation["objective"], evaluation["policies"]
    print(f"test jobs: {evaluation['windows']} windows of {evaluation['window_jobs']:,} jobs, every job counted\n")
    extra = [name for name in ("co2", "cost") if name in policies["agent"]]
    heads = ["kWh/job", *({"co2": "kg CO2/job", "cost": "cost/job"}[name] for name in extra)]
    heads += ["slowdown", "mean wait", "95 % wait below"]
    order = sorted(
        {"agent", *evaluation["front"], *(name for name in policies if name.endswith(", none"))},
        key=lambda name: policies[name][objective],
    )
    rows = []
    for name in order:
        row = policies[name]
        cells = [console.number(row[figure]) for figure in ("energy", *extra)]
        cells += [f"{row['slowdown']:.3f}", format_duration(row["wait_s"]), format_duration(row["p95_wait_s"])]
        rows.append([name, *cells, "front" if name in evaluation["front"] else ""])
    console.table(["", *heads, ""], rows)
    value, low, high = evaluation["margin"]["objective_ratio"]
    other, lower, higher = evaluation["margin"]["delay_ratio"]
    print(
        f"\nagent: {value:.3f} of the lowest {objective} among the {len(policies) - 1} hand-tuned policies whose "
        f"slowdown is not larger, 95 % interval {low:.3f} to {high:.3f};"
    )
    print(
        f"       {other:.3f} of the lowest slowdown among those whose {objective} is not larger, {lower:.3f} "
        f"to {higher:.3f}"
    )
    print(_conclusion(evaluation))


def _conclusion(evaluation: Mapping[str, Any]) -> str:
    margin = evaluation["margin"]
    if margin["objective_ratio"][2] < 1 or margin["delay_ratio"][2] < 1:
        return "the agent dominates part of the Pareto front of the hand-tuned power controls"
    if margin["objective_ratio"][0] >= 1 and margin["delay_ratio"][0] >= 1:
        return "the agent is not better than the Pareto front of the hand-tuned power controls: use those"
    return "the difference to the Pareto front of the hand-tuned power controls is not significant"
