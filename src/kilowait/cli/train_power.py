"""Training and judging where power is drawn, as ``kilowait train --power`` and ``kilowait evaluate`` show it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kilowait.cli import console, options
from kilowait.cli.train_batch import LONGER
from kilowait.cli.train_resume import resumable, state_folder

__all__ = ["judged_on_windows", "judged_with_power", "show_on_energy", "train_steering"]


def train_steering(
    context: typer.Context,
    trace: str,
    out: Path,
    *,
    levers: str,
    objective: str,
    promise: float,
    backfill: str,
    how: Mapping[str, Any],
    resume: bool,
    json: bool,
    force: bool,
) -> None:
    """An evolution strategy on the weights that steer power; all of it in a folder."""
    from kilowait.agents.linear_power.agent import WEIGHTS
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.comparison import split
    from kilowait.experiments import train_power
    from kilowait.experiments.agent_folder import save_weights
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.train_batch import judged_last

    state = state_folder(out, resume=resume, force=force)
    depth = parse_backfill(backfill)
    scenario = options.scenario_from_options(context, trace, backfill=depth, levers=levers)
    assert scenario.power is not None
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
        workload = judged_last(workload)
        powering = train_power.PowerTraining.of(scenario.power, levers, workload.jobs, machine)
    for text in (*notes, *workload.leakage_notes):
        console.note(text)
    parts = split(workload.jobs)
    _windows_of(parts.test, how["window_jobs"])  # a log too short is told before the training
    with console.steps(how["generations"]) as step, resumable(state, resume=resume):
        agent, history = train_power.train_es(
            parts.train,
            parts.validation,
            machine,
            powering,
            spent=objective,
            times=promise,
            rule="saf",
            trace=trace,
            backfill=depth,
            progress=lambda done: step(
                f"best so far {done.best:.3f} of the best by hand", done.number % 10 == 0, done.number
            ),
            folder=state,
            resume=resume,
            **how,
        )
    found = judged_with_power(
        agent, parts.test, machine, powering.meter, levers, depth, how["window_jobs"], objective, how["seed"]
    )
    manifest = workload.provenance(trace, console.command(context), console.today())
    save_weights(
        out,
        agent,
        history,
        WEIGHTS,
        scenario={
            **scenario.to_dict(),
            "training": {"algo": "es", "objective": objective, "promise": promise, **how},
            "cluster": to_dict(machine),
        },
        results={"judged": found},
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": how["seed"]}},
        force=force or resume,
    )
    if json:
        console.json_document({"agent": agent.provenance, "judged": found, "out": out})
        return
    show_on_energy(found)
    print(f"\nwritten to {out}; use it as: --policy agent:{out / 'agent.json'} --power ... --levers {levers}")
    print(LONGER)


def judged_with_power(
    agent: Any,
    later: Any,
    machine: Any,
    meter: Any,
    levers: str,
    backfill: str | int,
    window_jobs: int,
    spent: str,
    seed: int,
) -> dict[str, Any]:
    """The agent beside rules with levers written by hand on windows of later jobs, side by side."""
    windows = _windows_of(later, window_jobs)
    return judged_on_windows(agent, windows, machine, meter, levers, backfill, spent=spent, seed=seed)


def judged_on_windows(
    agent: Any,
    windows: list[Any],
    machine: Any,
    meter: Any,
    levers: str,
    backfill: str | int,
    *,
    spent: str = "energy",
    seed: int,
) -> dict[str, Any]:
    """The same on windows that are cut already."""
    from kilowait.experiments.evaluate_power import judged_on_energy
    from kilowait.experiments.train_power import bind_agent_power

    with console.busy("trying it on later jobs ..."):
        return judged_on_energy(
            bind_agent_power(agent, meter, levers),
            windows,
            machine,
            meter,
            levers=levers,
            backfill=backfill,
            spent=spent,
            seed=seed,
        )


def _windows_of(later: Any, window_jobs: int) -> list[Any]:
    from kilowait.errors import InputError

    count = len(later) // window_jobs
    if count == 0:
        raise InputError(
            f"the last part of the log, {len(later):,} jobs, holds no window of {window_jobs:,}; take shorter ones "
            "(--window-jobs)"
        )
    return [later[i * window_jobs : (i + 1) * window_jobs] for i in range(count)]


def show_on_energy(found: Mapping[str, Any]) -> None:
    """The table of a judging with power, and what it says of the agent."""
    from kilowait.units import format_span

    spent, policies = found["spent"], found["policies"]
    print(f"later jobs: {found['windows']} windows of {found['window_jobs']:,} jobs, all of them counted\n")
    extra = [name for name in ("co2", "cost") if name in policies["agent"]]
    heads = ["kWh/job", *({"co2": "kg CO2/job", "cost": "cost/job"}[name] for name in extra)]
    heads += ["slowdown", "mean wait", "95 % below"]
    order = sorted(
        {"agent", *found["front"], *(name for name in policies if name.endswith(", none"))},
        key=lambda name: policies[name][spent],
    )
    rows = []
    for name in order:
        row = policies[name]
        cells = [console.number(row[figure]) for figure in ("energy", *extra)]
        cells += [f"{row['slowdown']:.3f}", format_span(row["wait_s"]), format_span(row["p95_wait_s"])]
        rows.append([name, *cells, "front" if name in found["front"] else ""])
    console.table(["", *heads, ""], rows)
    value, low, high = found["beyond"]["spent"]
    other, lower, higher = found["beyond"]["waited"]
    print(
        f"\nagent: {value:.3f} of the least {spent} of the {len(policies) - 1} by hand with no larger slowdown, 95 % "
        f"interval {low:.3f} to {high:.3f};"
    )
    print(
        f"       {other:.3f} of the least slowdown of those that spend no more, {lower:.3f} to {higher:.3f}"
    )
    print(_verdict(found))


def _verdict(found: Mapping[str, Any]) -> str:
    lies = found["beyond"]
    if lies["spent"][2] < 1 or lies["waited"][2] < 1:
        return "it lies beyond the front of the levers written by hand"
    if lies["spent"][0] >= 1 and lies["waited"][0] >= 1:
        return "it does not lie beyond the front of the levers written by hand: use those"
    return "whether it lies beyond the front of the levers written by hand is undecided"
