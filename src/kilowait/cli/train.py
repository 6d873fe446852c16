"""``kilowait train``: train a scheduling agent on a job log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kilowait.cli import console, options, train_synthetic
from kilowait.cli import option_groups as groups

app = typer.Typer(add_completion=False, **console.PLAIN)

CMA_ES = "cma-es"
"""The training algorithm that searches weights of a linear score; the others train networks."""

_EPILOG = """\b
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


@app.command(epilog=_EPILOG)
@groups.with_groups
def train(
    context: typer.Context,
    *,
    trace: options.OptionalTrace = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Folder for the agent and results.json; by default runs/ALGO-LOG-seedN."
        ),
    ] = None,
    algo: Annotated[
        str,
        typer.Option(
            "--algo",
            metavar="NAME",
            help="Training algorithm: cma-es (an evolution strategy that searches the weights of a linear priority "
            "score), or, for neural networks, ppo, a2c, d3qn, sac.",
        ),
    ] = CMA_ES,
    network: Annotated[
        str, typer.Option("--network", metavar="NAME", help="Network architecture: kernel, attention or gat.")
    ] = "kernel",
    cluster: options.Cluster = "auto",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Random seed; the same seed gives the same agent.")
    ] = 0,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="O|O=W,...",
            help="Objective to minimize. For cma-es a metric: mean_bsld or mean_wait_s (default: mean_bsld); on GPU "
            "clusters also mean_jct_s (default there); on a cluster with a power model energy, co2 or cost (default "
            "there: energy). For networks the weights of reward terms, e.g. slowdown=1,sla=10; on GPU clusters e.g. "
            "jct=1; with a power model e.g. energy=1,slowdown=0.1, also co2 and cost.",
            show_default=False,
        ),
    ] = None,
    max_slowdown_ratio: Annotated[
        float,
        typer.Option(
            "--max-slowdown-ratio",
            metavar="RATIO",
            help="cma-es with --power: the mean slowdown may be at most F times that of SAF without power controls.",
        ),
    ] = 1.1,
    backfill: options.BackfillDepth = "easy",
    generations: Annotated[
        int | None,
        typer.Option(
            "--generations",
            metavar="N",
            min=1,
            help="cma-es: generations; by default 40, on GPU clusters 80, with --power 60.",
            show_default=False,
        ),
    ] = None,
    population: Annotated[
        int, typer.Option("--population", metavar="N", min=4, help="cma-es: candidates per generation.")
    ] = 16,
    windows: Annotated[
        int | None,
        typer.Option(
            "--windows",
            "-w",
            metavar="N",
            min=1,
            help="Number of windows on which each candidate is evaluated. Default: 48; on GPU clusters, with --power "
            "and for networks: 16.",
            show_default=False,
        ),
    ] = None,
    window: options.Window = 1024,
    total_timesteps: Annotated[
        int, typer.Option("--total-timesteps", metavar="N", min=1, help="Networks: training steps (decisions).")
    ] = 1_000_000,
    num_envs: Annotated[
        int, typer.Option("--num-envs", metavar="N", min=1, help="Networks: environments that run in parallel.")
    ] = 32,
    episode_jobs: Annotated[
        int, typer.Option("--episode-jobs", metavar="N", min=1, help="Networks: jobs per episode.")
    ] = 256,
    queue_window: Annotated[
        int,
        typer.Option("--queue-window", metavar="N", min=1, help="Networks: number of waiting jobs in the observation."),
    ] = 64,
    objectives: Annotated[
        str | None,
        typer.Option(
            "--objectives",
            metavar="T,...",
            help="Networks, instead of --objective: train one agent for all preferences between these reward terms, "
            "e.g. slowdown,fairness. The preference is chosen when the agent is used.",
        ),
    ] = None,
    constraint: Annotated[
        str | None,
        typer.Option("--constraint", metavar="T=X", help="ppo: upper bound of a reward term, e.g. sla=0.05."),
    ] = None,
    sla: Annotated[
        str,
        typer.Option("--sla-wait", metavar="SPAN", help="Networks: wait above which the reward term sla counts a job."),
    ] = "4h",
    max_wait: Annotated[
        str | None,
        typer.Option(
            "--max-wait", metavar="SPAN", help="A job that has waited longer, e.g. 12h or 3d, is scheduled first."
        ),
    ] = None,
    load_curriculum: Annotated[
        float,
        typer.Option(
            "--initial-load-factor",
            metavar="FACTOR",
            help="Networks: arrival rate at the start of the training, as a multiple of the log's; it changes to the "
            "rate of the log in the first half of the training.",
        ),
    ] = 1.0,
    expert: Annotated[
        str | None,
        typer.Option(
            "--expert",
            metavar="POLICY",
            help="Networks: begin with behavior cloning of this policy, e.g. saf or "
            "lookahead:base=saf:width=8:depth=32.",
        ),
    ] = None,
    expert_steps: Annotated[
        int,
        typer.Option("--expert-steps", metavar="N", min=1, help="Networks: demonstrations (decisions) of the expert."),
    ] = 50_000,
    synthetic: train_synthetic.GeneratorFoldersOption = None,
    synthetic_share: train_synthetic.SyntheticShareOption = None,
    synthetic_curriculum: train_synthetic.CurriculumOption = None,
    synthetic_jobs: train_synthetic.SyntheticJobsOption = None,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="Networks: device, cpu or cuda.")] = "cpu",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume an interrupted training from its folder, or continue with more --generations or "
            "--total-timesteps.",
        ),
    ] = False,
    hyperparameters: Annotated[
        Path | None,
        typer.Option(
            "--hyperparameters",
            metavar="FILE",
            help="Networks: hyperparameters and layer sizes from a TOML file, as written by kilowait tune.",
        ),
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option("--wandb", metavar="PROJECT", help="Networks: also log to Weights & Biases, if installed."),
    ] = None,
    power: options.Power = None,
    power_controls: Annotated[
        str,
        typer.Option(
            "--power-controls",
            metavar="CONTROLS",
            help="With --power: power controls that the agent may use, joined by +: sleep=break-even, dvfs=1.3 (the "
            "slowest state it may choose), budget=80%; all: every control that the cluster supports.",
        ),
    ] = "all",
    signals: groups.AgentSignals,
    load: options.Load = None,
    jobs: options.Jobs = None,
    log_format: groups.LogFormat,
    runtime_predictor: options.RuntimePredictor = None,
    prediction_features: Annotated[
        bool,
        typer.Option(
            "--prediction-features",
            help="Networks, with --runtime-predictor: add prediction features to the observation: safe upper bound, "
            "expected inverse run time, share of the estimate.",
        ),
    ] = False,
    power_predictor: options.PowerPredictor = None,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Train an agent on the first 80 % of a log and test it against policies on the rest.

    The first 60 % of the jobs are used for training, the next 20 % for choosing the best agent, and the last 20 % for
    testing. With --power the agent also uses power controls (DVFS states, node sleep, load shifting) and is tested on
    energy, CO2 or cost as well.
    """
    from kilowait.errors import InputError

    settings_from_options: dict[str, Any] = {}
    if hyperparameters is not None:
        from kilowait.experiments.hyperparameter_file import read_hyperparameters

        explicit_options = _given(context, "algo", "network")
        file = read_hyperparameters(
            hyperparameters, algo=explicit_options.get("algo"), network=explicit_options.get("network")
        )
        algo, network, settings_from_options = (file.algo, file.network, {"hyperparameters": file.hyperparameters})
    trace = synthetic_workload_for(cluster) if trace is None else trace
    if out is None:
        out = Path("runs", f"{algo}-{_short(trace)}-seed{seed}")
    if algo == CMA_ES and expert is not None:
        raise InputError(f"--expert {expert} is for networks; add --algo ppo, a2c, d3qn or sac, or leave it out")
    if prediction_features and (algo == CMA_ES or runtime_predictor in (None, "last2")):
        raise InputError(
            "--prediction-features adds predictions to the observation of networks; it needs --algo ppo, a2c, d3qn or "
            "sac, and --runtime-predictor forest or the folder of a predictor"
        )
    if objectives is not None:
        if algo == CMA_ES:
            raise InputError(
                f"{CMA_ES} searches the weights of one score; --objectives is for networks: use --algo ppo"
            )
        settings_from_options["objectives"] = tuple(name.strip() for name in objectives.split(",") if name.strip())
    if algo != CMA_ES:
        from kilowait.cli.train_rl import train_network

        train_network(
            context,
            trace,
            out,
            {
                "algo": algo,
                "network": network,
                "seed": seed,
                "total_timesteps": total_timesteps,
                "num_envs": num_envs,
                "episode_jobs": episode_jobs,
                "queue_window": queue_window,
                "windows": 16 if windows is None else windows,
                "window_jobs": window,
                "load_curriculum": load_curriculum,
                "expert": expert,
                "expert_steps": expert_steps,
                "device": device,
                **({"prediction_features": True} if prediction_features else {}),
                **settings_from_options,
            },
            backfill=backfill,
            reward=objective,
            constraint=constraint,
            sla=sla,
            max_wait=max_wait,
            resume=resume,
            wandb=wandb,
            json=json,
            force=force,
            power_controls=power_controls if power is not None else None,
        )
        return
    from kilowait.experiments.scenario_inputs import is_node_level

    if max_wait is not None and (power is not None or is_node_level(cluster, trace)):
        raise InputError(
            f"--max-wait {max_wait} with --algo {CMA_ES} is for batch clusters without --power; leave it out, or train "
            "a network with --algo ppo"
        )
    search: dict[str, Any] = {
        "seed": seed,
        "population": population,
        "window_jobs": window,
        **({} if generations is None else {"generations": generations}),
        **({} if windows is None else {"windows": windows}),
    }
    if power is not None:
        from kilowait.cli.train_power import train_power_agent

        train_synthetic.refuse_generated(context, "training with --power")
        train_power_agent(
            context,
            trace,
            out,
            power_controls=power_controls,
            objective="energy" if objective is None else objective,
            max_slowdown_ratio=max_slowdown_ratio,
            backfill=backfill,
            training={"generations": 60, "windows": 16, **search},
            resume=resume,
            json=json,
            force=force,
        )
        return
    search |= {} if objective is None else {"objective": objective}
    if is_node_level(cluster, trace):
        from kilowait.cli.train_gpu import train_gpu_agent

        train_synthetic.refuse_generated(context, "GPU clusters")
        train_gpu_agent(context, trace, out, search, resume=resume, json=json, force=force)
        return
    from kilowait.cli.train_batch import train_batch_agent
    from kilowait.units import parse_duration

    search |= {} if max_wait is None else {"max_wait_s": parse_duration(max_wait)}
    train_batch_agent(context, trace, out, search, backfill=backfill, resume=resume, json=json, force=force)


def synthetic_workload_for(cluster: str) -> str:
    """The default training workload: a synthetic one for the GPU cluster at load 0.9.

    >>> synthetic_workload_for("gpu-mixed")
    'gpu:100000:gpu-mixed:0.9:0'
    """
    from kilowait.errors import InputError
    from kilowait.experiments.scenario_inputs import is_node_level

    if cluster == "auto" or not is_node_level(cluster, ""):
        raise InputError(
            "no job log to train on; name one, or a GPU cluster (--cluster gpu-mixed), for which one is generated"
        )
    return f"gpu:100000:{cluster}:0.9:0"


def _short(trace: str) -> str:
    """The log as part of a folder name.

    >>> _short("logs/KTH-SP2-1996-2.1-cln.swf.gz"), _short("gpu:100000:gpu-mixed:0.9:0")
    ('KTH-SP2-1996-2', 'gpu-100000-gpu-mixed-0.9-0')
    """
    return trace.replace(":", "-") if ":" in trace else Path(trace).name.split(".")[0]


def _given(context: typer.Context, *names: str) -> dict[str, Any]:
    """The values of those of these options that were given on the command line."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return {
        name: context.params[name]
        for name, source in sources.items()
        if source is not None and source.name != "DEFAULT"
    }
