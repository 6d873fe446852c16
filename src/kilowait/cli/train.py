"""``kilowait train``: train a scheduling agent on a job log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options, train_synthetic
from kilowait.cli import option_groups as groups
from kilowait.cli.train_options import NetworkOptions, SearchOptions
from kilowait.cli.train_resume import resumable, state_folder

if TYPE_CHECKING:
    from kilowait.experiments.trainers import Trainer

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
    networks: NetworkOptions,
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
    search: SearchOptions,
    backfill: options.BackfillDepth = "easy",
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
    max_wait: Annotated[
        str | None,
        typer.Option(
            "--max-wait", metavar="SPAN", help="A job that has waited longer, e.g. 12h or 3d, is scheduled first."
        ),
    ] = None,
    synthetic: train_synthetic.GeneratorFoldersOption = None,
    synthetic_share: train_synthetic.SyntheticShareOption = None,
    synthetic_curriculum: train_synthetic.CurriculumOption = None,
    synthetic_jobs: train_synthetic.SyntheticJobsOption = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume an interrupted training from its folder, or continue with more --generations or "
            "--total-timesteps.",
        ),
    ] = False,
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
    signals: groups.AgentSignalOptions,
    load: options.Load = None,
    jobs: options.Jobs = None,
    log_format: groups.LogFormatOptions,
    runtime_predictor: options.RuntimePredictor = None,
    power_predictor: options.PowerPredictor = None,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Train an agent on the first 80 % of a log and test it against policies on the rest.

    The first 60 % of the jobs are used for training, the next 20 % for choosing the best agent, and the last 20 % for
    testing. With --power the agent also uses power controls (DVFS states, node sleep, load shifting) and is tested on
    energy, CO2 or cost as well.
    """
    from kilowait.experiments.hyperparameter_file import read_hyperparameters
    from kilowait.experiments.scenario_inputs import is_node_level, parse_backfill
    from kilowait.experiments.train import make_trainer

    network, hyperparameters = networks.network, dict[str, Any]()
    if networks.hyperparameters is not None:
        given = _given(context, "algo", "network")
        file = read_hyperparameters(networks.hyperparameters, algo=given.get("algo"), network=given.get("network"))
        algo, network, hyperparameters = file.algo, file.network, dict(file.hyperparameters)
    trace = synthetic_workload_for(cluster) if trace is None else trace
    out = Path("runs", f"{algo}-{_short(trace)}-seed{seed}") if out is None else out
    node_level = is_node_level(cluster, trace)
    _check_options(context, algo, batch=power is None and not node_level)
    chosen: dict[str, Any] = {"seed": seed, "window_jobs": window, "windows": windows}
    if algo != CMA_ES:
        chosen |= {"backfill": parse_backfill(backfill), "max_wait_s": seconds(max_wait)}
        chosen |= {**network_settings(networks), "network": network, "hyperparameters": hyperparameters or None}
        chosen["reward"] = None if objective is None else weights_of(objective)
    else:
        chosen |= {"generations": search.generations, "population": search.population, "objective": objective}
        if power is not None:
            chosen |= {"max_slowdown_ratio": search.max_slowdown_ratio, "backfill": parse_backfill(backfill)}
        elif not node_level:
            chosen |= {"backfill": parse_backfill(backfill), "max_wait_s": seconds(max_wait)}
    values = {name: value for name, value in chosen.items() if value is not None}
    trainer = make_trainer(algo, values, node_level=node_level, has_power=power is not None)
    controls = power_controls if power is not None and trainer.takes_power else "none"
    _run(context, trace, out, trainer, controls, resume=resume, wandb=networks.wandb, json=json, force=force)


def network_settings(networks: NetworkOptions) -> dict[str, Any]:
    """Fields of `RLTraining` that the options of networks fill."""
    from kilowait.experiments.policy_configs import parse_names

    names = ("total_timesteps", "num_envs", "episode_jobs", "queue_window", "load_curriculum", "expert", "expert_steps")
    objectives, constraint = networks.objectives, networks.constraint
    return {
        **{name: getattr(networks, name) for name in (*names, "device", "prediction_features")},
        "objectives": None if objectives is None else tuple(parse_names("objectives", objectives)),
        "constraint": None if constraint is None else weights_of(constraint),
        "sla_s": seconds(networks.sla),
    }


