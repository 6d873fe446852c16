"""``kilowait train``: an agent from a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kilowait.cli import console, options, train_synthetic

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait train lublin:20000:128:0.95:7 --seed 42 --out runs/first
  kilowait train KTH-SP2-1996-2.1-cln.swf.gz --window-jobs 512 --out runs/kth
  kilowait train lublin:20000:128:0.95:7 --algo ppo --steps 200000 --out runs/ppo
  kilowait train lublin:20000:128:0.95:7 --algo ppo --steps 400000 --out runs/ppo --resume
  kilowait train --cluster gpu-mixed --seed 42 --out runs/gpu
  kilowait train lublin:20000:128:0.95:7 --algo ppo --teacher saf --out runs/taught
  kilowait train log.swf.gz --synthetic models/ours --synthetic-share 0.5 --out runs/mixed
  kilowait train lublin:20000:128:0.95:7 --algo ppo --preferences slowdown,fairness --out runs/both
  kilowait train lublin:20000:128:0.95:7 --settings runs/tuned/best.toml --out runs/tuned-ppo
  kilowait train lublin:20000:128:0.6:7 --power taurus --levers sleep=break-even+dvfs=1.3 --window-jobs 512
  kilowait train lublin:20000:128:0.6:7 --power taurus --algo ppo --reward energy=1,slowdown=0.1 --limit sla=0.05
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies saf,agent:runs/kth/agent.json"""


