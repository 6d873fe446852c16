"""`train`: an agent of any kind, trained on the earlier part of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments import train_batch, train_gpu, train_power, train_rl
from kilowait.experiments.power import PowerSettings, with_power
from kilowait.experiments.resume_checks import check_can_start
from kilowait.experiments.trainers import BatchTrainer, GpuTrainer, NetworkTrainer, PowerTrainer, Trainer
from kilowait.files import locks_output
from kilowait.jobs import JobTable

__all__ = ["CMA_ES", "make_trainer", "train"]

CMA_ES = "cma-es"


@locks_output("out", inside=True)
def train(
    jobs: JobTable,
    cluster: Cluster,
    algo: str = CMA_ES,
    *,
    out: str | PathLike[str] | None = None,
    seed: int = 0,
    power: PowerSettings | str | None = None,
    power_controls: str = train_power.DEFAULT_CONTROLS,
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
        resume: continue from the checkpoint in `out`.
        force: replace an earlier training in `out`; without it that is an error.
        progress: called after every generation of a search, or every update of a network.
        trace: name of the log, for the provenance.
        settings: fields of `BatchTraining` (cma-es), `GpuTraining` (cma-es on GPU clusters), `PowerSearchSettings`
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
                progress=progress, trace=trace, **settings,
            )  # fmt: skip
    folder_path = Path(out)
    if not resume:
        check_can_start(folder_path, resume=False, force=force)
    chosen = power_settings(power)
    values = {"seed": seed, **settings}
    trainer = make_trainer(algo, values, node_level=cluster.node_level, has_power=chosen is not None)
    if chosen is not None and trainer.takes_power:
        jobs, _ = with_power(chosen, jobs)
        trainer = replace(trainer, power=train_power.PowerTraining.of(chosen, power_controls, jobs, cluster))
    agent, _ = trainer.train(jobs, cluster, trace=trace, folder=folder_path, resume=resume, progress=progress)
    trainer.write(agent, folder_path)
    return agent


def make_trainer(algo: str, settings: Mapping[str, Any], *, node_level: bool, has_power: bool) -> Trainer:
    """The trainer for an algorithm and a kind of cluster; `settings`: fields of its settings.

    >>> make_trainer("cma-es", {"generations": 3}, node_level=False, has_power=False).steps
    3
    """
    if algo != CMA_ES:
        return NetworkTrainer(_settings(train_rl.RLTraining, {"algo": algo, **settings}, f"algo {algo!r}"))
    if has_power:
        return PowerTrainer(_settings(train_power.PowerSearchSettings, settings, "cma-es with power"))
    if node_level:
        return GpuTrainer(_settings(train_gpu.GpuTraining, settings, "cma-es on GPU clusters"))
    return BatchTrainer(_settings(train_batch.BatchTraining, settings, "cma-es"))


def power_settings(power: PowerSettings | str | None) -> PowerSettings | None:
    """Power settings given as an object, or as the name of a power model.

    >>> power_settings("taurus").power
    'taurus'
    """
    return PowerSettings(power) if isinstance(power, str) else power


def _settings(kind: Any, values: Mapping[str, Any], of: str) -> Any:
    """Settings of this class; raises an error for a setting that the training does not have."""
    known = [each.name for each in fields(kind)]
    for name in values:
        if name not in known:
            raise UnknownNameError(f"setting of {of}", name, known)
    return kind(**values)
