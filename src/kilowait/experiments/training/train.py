"""Training of an agent of any kind on the earlier part of a log: `train` for Python, `run_training` for scenarios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kilowait.cluster import Cluster
from kilowait.cluster.toml import to_dict
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import split
from kilowait.experiments.oversized import jobs_that_fit, without_oversized
from kilowait.experiments.policies import parse_names
from kilowait.experiments.power import DEFAULT_CONTROLS, PowerTraining, with_power
from kilowait.experiments.power_controls import check_reward
from kilowait.experiments.scenario import Console, prepare_scenario
from kilowait.experiments.scenario_inputs import Workload, is_node_level
from kilowait.experiments.settings import PowerSettings, Scenario, parse_backfill
from kilowait.experiments.training.linear import (
    BatchTrainer,
    BatchTraining,
    GpuTrainer,
    GpuTraining,
    PowerAgentTraining,
    PowerTrainer,
)
from kilowait.experiments.training.network import NetworkTrainer
from kilowait.experiments.training.resume_checks import check_can_start, resumable
from kilowait.experiments.training.rl_settings import RLTraining, read_hyperparameters
from kilowait.experiments.training.synthetic import SyntheticTraining, synthetic_jobs_of
from kilowait.experiments.training.trainer import Trainer, TrainingRun
from kilowait.files import locks_output
from kilowait.jobs import JobTable
from kilowait.units import parse_duration

CMA_ES = "cma-es"
"""The training algorithm that searches weights of a linear score; the others train networks."""


@locks_output("out", inside=True)
def train(
    jobs: JobTable,
    cluster: Cluster,
    algo: str = CMA_ES,
    *,
    out: str | PathLike[str] | None = None,
    seed: int = 0,
    power: PowerSettings | str | None = None,
    power_controls: str = DEFAULT_CONTROLS,
    on_oversized: str = Settings.on_oversized,
    resume: bool = False,
    force: bool = False,
    progress: Callable[[Any], None] | None = None,
    trace: str = "jobs",
    **settings: Any,
) -> Any:
    """Train an agent on the first 60 % of a log and select it on the next 20 %; the last 20 % are not used.

    The agent is a policy: `kilowait.simulate` and `kilowait.compare` take it, and `kilowait.evaluate` tests it on the
    last 20 %.

    Args:
        jobs: the log.
        cluster: the machine; on a GPU cluster the agent also chooses GPU types.
        algo: cma-es (an evolution strategy that searches the weights of a linear score), or for networks ppo, a2c, d3qn
            or sac (extra learn).
        out: folder of the checkpoints and of the agent's file, which `kilowait.load_agent` reads; None: none is kept.
        seed: random seed; the same seed gives the same agent.
        power: power model and signals (`kilowait.experiments.power.PowerSettings`, or the name of a power model): the
            agent also uses power controls. None: it does not.
        power_controls: with `power`: the power controls it may use.
        on_oversized: jobs larger than the cluster: an error, or leave them out ("drop").
        resume: continue from the checkpoint in `out`.
        force: replace an earlier training in `out`; without it that is an error.
        progress: called after every generation of a search, or every update of a network.
        trace: name of the log, for the provenance.
        settings: fields of `BatchTraining` (cma-es), `GpuTraining` (cma-es on GPU clusters), `PowerAgentTraining`
            (cma-es with `power`) or `RLTraining` (networks) in `kilowait.experiments`, such as ``generations=80`` or
            ``total_timesteps=200_000``.

    >>> import kilowait as kw
    >>> log, machine = kw.lublin(600, nodes=16, load=0.9, seed=1), Cluster.from_nodes(16)
    >>> agent = train(log, machine, generations=2, population=4, windows=2, window_jobs=50)
    >>> kw.evaluate(agent, log, machine, ["saf"], windows=2, window_jobs=50).labels
    ('saf', 'agent')
    """
    if resume and out is None:
        raise InputError("resume is True, but there is no out; give the folder of the training")
    if out is None:
        with TemporaryDirectory(prefix="kilowait-train-") as folder:
            return train(
                jobs, cluster, algo, out=folder, seed=seed, power=power, power_controls=power_controls,
                on_oversized=on_oversized, progress=progress, trace=trace, **settings,
            )  # fmt: skip
    fits = jobs_that_fit(jobs, cluster, on_oversized)
    jobs = jobs if fits.all() else jobs[fits]
    folder_path = Path(out)
    if not resume:
        check_can_start(folder_path, resume=False, force=force)
    model = PowerSettings(power) if isinstance(power, str) else power
    values = {"seed": seed, **settings}
    trainer = make_trainer(algo, values, node_level=cluster.node_level, has_power=model is not None)
    if model is not None and trainer.takes_power:
        jobs, _ = with_power(model, jobs)
        trainer = replace(trainer, power=PowerTraining.of(model, power_controls, jobs, cluster))
    agent, _ = trainer.train(jobs, cluster, TrainingRun(trace, folder_path, resume, progress))
    trainer.write(agent, folder_path)
    return agent


def make_trainer(algo: str, settings: Mapping[str, Any], *, node_level: bool, has_power: bool) -> Trainer:
    """The trainer for an algorithm and a kind of cluster; `settings`: fields of its settings.

    >>> make_trainer("cma-es", {"generations": 3}, node_level=False, has_power=False).steps
    3
    """
    if node_level and has_power:
        raise InputError(
            "agents on GPU clusters choose jobs, GPU types and placements, and cannot set power caps; leave --power "
            "(power=) out, and cap the GPUs in a run of the agent: kilowait simulate --policy agent:DIR --power auto "
            "--gpu-power-cap 60%"
        )
    if algo != CMA_ES:
        return NetworkTrainer(_settings(RLTraining, {"algo": algo, **settings}, f"algo {algo!r}"))
    if has_power:
        return PowerTrainer(_settings(PowerAgentTraining, settings, "cma-es with power"))
    if node_level:
        return GpuTrainer(_settings(GpuTraining, settings, "cma-es on GPU clusters"))
    return BatchTrainer(_settings(BatchTraining, settings, "cma-es"))


def _settings(kind: Any, values: Mapping[str, Any], of: str) -> Any:
    """Settings of this class; raises an error for a setting that the training does not have."""
    known = [each.name for each in fields(kind)]
    for name in values:
        if name not in known:
            raise UnknownNameError(f"setting of {of}", name, known)
    return kind(**values)


# -- trainings of scenarios ------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingTask:
    """A training on the log of a scenario, and its output folder."""

    trainer: Trainer
    scenario: Scenario
    out: Path
    synthetic: SyntheticTraining | None = None
    """Generators whose jobs are added to the training; None: none."""
    wandb: str | None = None
    """Weights & Biases project that networks are logged to; None: none."""
    resume: bool = False
    force: bool = False


@dataclass(frozen=True)
class TrainedAgent:
    """An agent, the trainer that trained it, and its test results."""

    agent: Any
    trainer: Trainer
    evaluation: dict[str, Any]
    """Test results against policies, as plain data."""
    front: dict[str, Any] | None
    """Test results under every preference, of an agent with several objectives."""
    workload: Workload
    cluster: Cluster
    out: Path
    checkpoints: Path
    """Folder of the checkpoints."""


def run_training(task: TrainingTask, console: Console, command: Sequence[str]) -> TrainedAgent:
    """Read the log, train the agent, test it on later jobs and write its folder."""
    trainer, scenario = task.trainer, task.scenario
    check_reward(trainer.reward_terms, has_power=scenario.power is not None)
    with resumable(task.out, resume=task.resume, force=task.force, console=console) as checkpoints:
        with console.busy(f"reading {scenario.trace} ..."):
            workload, cluster, notes = prepare_scenario(scenario)
            workload, more = without_oversized(workload, cluster, scenario.on_oversized)
            workload = _with_test_predictions(workload)
            if scenario.power is not None and trainer.takes_power:
                power = PowerTraining.of(scenario.power, scenario.power_controls, workload.jobs, cluster)
                trainer = replace(trainer, power=power)
        for note in (*notes, *more, *workload.leakage_notes):
            console.note(note)
        trainer.check(workload.jobs, cluster)
        for note in trainer.notes:
            console.note(note)
        seed = trainer.settings.seed
        synthetic = synthetic_jobs_of(task.synthetic, scenario, workload, cluster, seed, console)
        with trainer.logger(checkpoints, scenario.trace, task.wandb) as log, console.steps(trainer.steps) as step:

            def progress(done: Any) -> None:
                log(done)
                step(*trainer.progress_text(done))

            mixture = None if synthetic is None else synthetic.mixture
            run = TrainingRun(scenario.trace, checkpoints, task.resume, progress, mixture)
            agent, history = trainer.train(workload.jobs, cluster, run)
        with console.busy("testing the agent on later jobs ..."):
            front = trainer.front(agent, workload.jobs, cluster)
            evaluation = trainer.evaluate(agent, workload.jobs, cluster, scenario.trace)
        manifest = workload.provenance(scenario.trace, command, console.today())
        manifest |= {} if synthetic is None else {"synthetic": synthetic.record}
        trainer.save(
            task.out,
            agent,
            history,
            scenario={**scenario.to_dict(), "cluster": to_dict(cluster)},
            results={
                "judged": evaluation,
                **trainer.objective_record(cluster),
                **({} if front is None else {"front": front}),
            },
            manifest={**manifest, "seeds": {**manifest["seeds"], "training": seed}},
            force=task.force or task.resume,
        )
    return TrainedAgent(agent, trainer, evaluation, front, workload, cluster, task.out, checkpoints)


def _with_test_predictions(workload: Workload) -> Workload:
    """The workload with its last 20 % marked as test jobs for its predictors."""
    return workload.evaluated_from(split(workload.jobs).row_range("test")[0]) if workload.predictors else workload


def default_folder(trainer: Trainer, trace: str) -> Path:
    """The output folder of a training that names none.

    >>> for trace in ("logs/KTH-SP2-1996-2.1-cln.swf.gz", "gpu:9:gpu-mixed"):
    ...     print(default_folder(BatchTrainer(BatchTraining(seed=3)), trace))
    runs/cma-es-KTH-SP2-1996-2-seed3
    runs/cma-es-gpu-9-gpu-mixed-seed3
    """
    log = trace.replace(":", "-") if ":" in trace else Path(trace).name.split(".")[0]
    return Path("runs", f"{trainer.record['algo']}-{log}-seed{trainer.settings.seed}")


# -- options of the command line -------------------------------------------------------------------


def trainer_from_options(options: Mapping[str, Any], *, node_level: bool) -> Trainer:
    """The trainer that the options of ``kilowait train`` describe, by the names of its parameters.

    `algo` and `network` are None unless they are given: then a file of hyperparameters may name them.
    """
    algo, network, hyperparameters = options["algo"] or CMA_ES, options["network"], dict[str, Any]()
    if options["hyperparameters"] is not None:
        file = read_hyperparameters(options["hyperparameters"], algo=options["algo"], network=options["network"])
        algo, network, hyperparameters = file.algo, file.network, dict(file.hyperparameters)
    has_power = options["power"] is not None
    is_batch = not node_level and not has_power
    _check_options(options, algo, is_batch=is_batch)
    if algo != CMA_ES:
        settings = rl_settings_from_options({**options, "network": network}) | {
            "hyperparameters": hyperparameters or None
        }
    else:
        names = ["seed", "windows", "generations", "population", "objective"]
        settings = {name: options[name] for name in (*names, *(["max_slowdown_ratio"] if has_power else []))}
        settings["window_jobs"] = options["window"]
        if is_batch or has_power:
            settings["backfill"] = parse_backfill(options["backfill"])
        if is_batch:
            settings["max_wait_s"] = _seconds(options["max_wait"])
    values = {name: value for name, value in settings.items() if value is not None}
    return make_trainer(algo, values, node_level=node_level, has_power=has_power)


def rl_settings_from_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `RLTraining` that the options of ``kilowait train`` or ``kilowait tune`` fill, by field."""
    fields_of_options = {field.name for field in fields(RLTraining)}.difference(("algo", "hyperparameters", "reward"))
    objective, objectives, constraint = (options.get(name) for name in ("objective", "objectives", "constraint"))
    return {
        **{name: value for name, value in options.items() if name in fields_of_options},
        "window_jobs": options["window"],
        "backfill": parse_backfill(options["backfill"]),
        "max_wait_s": _seconds(options["max_wait"]),
        "sla_s": _seconds(options["sla"]),
        "reward": None if objective is None else parse_weights(objective),
        "objectives": None if objectives is None else tuple(parse_names("objectives", objectives)),
        "constraint": None if constraint is None else parse_weights(constraint),
    }