def _check_options(context: typer.Context, algo: str, *, batch: bool) -> None:
    """Raise an InputError for options that this kind of training does not have."""
    from kilowait.errors import InputError

    given = context.params
    if given["prediction_features"] and (algo == CMA_ES or given["runtime_predictor"] in (None, "last2")):
        raise InputError(
            "--prediction-features adds predictions to the observation of networks; it needs --algo ppo, a2c, d3qn or "
            "sac, and --runtime-predictor forest or the folder of a predictor"
        )
    if algo != CMA_ES:
        return
    if given["expert"] is not None:
        raise InputError(
            f"--expert {given['expert']} is for networks; add --algo ppo, a2c, d3qn or sac, or leave it out"
        )
    if given["objectives"] is not None:
        raise InputError(f"{CMA_ES} searches the weights of one score; --objectives is for networks: use --algo ppo")
    if given["max_wait"] is not None and not batch:
        raise InputError(
            f"--max-wait {given['max_wait']} with --algo {CMA_ES} is for batch clusters without --power; leave it out, "
            "or train a network with --algo ppo"
        )
    if not batch:
        cluster_kind = "training with --power" if given["power"] is not None else "GPU clusters"
        train_synthetic.refuse_generated(context, cluster_kind)


def _run(
    context: typer.Context,
    trace: str,
    out: Path,
    trainer: Trainer,
    power_controls: str,
    *,
    resume: bool,
    wandb: str | None,
    json: bool,
    force: bool,
) -> None:
    """Read the log, train the agent, test it on later jobs, write its folder and print the results."""
    from kilowait.cli.output.trained_agent import progress_text, show_trained_agent
    from kilowait.cluster.toml import to_dict
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.train_batch import with_test_predictions
    from kilowait.experiments.train_power import PowerTraining
    from kilowait.experiments.trainers import GpuTrainer, NetworkTrainer
    from kilowait.experiments.training_logger import TrainingLogger

    state = state_folder(context, out, resume=resume, force=force)
    network = trainer if isinstance(trainer, NetworkTrainer) else None
    scenario = groups.scenario_from_options(context, trace, backfill=trainer.backfill, power_controls=power_controls)
    if network is not None:
        network.check_reward(has_power=scenario.power is not None)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
        workload = with_test_predictions(workload)
        if scenario.power is not None and trainer.takes_power:
            trainer = replace(trainer, power=PowerTraining.of(scenario.power, power_controls, workload.jobs, machine))
    for note in (*notes, *workload.leakage_notes):
        console.note(note)
    trainer.check(workload.jobs, machine)
    if isinstance(trainer, GpuTrainer):
        console.note("every policy is run with every placement first; the search starts from the best")
    seed = trainer.settings.seed
    generated = train_synthetic.generated_jobs(context, scenario, workload, machine, seed)
    logger = None
    if isinstance(trainer, NetworkTrainer):
        logger = TrainingLogger(state / "tensorboard", wandb=wandb, config={**trainer.record, "trace": trace})
    with console.steps(trainer.steps) as step, resumable(state, resume=resume):

        def progress(done: Any) -> None:
            if logger is not None and "imitation" not in done.losses:
                logger(done)
            step(*progress_text(trainer, done))

        agent, history = trainer.train(
            workload.jobs,
            machine,
            trace=trace,
            folder=state,
            resume=resume,
            progress=progress,
            mixture=None if generated is None else generated.mixture,
        )
    if logger is not None:
        logger.close()
    with console.busy("testing the agent on later jobs ..."):
        front = trainer.front(agent, workload.jobs, machine) if isinstance(trainer, NetworkTrainer) else None
        evaluation = trainer.evaluate(agent, workload.jobs, machine, trace)
    manifest = workload.provenance(trace, console.command(context), console.today())
    manifest |= train_synthetic.synthetic_record(generated)
    with_front = {} if front is None else {"front": front}
    objective = {"objective": trainer.objective_text(machine)} if isinstance(trainer, NetworkTrainer) else {}
    trainer.save(
        out,
        agent,
        history,
        scenario={**scenario.to_dict(), "cluster": to_dict(machine)},
        results={"judged": evaluation, **objective, **with_front},
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": seed}},
        force=force or resume,
    )
    if json:
        console.json_document({"agent": agent.provenance, "judged": evaluation, **with_front, "out": out})
        return
    show_trained_agent(trainer, agent, evaluation, front, workload, machine, out, state)


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


def seconds(text: str | None) -> float | None:
    """A time as in 4h or 90s, in seconds; None stays None."""
    from kilowait.units import parse_duration

    return None if text is None else parse_duration(text)


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
