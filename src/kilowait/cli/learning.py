"""Training of a network, as ``kilowait train --algo ppo`` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kilowait.cli import options, show

__all__ = ["show_on_gpus", "train_network"]

RIVALS = ("fcfs", "sjf", "saf", "f1", "wfp3")


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
) -> None:
    """Train on the first 60 % of the log, choose on the next 20 %, judge on the rest; all of it in a folder."""
    from kilowait.cli.compared import show_contests
    from kilowait.cluster.file import described
    from kilowait.errors import InputError
    from kilowait.evaluation.folders import check_free
    from kilowait.evaluation.judging import split
    from kilowait.experiments import learning, training
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.scenario import prepared
    from kilowait.units import parse_span

    how = learning.Learning(
        **asked,
        backfill=parse_backfill(backfill),
        reward=None if reward is None else weights_of(reward),
        limit={} if limit is None else weights_of(limit),
        sla_s=parse_span(sla),
        max_wait_s=None if max_wait is None else parse_span(max_wait),
    )
    state = learning.training_folder(out)
    if state.exists() and not resume and not force:
        raise InputError(
            f"{state} holds a training that was begun before; go on with --resume, or begin anew with --force"
        )
    if resume and not (state / "last.safetensors").exists():
        raise InputError(f"{state} holds no training to resume; begin one without --resume")
    check_free(out, force=force or resume)
    scenario = options.scenario_asked(context, trace, backfill=how.backfill)
    with show.busy(f"reading {trace} ..."):
        workload, machine, notes = prepared(scenario)
    for text in notes:
        show.note(text)
    if machine.placed and len(split(workload.jobs).test) < how.window_jobs:
        raise InputError(
            f"the last 20 % of the log hold no window of {how.window_jobs:,} jobs; take shorter ones (--window-jobs)"
        )
    if not machine.placed:
        training.test_windows(workload.jobs, how.window_jobs, seed=how.seed)
    parts = split(workload.jobs)
    settings = how.algorithm_settings()
    updates = max(1, how.steps // (settings.rollout * how.envs))
    if resume:
        show.note(f"going on with the training of {state}")
    curves = learning.Curves(state / "tensorboard", wandb=wandb, config={**asked, "trace": trace})
    with show.steps(updates) as step:

        def progress(update: Any) -> None:
            curves(update)
            best = "" if update.best != update.best else f", best so far {update.best:.3f}"
            step(
                f"update {update.number}, {update.steps:,} steps, {update.steps_per_s:,.0f}/s, "
                f"episodes {update.metric:.3f}{best}",
                update.number % max(1, updates // 20) == 0,
            )

        agent, history = learning.learn(
            parts.train, parts.validation, machine, how, folder=state, resume=resume, progress=progress
        )
    curves.close()
    if machine.placed:
        found = _judged_on_gpus(agent, parts.test, machine, how)
    else:
        found = _judged(agent, workload, machine, how, trace)
    manifest = workload.provenance(trace, show.command(context), show.today())
    learning.save_learned(
        out,
        history,
        scenario={
            **scenario.to_dict(),
            "training": {**asked, **({} if reward is None else {"reward": reward})},
            "cluster": described(machine),
        },
        results={"judged": found, "objective": reward or ("jct=1" if machine.placed else "slowdown=1")},
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": how.seed}},
        force=force or resume,
    )
    if json:
        show.json_document({"agent": agent.provenance, "judged": found, "out": out})
        return
    if machine.placed:
        show_on_gpus(found)
    else:
        for text in found["notes"]:
            show.note(text)
        show_contests([found], [workload])
    print(f"\nwritten to {out}; use it as: --policies saf,agent:{out / 'agent.pt'}")
    print(f"curves: tensorboard --logdir {state}; longer: the same command with more --steps and --resume")


def _judged(agent: Any, workload: Any, machine: Any, how: Any, trace: str) -> dict[str, Any]:
    from kilowait.experiments import training
    from kilowait.experiments.results import results_of

    with show.busy("trying it on later jobs ..."):
        judged = training.Training(seed=how.seed, backfill=how.backfill, window_jobs=how.window_jobs)
        contest = training.judged(
            agent, RIVALS, workload.jobs, machine, judged, trace=trace, clairvoyant=True
        )
        return results_of(contest, "mean_bsld", seed=how.seed)


def _judged_on_gpus(agent: Any, later: Any, machine: Any, how: Any) -> dict[str, Any]:
    from kilowait.experiments import gpu_judging

    count = len(later) // how.window_jobs
    windows = [later[i * how.window_jobs : (i + 1) * how.window_jobs] for i in range(count)]
    with show.busy("trying it on later jobs ..."):
        return gpu_judging.judged_on_gpus(agent, windows, machine, seed=how.seed)


def show_on_gpus(found: Mapping[str, Any]) -> None:
    """The table of a judging on a GPU cluster, and what it says of the agent."""
    from kilowait.units import format_span

    rows = sorted(found["policies"].items(), key=lambda row: row[1]["mean_jct_s"])
    print(f"later jobs: {found['windows']} windows of {found['window_jobs']:,} jobs, all of them counted\n")
    print(
        f"{'':<16}{'mean completion':>18}{'95 % below':>16}{'makespan':>16}{'GPUs held':>11}{'by FLOPS':>10}"
    )
    for name, row in rows:
        spans = [format_span(row[figure]) for figure in ("mean_jct_s", "p95_jct_s", "makespan_s")]
        print(
            f"{name:<16}{spans[0]:>18}{spans[1]:>16}{spans[2]:>16}{row['gpu_utilization']:>10.1%} "
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