def _seconds(text: str | None) -> float | None:
    return None if text is None else parse_duration(text)


def _check_options(options: Mapping[str, Any], algo: str, *, is_batch: bool) -> None:
    """Raise an InputError for options that this kind of training does not have."""
    if options["prediction_features"] and (algo == CMA_ES or options["runtime_predictor"] in (None, "last2")):
        raise InputError(
            "--prediction-features adds predictions to the observation of networks; it needs --algo ppo, a2c, d3qn or "
            "sac, and --runtime-predictor forest or the folder of a predictor"
        )
    if algo != CMA_ES:
        return
    if options["request_features"]:
        raise InputError("--request-features is for networks; add --algo ppo, a2c, d3qn or sac, or leave it out")
    if options["expert"] is not None:
        raise InputError(
            f"--expert {options['expert']} is for networks; add --algo ppo, a2c, d3qn or sac, or leave it out"
        )
    if options["objectives"] is not None:
        raise InputError(f"{CMA_ES} searches the weights of one score; --objectives is for networks: use --algo ppo")
    if is_batch:
        return
    if options["max_wait"] is not None:
        raise InputError(
            f"--max-wait {options['max_wait']} with --algo {CMA_ES} is for batch clusters without --power; leave it "
            "out, or train a network with --algo ppo"
        )
    names = ("synthetic", "synthetic_share", "synthetic_curriculum", "synthetic_jobs")
    if SyntheticTraining.from_options(*(options[name] for name in names)) is not None:
        cluster_kind = "training with --power" if options["power"] is not None else "GPU clusters"
        raise InputError(f"--synthetic is for batch clusters (whole nodes), not for {cluster_kind}; leave it out")


def parse_weights(text: str) -> dict[str, float]:
    """Weights written as comma-separated name=number.

    >>> parse_weights("slowdown=1,sla=10")
    {'slowdown': 1.0, 'sla': 10.0}
    """
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


def synthetic_workload_for(cluster: str) -> str:
    """The default training workload: a synthetic one for the GPU cluster at load 0.9.

    >>> synthetic_workload_for("gpu-mixed")
    'gpu:100000:gpu-mixed:0.9:0'
    """
    if cluster == "auto" or not is_node_level(cluster, ""):
        raise InputError(
            "no job log to train on; name one, or a GPU cluster (--cluster gpu-mixed), for which one is generated"
        )
    return f"gpu:100000:{cluster}:0.9:0"
