"""``kilowait tune``: settings for a learner, from a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options

if TYPE_CHECKING:
    from kilowait.experiments.optuna_study import TuningTrial

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait tune lublin:20000:128:0.95:7 --algo ppo --trials 20 --out runs/tuned
  kilowait tune lublin:20000:128:0.95:7 --algo ppo --trials 40 --out runs/tuned --resume
  kilowait train lublin:20000:128:0.95:7 --settings runs/tuned/best.toml --out runs/ppo"""


@app.command(epilog=_EPILOG)
def tune(
    context: typer.Context,
    trace: options.Trace,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="DIR", help="Folder for best.toml, results.json and study.db."),
    ],
    algo: Annotated[str, typer.Option(metavar="A", help="The learner: ppo, a2c, d3qn or sac.")] = "ppo",
    net: Annotated[str, typer.Option(metavar="N", help="The network: kernel, attention or gat.")] = "kernel",
    trials: Annotated[
        int, typer.Option(metavar="N", min=1, help="Trainings in all, with those before a resume.")
    ] = 20,
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, help="Decisions each of them learns from.")
    ] = 200_000,
    cluster: options.Cluster = "auto",
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same trials.")] = 0,
    backfill: Annotated[
        str, typer.Option("--backfill", "-b", metavar="B", help="As in kilowait simulate.")
    ] = "easy",
    envs: Annotated[int, typer.Option(metavar="N", min=1, help="Environments side by side.")] = 32,
    episode_jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs in an episode.")] = 256,
    slots: Annotated[int, typer.Option(metavar="N", min=1, help="Waiting jobs shown at once.")] = 64,
    reward: Annotated[
        str | None, typer.Option(metavar="T=W,...", help="What is to be small; as in kilowait train.")
    ] = None,
    sla: Annotated[
        str, typer.Option(metavar="T", help="A job that waits longer than this counts for sla.")
    ] = "4h",
    max_wait: Annotated[
        str | None, typer.Option(metavar="T", help="A job that has waited longer, say 12h or 3d, goes first.")
    ] = None,
    windows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Windows of the validation jobs that rank trials.")
    ] = 16,
    window_jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs in a window.")] = 1024,
    device: Annotated[str, typer.Option(metavar="D", help="cpu or cuda.")] = "cpu",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the search of this folder, interrupted or not.")
    ] = False,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
    force: Annotated[
        bool, typer.Option("--force", help="Begin anew where a search was begun before.")
    ] = False,
) -> None:
    """Search for settings: train with many on the first 60 % of a log, and rank them by the next 20 %.

    The last 20 % are not touched: kilowait train --settings judges there what was found. Trials that fall behind are
    given up early. The first trial has the usual settings.
    """
    from kilowait.cli.train_rl import weights_of
    from kilowait.evaluation.comparison import split
    from kilowait.experiments import optuna_study, tune
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.train_rl import RLTraining
    from kilowait.units import parse_span

    optuna_study.optuna_or_error()
    usual = tune.defaults(algo)
    how = RLTraining(
        algo=algo,
        net=net,
        seed=seed,
        steps=steps,
        envs=envs,
        episode_jobs=episode_jobs,
        slots=slots,
        backfill=parse_backfill(backfill),
        reward=None if reward is None else weights_of(reward),
        sla_s=parse_span(sla),
        max_wait_s=None if max_wait is None else parse_span(max_wait),
        windows=windows,
        window_jobs=window_jobs,
        device=device,
    )
    before = optuna_study.begin(out, resume=resume, force=force)
    scenario = options.scenario_from_options(context, trace, backfill=how.backfill)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
    for text in notes:
        console.note(text)
    parts = split(workload.jobs)
    if resume:
        console.note(
            f"going on with the search of {out}: {console.count(len(before), 'trial')} of {trials} done"
        )
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
            how,
            trials=trials,
            folder=out,
            resume=resume,
            told={
                "scenario": scenario.to_dict(),
                **workload.provenance(trace, console.command(context), console.today()),
            },
            progress=progress,
        )
    best = optuna_study.best_of(done)
    if json:
        console.json_document(
            {"algo": algo, "net": net, "best": vars(best), "trials": [vars(one) for one in done], "out": out}
        )
        return
    _show_best(best, done, usual)
    print(
        f"\nwritten to {out}; train with it: kilowait train {trace} --settings {out / 'best.toml'} --out runs/NAME"
    )


def _line(trial: TuningTrial, done: list[TuningTrial]) -> str:
    """A trial in a line."""
    finished = [one.figure for one in done if one.outcome == "finished"]
    best = f", best so far {console.number(min(finished))}" if finished else ""
    return f"{console.number(trial.figure)}, {trial.outcome} after {console.span(trial.seconds)}{best}"


def _show_best(best: TuningTrial, done: list[TuningTrial], usual: dict[str, Any]) -> None:
    """The best settings beside the usual ones."""
    outcomes = [one.outcome for one in done]
    counted = ", ".join(
        f"{outcomes.count(word)} {word}" for word in ("finished", "given up", "diverged") if word in outcomes
    )
    console.title(f"{console.count(len(done), 'trial')}: {counted}; the best is number {best.number}")
    rows = [
        (name, console.number(usual[name]), console.number(value)) for name, value in best.settings.items()
    ]
    first = console.number(done[0].figure)
    console.table(
        ("setting", "usual", "best"), [*rows, ("on the validation jobs", first, console.number(best.figure))]
    )
