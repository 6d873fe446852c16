"""Training of a network, as ``kilowait train --algo ppo`` shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kilowait import agents
from kilowait.cli import console, options, train_synthetic
from kilowait.cli.train_batch import RIVALS
from kilowait.cli.train_power import judged_with_power, show_on_energy
from kilowait.cli.train_resume import resumable, state_folder

__all__ = ["show_on_gpus", "train_network"]


def train_network(
    context: typer.Context,
    trace: str,
    out: Path,
    asked: Mapping[str, Any],
    *,
    backfill: str,
    reward: str | None,
    limit: str | None,
    sla: str,
    max_wait: str | None,
    resume: bool,
    wandb: str | None,
    json: bool,
    force: bool,
    levers: str | None = None,
) -> None:
    """Train on the first 60 % of the log, choose on the next 20 %, judge on the rest; all of it in a folder."""
    from kilowait.cli.output.compare import show_contests
    from kilowait.cluster.toml import to_dict
    from kilowait.errors import InputError
    from kilowait.evaluation.comparison import split
    from kilowait.experiments import (
        pareto,
        train_batch,
        train_power,
        train_rl,
    )
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.training_logger import TrainingLogger
    from kilowait.units import parse_span

    how = train_rl.RLTraining(
        **asked,
        backfill=parse_backfill(backfill),
        reward=None if reward is None else weights_of(reward),
        limit={} if limit is None else weights_of(limit),
        sla_s=parse_span(sla),
        max_wait_s=None if max_wait is None else parse_span(max_wait),
    )
    state = state_folder(out, resume=resume, force=force)
    named = {**(how.reward or {}), **dict.fromkeys(how.preferences, 1.0), **how.limit}
    train_power.check_reward(named, levers is not None)
    scenario = options.scenario_from_options(context, trace, backfill=how.backfill, levers=levers or "none")
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
        workload = train_batch.judged_last(workload)
    power = None
    if scenario.power is not None and levers is not None:
        power = train_power.PowerTraining.of(scenario.power, levers, workload.jobs, machine)
    for text in (*notes, *workload.leakage_notes):
        console.note(text)
    if machine.node_level and len(split(workload.jobs).test) < how.window_jobs:
        raise InputError(
            f"the last 20 % of the log hold no window of {how.window_jobs:,} jobs; take shorter ones (--window-jobs)"
        )
    if not machine.node_level:
        train_batch.test_windows(workload.jobs, how.window_jobs, seed=how.seed)
    drawn = train_synthetic.generated_jobs(context, scenario, workload, machine, how.seed)
    parts = split(workload.jobs)
    settings = how.algorithm_settings()
    updates = max(1, how.steps // (agents.steps_per_update(settings) * how.envs))
    curves = TrainingLogger(state / "tensorboard", wandb=wandb, config={**asked, "trace": trace})
    taught = train_rl.warm_updates(how)
    with console.steps(taught + updates) as step, resumable(state, resume=resume):

        def progress(update: Any) -> None:
            if "imitation" in update.losses:
                agreed = update.losses["agreement"]
                text = f"imitating {how.teacher}, {update.steps:,} choices, {agreed:.1%} as the teacher"
                step(text, update.number % max(1, taught // 10) == 0, update.number)
                return
            curves(update)
            ended = "" if math.isnan(update.metric) else f", episodes {update.metric:.3f}"
            best = "" if math.isnan(update.best) else f", best so far {update.best:.3f}"
            step(
                f"update {update.number}, {update.steps:,} steps, {update.steps_per_s:,.0f}/s{ended}{best}",
                update.number % max(1, updates // 20) == 0,
                taught + update.number,
            )

        agent, history = train_rl.learn(
            parts.train, parts.validation, machine, how,
            folder=state, resume=resume, progress=progress, power=power,
            mixture=None if drawn is None else drawn.mixture,
        )  # fmt: skip
    curves.close()
    front = None
    if how.preferences:
        with console.busy("trying it on later jobs under every preference ..."):
            front = pareto.front(
                agent, parts.test, machine, window_jobs=how.window_jobs, seed=how.seed, power=power
            )
        agent = agent.prefer(**dict.fromkeys(how.preferences, 1.0))  # beside rules with even weights
    if power is not None:
        found = judged_with_power(
            agent,
            parts.test,
            machine,
            power.meter,
            power.levers,
            how.backfill,
            how.window_jobs,
            train_power.spent_in(dict.fromkeys(how.preferences, 1.0) or how.reward),
            how.seed,
        )
    elif machine.node_level:
        found = _judged_on_gpus(agent, parts.test, machine, how)
    else:
        found = _judged(agent, workload, machine, how, trace)
    manifest = workload.provenance(
        trace, console.command(context), console.today()
    ) | train_synthetic.kept_with(drawn)
    train_rl.save_learned(
        out,
        history,
        scenario={
            **scenario.to_dict(),
            "training": {
                **{name: value for name, value in asked.items() if value is not None},
                **({} if reward is None else {"reward": reward}),
                **({"preferences": list(how.preferences)} if how.preferences else {}),
            },
            "cluster": to_dict(machine),
        },
        results={
            "judged": found,
            "objective": " against ".join(how.preferences)
            or reward
            or _usual(machine.node_level, power is not None),
            **({} if front is None else {"front": front}),
        },
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": how.seed}},
        force=force or resume,
    )
    if json:
        told = {} if front is None else {"front": front}
        console.json_document({"agent": agent.provenance, "judged": found, **told, "out": out})
        return
    if front is not None:
        from kilowait.cli.pareto import show_front

        show_front(front)
        console.note("beside rules it is judged with even weights")
    if power is not None:
        show_on_energy(found)
    elif machine.node_level:
        show_on_gpus(found)
    else:
        for text in found["notes"]:
            console.note(text)
        show_contests([found], [workload])
    rule = "srtf" if machine.node_level else "saf"
    told_so = f":prefer={how.preferences[0]}=0.3+{how.preferences[1]}=0.7" if how.preferences else ""
    print(f"\nwritten to {out}; use it as: --policies {rule},agent:{out / 'agent.pt'}{told_so}")
    print(f"curves: tensorboard --logdir {state}; longer: the same command with more --steps and --resume")


def _usual(placed: bool, power: bool) -> str:
    """The reward where none is named."""
    if power:
        return "turnaround=1,energy=1"
    return "jct=1" if placed else "slowdown=1"


def _judged(agent: Any, workload: Any, machine: Any, how: Any, trace: str) -> dict[str, Any]:
    from kilowait.experiments import train_batch
    from kilowait.experiments.comparison_results import results_of

    with console.busy("trying it on later jobs ..."):
        judged = train_batch.BatchTraining(seed=how.seed, backfill=how.backfill, window_jobs=how.window_jobs)
        contest = train_batch.judged(
            agent, RIVALS, workload.jobs, machine, judged, trace=trace, clairvoyant=True
        )
        return results_of(contest, "mean_bsld", seed=how.seed)


def _judged_on_gpus(agent: Any, later: Any, machine: Any, how: Any) -> dict[str, Any]:
    from kilowait.experiments import evaluate_gpu

    count = len(later) // how.window_jobs
    windows = [later[i * how.window_jobs : (i + 1) * how.window_jobs] for i in range(count)]
    with console.busy("trying it on later jobs ..."):
        return evaluate_gpu.judged_on_gpus(agent, windows, machine, seed=how.seed)


def show_on_gpus(found: Mapping[str, Any]) -> None:
    """The table of a judging on a GPU cluster, and what it says of the agent."""
    from kilowait.units import format_span

    rows = sorted(found["policies"].items(), key=lambda row: row[1]["mean_jct_s"])
    print(f"later jobs: {found['windows']} windows of {found['window_jobs']:,} jobs, all of them counted\n")
    wide = 2 + max(map(len, found["policies"]))
    print(
        f"{'':<{wide}}{'mean completion':>15}{'95 % below':>16}{'makespan':>16}{'GPUs held':>11}{'by FLOPS':>10}"
    )
    for name, row in rows:
        spans = [format_span(row[figure]) for figure in ("mean_jct_s", "p95_jct_s", "makespan_s")]
        print(
            f"{name:<{wide}}{spans[0]:>15}{spans[1]:>16}{spans[2]:>16}{row['gpu_utilization']:>10.1%} "
            f"{row['flops_utilization']:>9.1%}"
        )
    ratio = found["ratios"].get("agent")
    if ratio is not None:
        value, low, high = ratio
        print(
            f"\nagent: {value:.3f} of the best rule's mean completion time, 95 % interval {low:.3f} to {high:.3f}"
        )


def weights_of(text: str) -> dict[str, float]:
    """Weights written as name=number, with commas between.

    >>> weights_of("slowdown=1,sla=10")
    {'slowdown': 1.0, 'sla': 10.0}
    """
    from kilowait.errors import InputError

    found = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(
                f"reward {part.strip()!r} is not written as term=weight, for instance slowdown=1,sla=10"
            )
    return found
