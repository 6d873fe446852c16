"""``kilowait train --algo ppo|a2c|d3qn|sac``: train a network, test it, print the results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kilowait import agents
from kilowait.cli import console, options, train_synthetic
from kilowait.cli.train_batch import BASELINES
from kilowait.cli.train_power import evaluate_on_test_jobs, show_energy_evaluation
from kilowait.cli.train_resume import resumable, state_folder

__all__ = ["show_gpu_evaluation", "train_network"]


def train_network(
    context: typer.Context,
    trace: str,
    out: Path,
    settings: Mapping[str, Any],
    *,
    backfill: str,
    reward: str | None,
    constraint: str | None,
    sla: str,
    max_wait: str | None,
    resume: bool,
    wandb: str | None,
    json: bool,
    force: bool,
    power_controls: str | None = None,
) -> None:
    """Train on the first 60 % of the log, validate on the next 20 %, test on the rest; write everything to a folder."""
    from kilowait.cli.output.compare import show_comparisons
    from kilowait.cluster.toml import to_dict
    from kilowait.errors import InputError
    from kilowait.evaluation.comparison import split
    from kilowait.experiments import pareto, train_batch, train_power, train_rl
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.scenario_inputs import parse_backfill
    from kilowait.experiments.training_logger import TrainingLogger
    from kilowait.units import parse_duration

    training = train_rl.RLTraining(
        **settings,
        backfill=parse_backfill(backfill),
        reward=None if reward is None else weights_of(reward),
        constraint={} if constraint is None else weights_of(constraint),
        sla_s=parse_duration(sla),
        max_wait_s=None if max_wait is None else parse_duration(max_wait),
    )
    state = state_folder(context, out, resume=resume, force=force)
    terms = {**(training.reward or {}), **dict.fromkeys(training.objectives, 1.0), **training.constraint}
    train_power.check_reward(terms, power_controls is not None)
    scenario = options.scenario_from_options(
        context, trace, backfill=training.backfill, power_controls=power_controls or "none"
    )
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
        workload = train_batch.with_test_predictions(workload)
    power = None
    if scenario.power is not None and power_controls is not None:
        power = train_power.PowerTraining.of(scenario.power, power_controls, workload.jobs, machine)
    for note in (*notes, *workload.leakage_notes):
        console.note(note)
    if machine.node_level and len(split(workload.jobs).test) < training.window_jobs:
        raise InputError(
            f"the last 20 % of the log are fewer than one window of {training.window_jobs:,} jobs; "
            "choose a shorter --window"
        )
    if not machine.node_level:
        train_batch.windows_of_test_split(workload.jobs, training.window_jobs, seed=training.seed)
    generated = train_synthetic.generated_jobs(context, scenario, workload, machine, training.seed)
    parts = split(workload.jobs)
    algorithm = training.algorithm_settings()
    updates = max(1, training.total_timesteps // (agents.steps_per_update(algorithm) * training.num_envs))
    logger = TrainingLogger(state / "tensorboard", wandb=wandb, config={**settings, "trace": trace})
    warm_start_updates = train_rl.warm_start_updates(training)
    with console.steps(warm_start_updates + updates) as step, resumable(state, resume=resume):

        def progress(update: Any) -> None:
            if "imitation" in update.losses:
                agreement = update.losses["agreement"]
                text = f"behavior cloning of {training.expert}, {update.steps:,} decisions, {agreement:.1%} agreement"
                step(text, update.number % max(1, warm_start_updates // 10) == 0, update.number)
                return
            logger(update)
            ended = "" if math.isnan(update.metric) else f", episodes {update.metric:.3f}"
            best = "" if math.isnan(update.best) else f", best so far {update.best:.3f}"
            step(
                f"update {update.number}, {update.steps:,} steps, {update.steps_per_s:,.0f}/s{ended}{best}",
                update.number % max(1, updates // 20) == 0,
                warm_start_updates + update.number,
            )

        agent, history = train_rl.train_network(
            parts.train, parts.validation, machine, training,
            folder=state, resume=resume, progress=progress, power=power,
            mixture=None if generated is None else generated.mixture,
        )  # fmt: skip
    logger.close()
    front = None
    if training.objectives:
        with console.busy("testing the agent on later jobs under every preference ..."):
            front = pareto.preference_front(
                agent, parts.test, machine, window_jobs=training.window_jobs, seed=training.seed, power=power
            )
        agent = agent.prefer(**dict.fromkeys(training.objectives, 1.0))  # compared with policies under equal weights
    if power is not None:
        evaluation = evaluate_on_test_jobs(
            agent,
            parts.test,
            machine,
            power.context,
            power.power_controls,
            training.backfill,
            training.window_jobs,
            train_power.power_objective(dict.fromkeys(training.objectives, 1.0) or training.reward),
            training.seed,
        )
    elif machine.node_level:
        evaluation = _evaluated_on_gpus(agent, parts.test, machine, training)
    else:
        evaluation = _evaluated(agent, workload, machine, training, trace)
    manifest = workload.provenance(trace, console.command(context), console.today()) | train_synthetic.synthetic_record(
        generated
    )
    train_rl.save_network_agent(
        out,
        history,
        scenario={
            **scenario.to_dict(),
            "training": {
                **{name: value for name, value in settings.items() if value is not None},
                **({} if reward is None else {"reward": reward}),
                **({"preferences": list(training.objectives)} if training.objectives else {}),
            },
            "cluster": to_dict(machine),
        },
        results={
            "judged": evaluation,
            "objective": " against ".join(training.objectives)
            or reward
            or _default_objective(machine.node_level, power is not None),
            **({} if front is None else {"front": front}),
        },
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": training.seed}},
        force=force or resume,
    )
    if json:
        with_front = {} if front is None else {"front": front}
        console.json_document({"agent": agent.provenance, "judged": evaluation, **with_front, "out": out})
        return
    if front is not None:
        from kilowait.cli.pareto import show_front

        show_front(front)
        console.note("the comparison with policies uses equal weights")
    if power is not None:
        show_energy_evaluation(evaluation)
    elif machine.node_level:
        show_gpu_evaluation(evaluation)
    else:
        for note in evaluation["notes"]:
            console.note(note)
        show_comparisons([evaluation], [workload])
    baseline = "srtf" if machine.node_level else "saf"
    preference = f":prefer={training.objectives[0]}=0.3+{training.objectives[1]}=0.7" if training.objectives else ""
    print(
        f"\nwritten to {out}; use it with: kilowait compare --policies {baseline},agent:{out / 'agent.pt'}{preference}"
    )
    print(
        f"learning curves: tensorboard --logdir {state}; to train longer, repeat the command with more "
        "--total-timesteps and --resume"
    )


def _default_objective(node_level: bool, power: bool) -> str:
    """The reward if --objective is not given."""
    if power:
        return "turnaround=1,energy=1"
    return "jct=1" if node_level else "slowdown=1"


def _evaluated(agent: Any, workload: Any, machine: Any, training: Any, trace: str) -> dict[str, Any]:
    from kilowait.experiments import train_batch
    from kilowait.experiments.comparison_results import summarize_comparison

    with console.busy("testing the agent on later jobs ..."):
        test = train_batch.BatchTraining(
            seed=training.seed, backfill=training.backfill, window_jobs=training.window_jobs
        )
        comparison = train_batch.compare_agent(
            agent, BASELINES, workload.jobs, machine, test, trace=trace, clairvoyant=True
        )
        return summarize_comparison(comparison, "mean_bsld", seed=training.seed)


def _evaluated_on_gpus(agent: Any, later: Any, machine: Any, training: Any) -> dict[str, Any]:
    from kilowait.experiments import evaluate_gpu

    count = len(later) // training.window_jobs
    windows = [later[i * training.window_jobs : (i + 1) * training.window_jobs] for i in range(count)]
    with console.busy("testing the agent on later jobs ..."):
        return evaluate_gpu.evaluate_gpu_agent(agent, windows, machine, seed=training.seed)


def show_gpu_evaluation(evaluation: Mapping[str, Any]) -> None:
    """Print the test results on a GPU cluster, and the ratio of the agent to the best policy."""
    from kilowait.units import format_duration

    rows = sorted(evaluation["policies"].items(), key=lambda row: row[1]["mean_jct_s"])
    print(f"test jobs: {evaluation['windows']} windows of {evaluation['window_jobs']:,} jobs, every job counted\n")
    width = 2 + max(map(len, evaluation["policies"]))
    print(f"{'':<{width}}{'mean completion':>15}{'95 % below':>16}{'makespan':>16}{'GPUs held':>11}{'by FLOPS':>10}")
    for name, row in rows:
        spans = [format_duration(row[figure]) for figure in ("mean_jct_s", "p95_jct_s", "makespan_s")]
        print(
            f"{name:<{width}}{spans[0]:>15}{spans[1]:>16}{spans[2]:>16}{row['gpu_utilization']:>10.1%} "
            f"{row['flops_utilization']:>9.1%}"
        )
    ratio = evaluation["ratios"].get("agent")
    if ratio is not None:
        value, low, high = ratio
        print(f"\nagent: {value:.3f} of the best policy's mean completion time, 95 % interval {low:.3f} to {high:.3f}")


def weights_of(text: str) -> dict[str, float]:
    """Weights written as comma-separated name=number.

    >>> weights_of("slowdown=1,sla=10")
    {'slowdown': 1.0, 'sla': 10.0}
    """
    from kilowait.errors import InputError

    weights = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"{part.strip()!r} is not of the form term=weight, e.g. slowdown=1,sla=10")
    return weights
