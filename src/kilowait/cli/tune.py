"""``kilowait tune``: search for the hyperparameters of a training algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups

if TYPE_CHECKING:
    from kilowait.experiments.tuning_folder import TuningTrial

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait tune lublin:20000:128:0.95:7 --algo ppo --trials 20 --out runs/tuned
  kilowait tune lublin:20000:128:0.95:7 --algo ppo --trials 40 --out runs/tuned --resume
  kilowait train lublin:20000:128:0.95:7 --hyperparameters runs/tuned/best.toml --out runs/ppo"""


@app.command(epilog=_EPILOG)
@groups.with_groups
def tune(
    context: typer.Context,
    *,
    trace: options.Trace,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for best.toml, results.json and study.db.")
    ],
    algo: Annotated[
        str, typer.Option("--algo", metavar="NAME", help="Training algorithm: ppo, a2c, d3qn or sac.")
    ] = "ppo",
    network: Annotated[
        str, typer.Option("--network", metavar="NAME", help="Network architecture: kernel, attention or gat.")
    ] = "kernel",
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="Number of trials, including those before --resume.")
    ] = 20,
    total_timesteps: Annotated[
        int, typer.Option("--total-timesteps", metavar="N", min=1, help="Training steps (decisions) per trial.")
    ] = 200_000,
    cluster: options.Cluster = "auto",
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed; the same seed gives the same trials.")] = 0,
    backfill: options.BackfillDepth = "easy",
    num_envs: Annotated[
        int, typer.Option("--num-envs", metavar="N", min=1, help="Environments that run in parallel.")
    ] = 32,
    episode_jobs: Annotated[int, typer.Option("--episode-jobs", metavar="N", min=1, help="Jobs per episode.")] = 256,
    queue_window: Annotated[
        int, typer.Option("--queue-window", metavar="N", min=1, help="Number of waiting jobs in the observation.")
    ] = 64,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="O=W,...",
            help="What to minimize: weights of reward terms, e.g. slowdown=1,sla=10; on GPU clusters jct=1.",
        ),
    ] = None,
    sla: Annotated[
        str, typer.Option("--sla-wait", metavar="SPAN", help="Wait above which the reward term sla counts a job.")
    ] = "4h",
    max_wait: Annotated[
        str | None,
        typer.Option(
            "--max-wait", metavar="SPAN", help="A job that has waited longer, e.g. 12h or 3d, is scheduled first."
        ),
    ] = None,
    windows: Annotated[
        int, typer.Option("--windows", "-w", metavar="N", min=1, help="Validation windows that rank the trials.")
    ] = 16,
    window: options.Window = 1024,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="Device: cpu or cuda.")] = "cpu",
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the search in this folder, interrupted or finished.")
    ] = False,
    load: options.Load = None,
    jobs: options.Jobs = None,
    log_format: groups.LogFormatOptions,
    json: options.Json = False,
    force: Annotated[bool, typer.Option("--force", help="Start again, even if the folder contains a search.")] = False,
) -> None:
    """Search for hyperparameters: train on the first 60 % of a log and rank the trials on the next 20 %.

    The last 20 % are not used, so that kilowait train --hyperparameters can test the result there. Bad trials are
    stopped early. The first trial uses the default hyperparameters.
    """
    from kilowait.cli.train import weights_of
    from kilowait.evaluation.comparison import split
    from kilowait.experiments import tune, tuning_folder
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.scenario_inputs import parse_backfill
    from kilowait.experiments.train_rl import RLTraining
    from kilowait.files import output_lock
    from kilowait.units import parse_duration

    tuning_folder.optuna_or_error()
    defaults = tune.default_hyperparameters(algo)
    training = RLTraining(
        algo=algo,
        network=network,
        seed=seed,
        total_timesteps=total_timesteps,
        num_envs=num_envs,
        episode_jobs=episode_jobs,
        queue_window=queue_window,
        backfill=parse_backfill(backfill),
        reward=None if objective is None else weights_of(objective),
        sla_s=parse_duration(sla),
        max_wait_s=None if max_wait is None else parse_duration(max_wait),
        windows=windows,
        window_jobs=window,
        device=device,
    )
    context.with_resource(output_lock(out, inside=True))
    before = tuning_folder.prepare_search_folder(out, resume=resume, force=force)
    scenario = groups.scenario_from_options(context, trace, backfill=training.backfill)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
    for note in notes:
        console.note(note)
    parts = split(workload.jobs)
    if resume:
        console.note(f"resuming the search in {out}: {console.count(len(before), 'trial')} of {trials} done")
    done = list(before)
    with console.steps(trials) as step:
        for trial in before:
            step(_line(trial, done), False)

        def progress(trial: TuningTrial) -> None:
            done.append(trial)
            step(_line(trial, done), True)

        done = tune.tune(
            parts.train,
            parts.validation,
            machine,
            training,
            trials=trials,
            folder=out,
            resume=resume,
            record={
                "scenario": scenario.to_dict(),
                **workload.provenance(trace, console.command(context), console.today()),
            },
            progress=progress,
        )
    best = tuning_folder.best_trial(done)
    if json:
        console.json_document(
            {"algo": algo, "network": network, "best": vars(best), "trials": [vars(one) for one in done], "out": out}
        )
        return
    _show_best(best, done, defaults)
    print(
        f"\nwritten to {out}; train with it: kilowait train {trace} --hyperparameters {out / 'best.toml'} --out "
        "runs/NAME"
    )


def _line(trial: TuningTrial, done: list[TuningTrial]) -> str:
    """One line about a trial."""
    finished = [one.metric for one in done if one.outcome == "finished"]
    best = f", best so far {console.number(min(finished))}" if finished else ""
    return f"{console.number(trial.metric)}, {trial.outcome} after {console.span(trial.seconds)}{best}"


def _show_best(best: TuningTrial, done: list[TuningTrial], defaults: dict[str, Any]) -> None:
    """Print the best hyperparameters next to the defaults."""
    outcomes = [one.outcome for one in done]
    counted = ", ".join(
        f"{outcomes.count(word)} {word}" for word in ("finished", "pruned", "diverged") if word in outcomes
    )
    console.title(f"{console.count(len(done), 'trial')}: {counted}; the best is number {best.number}")
    rows = [(name, console.number(defaults[name]), console.number(value)) for name, value in best.settings.items()]
    first = console.number(done[0].metric)
    console.table(
        ("hyperparameter", "default", "best"), [*rows, ("validation objective", first, console.number(best.metric))]
    )