@app.command(epilog=_EPILOG)
def train(
    context: typer.Context,
    trace: options.OptionalTrace = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder for the agent and results.json; else runs/ALGO-LOG-seedN.",
        ),
    ] = None,
    algo: Annotated[
        str,
        typer.Option(
            metavar="A",
            help="The learner: es (an evolution strategy on a score in the clock), or, for networks, ppo, a2c, d3qn, "
            "sac.",
        ),
    ] = "es",
    net: Annotated[str, typer.Option(metavar="N", help="The network: kernel, attention or gat.")] = "kernel",
    cluster: options.Cluster = "auto",
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same agent.")] = 0,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="O",
            help="es: what is to be small: mean_bsld (the default) or mean_wait_s; on GPU clusters also mean_jct_s, "
            "the default there; with --power energy (the default), co2 or cost.",
            show_default=False,
        ),
    ] = None,
    promise: Annotated[
        float,
        typer.Option(
            metavar="F",
            help="es with --power: the mean slowdown may be at most F times that of SAF without levers.",
        ),
    ] = 1.1,
    backfill: Annotated[
        str, typer.Option("--backfill", "-b", metavar="B", help="As in kilowait simulate.")
    ] = "easy",
    generations: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Rounds of the search: 40, on GPU clusters 80, with --power 60."
        ),
    ] = None,
    population: Annotated[int, typer.Option(metavar="N", min=4, help="Candidates a round.")] = 16,
    windows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Windows each candidate is tried on: 48, on GPU clusters, with --power and for networks 16.",
        ),
    ] = None,
    window_jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs in a window.")] = 1024,
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, help="Networks: decisions to learn from.")
    ] = 1_000_000,
    envs: Annotated[int, typer.Option(metavar="N", min=1, help="Networks: environments side by side.")] = 32,
    episode_jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Networks: jobs in an episode.")
    ] = 256,
    slots: Annotated[
        int, typer.Option(metavar="N", min=1, help="Networks: waiting jobs shown at once.")
    ] = 64,
    reward: Annotated[
        str | None,
        typer.Option(
            metavar="T=W,...",
            help="Networks: weights of what is to be small, say slowdown=1,sla=10; on GPU clusters jct=1; with --power "
            "energy=1,slowdown=0.1 (also co2, cost).",
        ),
    ] = None,
    preferences: Annotated[
        str | None,
        typer.Option(
            metavar="T,...",
            help="Networks: instead of a reward, terms that are weighed as the agent is told when it plays, say "
            "slowdown,fairness.",
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(metavar="T=X", help="PPO: a term that may not be above X, say sla=0.05."),
    ] = None,
    sla: Annotated[
        str, typer.Option(metavar="T", help="Networks: a job that waits longer than this counts for sla.")
    ] = "4h",
    max_wait: Annotated[
        str | None,
        typer.Option(metavar="T", help="A job that has waited longer, say 12h or 3d, goes first."),
    ] = None,
    ease: Annotated[
        float,
        typer.Option(
            metavar="F",
            help="Networks: arrivals come F times as fast at first, as in the log from half way on.",
        ),
    ] = 1.0,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="Networks: imitate this first, a rule such as saf or lookahead:base=saf:width=8:depth=32.",
        ),
    ] = None,
    teacher_steps: Annotated[
        int, typer.Option(metavar="N", min=1, help="Networks: choices of the teacher to learn from.")
    ] = 50_000,
    synthetic: train_synthetic.Folders = None,
    synthetic_share: train_synthetic.Share = None,
    synthetic_curriculum: train_synthetic.Curriculum = None,
    synthetic_jobs: train_synthetic.Jobs = None,
    device: Annotated[str, typer.Option(metavar="D", help="Networks: cpu or cuda.")] = "cpu",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on where a training of this folder was interrupted, or with more --generations or --steps.",
        ),
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Networks: settings and sizes from a TOML file, as kilowait tune writes it."
        ),
    ] = None,
    wandb: Annotated[
        str | None, typer.Option(metavar="PROJECT", help="Networks: also to Weights & Biases, if installed.")
    ] = None,
    power: options.Power = None,
    levers: Annotated[
        str,
        typer.Option(
            metavar="L",
            help="With --power: what the agent may pull, joined by +: sleep=break-even, dvfs=1.3 (the slowest it may "
            "choose), budget=80%; all: what the machine has.",
        ),
    ] = "all",
    carbon: options.Carbon = None,
    price: options.Price = None,
    scope: options.Scope = "life-cycle",
    cooling: options.Cooling = None,
    profile: options.Profile = None,
    forecast: options.Forecast = "perfect",
    start: options.Start = None,
    wrap: options.Wrap = False,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    predict: options.Predict = None,
    told: Annotated[
        bool,
        typer.Option(
            "--told",
            help="Networks, with --predict: add prediction features to the observation: safe bound, "
            "expected inverse run time, part of the request.",
        ),
    ] = False,
    predict_power: options.PredictPower = None,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Train an agent on the first 80 % of a log and try it on the rest, against rules.

    It sees the first 60 % in training; the next 20 % choose among what was found; the last 20 % judge it. With --power
    it also pulls levers: how fast jobs run, when nodes sleep, who is held; and is judged on what is spent too.
    """
    from kilowait.errors import InputError

    own: dict[str, Any] = {}
    if settings is not None:
        from kilowait.experiments.hyperparameters import read_settings

        found_settings = read_settings(settings, **_said(context, "algo", "net"))
        algo, net, own = found_settings.algo, found_settings.net, {"settings": found_settings.settings}
    trace = made_for(cluster) if trace is None else trace
    if out is None:
        out = Path("runs", f"{algo}-{_short(trace)}-seed{seed}")
    if algo == "es" and teacher is not None:
        raise InputError(
            f"--teacher {teacher} is for networks; add --algo ppo, a2c, d3qn or sac, or leave it out"
        )
    if told and (algo == "es" or predict in (None, "last2")):
        raise InputError(
            "--told shows networks what predictions know; it needs --algo ppo, a2c, d3qn or sac, and --predict forest "
            "or the folder of a predictor"
        )
    if preferences is not None:
        if algo == "es":
            raise InputError(
                "es searches weights of one score; preferences are for networks: take --algo ppo"
            )
        own["preferences"] = tuple(name.strip() for name in preferences.split(",") if name.strip())
    if algo != "es":
        from kilowait.cli.train_rl import train_network

        train_network(
            context,
            trace,
            out,
            {
                "algo": algo,
                "net": net,
                "seed": seed,
                "steps": steps,
                "envs": envs,
                "episode_jobs": episode_jobs,
                "slots": slots,
                "windows": 16 if windows is None else windows,
                "window_jobs": window_jobs,
                "ease": ease,
                "teacher": teacher,
                "teacher_steps": teacher_steps,
                "device": device,
                **({"prediction_features": True} if told else {}),
                **own,
            },
            backfill=backfill,
            reward=reward,
            limit=limit,
            sla=sla,
            max_wait=max_wait,
            resume=resume,
            wandb=wandb,
            json=json,
            force=force,
            levers=levers if power is not None else None,
        )
        return
    from kilowait.experiments.inputs import is_placed

    if max_wait is not None and (power is not None or is_placed(cluster, trace)):
        raise InputError(
            f"--max-wait {max_wait} with es is for logs of batch systems without --power; leave it out, or take a "
            "network with --algo"
        )
    search: dict[str, Any] = {
        "seed": seed,
        "population": population,
        "window_jobs": window_jobs,
        **({} if generations is None else {"generations": generations}),
        **({} if windows is None else {"windows": windows}),
    }
    if power is not None:
        from kilowait.cli.train_power import train_steering

        train_synthetic.refuse_generated(context, "trainings with --power")
        train_steering(
            context,
            trace,
            out,
            levers=levers,
            objective="energy" if objective is None else objective,
            promise=promise,
            backfill=backfill,
            how={"generations": 60, "windows": 16, **search},
            resume=resume,
            json=json,
            force=force,
        )
        return
    search |= {} if objective is None else {"objective": objective}
    if is_placed(cluster, trace):
        from kilowait.cli.train_gpu import train_score

        train_synthetic.refuse_generated(context, "GPU clusters")
        train_score(context, trace, out, search, resume=resume, json=json, force=force)
        return
    from kilowait.cli.train_batch import train_rule
    from kilowait.units import parse_span

    search |= {} if max_wait is None else {"max_wait_s": parse_span(max_wait)}
    train_rule(context, trace, out, search, backfill=backfill, resume=resume, json=json, force=force)


def made_for(cluster: str) -> str:
    """The workload to learn from where none is named: one made for the GPU cluster at load 0.9.

    >>> made_for("gpu-mixed")
    'gpu:100000:gpu-mixed:0.9:0'
    """
    from kilowait.errors import InputError
    from kilowait.experiments.inputs import is_placed

    if cluster == "auto" or not is_placed(cluster, ""):
        raise InputError(
            "name a job log to learn from; only GPU clusters (--cluster gpu-mixed) bring one of their own"
        )
    return f"gpu:100000:{cluster}:0.9:0"


def _short(trace: str) -> str:
    """The log in a name of a folder.

    >>> _short("logs/KTH-SP2-1996-2.1-cln.swf.gz"), _short("gpu:100000:gpu-mixed:0.9:0")
    ('KTH-SP2-1996-2', 'gpu-100000-gpu-mixed-0.9-0')
    """
    return trace.replace(":", "-") if ":" in trace else Path(trace).name.split(".")[0]


def _said(context: typer.Context, *names: str) -> dict[str, Any]:
    """Those of these options that were written on the command line, with what was written."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return {
        name: context.params[name]
        for name, source in sources.items()
        if source is not None and source.name != "DEFAULT"
    }
