"""``kilowait train``: train a scheduling agent on a job log; ``kilowait tune``: search for its hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console
from kilowait.cli.options import COOLING_WITHOUT_WEATHER, LOG_FORMAT, SIGNALS, Force, Json, verb
from kilowait.experiments.settings import Scenario
from kilowait.experiments.training.settings import (
    NetworkOptions,
    SearchOptions,
    SyntheticOptions,
    TrainingOptions,
    TuningOptions,
)
from kilowait.settings import Option

if TYPE_CHECKING:
    from kilowait.experiments.training.tune import TuningTrial

app = typer.Typer(add_completion=False, **console.PLAIN)

_TRAIN = """\b
Examples:
  kilowait train lublin:20000:128:0.95:7 --seed 42 --out runs/first
  kilowait train KTH-SP2-1996-2.1-cln.swf.gz --window 512 --out runs/kth
  kilowait train lublin:20000:128:0.95:7 --algo ppo --total-timesteps 200000 --out runs/ppo
  kilowait train lublin:20000:128:0.95:7 --algo ppo --total-timesteps 400000 --out runs/ppo --resume
  kilowait train --cluster gpu-mixed --seed 42 --out runs/gpu
  kilowait train lublin:20000:128:0.95:7 --algo ppo --expert saf --out runs/imitation
  kilowait train log.swf.gz --synthetic models/ours --synthetic-share 0.5 --out runs/mixed
  kilowait train lublin:20000:128:0.95:7 --algo ppo --objectives slowdown,fairness --out runs/both
  kilowait train lublin:20000:128:0.95:7 --hyperparameters runs/tuned/best.toml --out runs/tuned-ppo
  kilowait train lublin:20000:128:0.6:7 --power taurus --power-controls sleep=break-even+dvfs=1.3 --window 512
  kilowait train lublin:20000:128:0.6:7 --power taurus --algo ppo \\
    --objective energy=1,slowdown=0.1 --constraint sla=0.05
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies saf,agent:runs/kth/agent.json"""
_TUNE = """\b
Examples:
  kilowait tune lublin:20000:128:0.95:7 --algo ppo --trials 20 --out runs/tuned
  kilowait tune lublin:20000:128:0.95:7 --algo ppo --trials 40 --out runs/tuned --resume
  kilowait train lublin:20000:128:0.95:7 --hyperparameters runs/tuned/best.toml --out runs/ppo"""


@verb(
    app,
    "trace out algo networks cluster seed objective search backfill windows window max_wait generators "
    f"resume power power_controls {SIGNALS} on_oversized load jobs {LOG_FORMAT} "
    "runtime_predictor power_predictor json force",
    epilog=_TRAIN,
    cooling=COOLING_WITHOUT_WEATHER,
)
def train(
    context: typer.Context,
    options: TrainingOptions,
    scenario: Callable[..., Scenario],
    networks: NetworkOptions,
    search: SearchOptions,
    generators: SyntheticOptions,
    json: Json = False,
    force: Force = False,
) -> None:
    """Train an agent on the first 80 % of a log and test it against policies on the rest.

    The first 60 % of the jobs are used for training, the next 20 % for choosing the best agent, and the last 20 % for
    testing. With --power the agent also uses power controls (DVFS states, node sleep, load shifting) and is tested on
    energy, CO2 or cost as well.
    """
    from kilowait.cli.output.trained_agent import show_trained_agent
    from kilowait.experiments.scenario_inputs import is_node_level
    from kilowait.experiments.training import train as training
    from kilowait.experiments.training.synthetic import SyntheticTraining

    trace = training.synthetic_workload_for(context.params["cluster"]) if options.trace is None else options.trace
    setting = scenario(trace=trace)
    node_level = is_node_level(setting.cluster, trace)
    trainer = training.trainer_from_options(_given(context, "algo", "network"), node_level=node_level)
    controls = options.power_controls if setting.power is not None and trainer.takes_power else "none"
    result = training.run_training(
        training.TrainingTask(
            trainer,
            replace(setting, backfill=trainer.backfill, power_controls=controls),
            options.out or training.default_folder(trainer, trace),
            SyntheticTraining.from_options(*vars(generators).values()),
            networks.wandb,
            options.resume,
            force,
        ),
        console,
        console.command(context),
    )
    if json:
        front = {} if result.front is None else {"front": result.front}
        console.json_document(
            {"agent": result.agent.provenance, "judged": result.evaluation, **front, "out": result.out}
        )
        return
    show_trained_agent(result)


def _given(context: typer.Context, *names: str) -> dict[str, Any]:
    """The values of all options; None for those of these options that are not on the command line."""
    sources = {name: context.get_parameter_source(name) for name in names}
    missing = [name for name, source in sources.items() if source is None or source.name == "DEFAULT"]
    return {**context.params, **dict.fromkeys(missing)}


@verb(
    app,
    "trace out algo network trials total_timesteps cluster seed backfill num_envs episode_jobs queue_window objective "
    f"sla max_wait windows window device resume on_oversized load jobs {LOG_FORMAT} json force",
    epilog=_TUNE,
)
def tune(
    context: typer.Context,
    options: TuningOptions,
    scenario: Scenario,
    out: Annotated[Path, Option("DIR", "Folder for best.toml, results.json and study.db.", "-o")],
    json: Json = False,
    force: Annotated[bool, Option(None, "Start again, even if the folder contains a search.")] = False,
) -> None:
    """Search for hyperparameters: train on the first 60 % of a log and rank the trials on the next 20 %.

    The last 20 % are not used, so that kilowait train --hyperparameters can test the result there. Bad trials are
    stopped early. The first trial uses the default hyperparameters.
    """
    from kilowait.experiments.training.rl_settings import RLTraining
    from kilowait.experiments.training.train import rl_settings_from_options
    from kilowait.experiments.training.tune import (
        TuningTask,
        best_trial,
        default_hyperparameters,
        optuna_or_error,
        run_tuning,
    )

    optuna_or_error()
    defaults = default_hyperparameters(options.algo)
    settings = {name: value for name, value in rl_settings_from_options(context.params).items() if value is not None}
    training = RLTraining(algo=options.algo, **settings)
    task = TuningTask(
        training, replace(scenario, backfill=training.backfill), out, options.trials, options.resume, force
    )
    done = run_tuning(task, console, console.command(context))
    best = best_trial(done)
    if json:
        console.json_document(
            {
                "algo": options.algo,
                "network": options.network,
                "best": vars(best),
                "trials": [vars(one) for one in done],
                "out": out,
            }
        )
        return
    _show_best(best, done, defaults)
    print(
        f"\nwritten to {out}; train with it: kilowait train {scenario.trace} --hyperparameters {out / 'best.toml'} "
        "--out runs/NAME"
    )


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
