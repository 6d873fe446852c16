"""`train`: an agent of any kind, trained on the earlier part of a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kilowait.cluster import Cluster
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import split
from kilowait.experiments import train_batch, train_gpu, train_power, train_rl
from kilowait.experiments.power import PowerSettings, with_power
from kilowait.experiments.resume_checks import check_can_start
from kilowait.files import locks_output
from kilowait.jobs import JobTable

__all__ = ["train"]

CMA_ES = "cma-es"
POWER_SEARCH: dict[str, Any] = {
    "objective": "energy",
    "max_slowdown_ratio": 1.1,
    "policy": "saf",
    "backfill": Settings.backfill,
    "generations": 60,
    "population": 16,
    "windows": 16,
    "window_jobs": 1024,
}
"""Settings of the training of a linear power agent, with their defaults; the command line uses them too."""


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
        settings: fields of `BatchTraining` (cma-es), `GpuTraining` (cma-es on GPU clusters), `RLTraining` (networks) in
            `kilowait.experiments`, or entries of `POWER_SEARCH` (cma-es with `power`), such as ``generations=80`` or
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
    training_power = None
    if chosen is not None:
        jobs, _ = with_power(chosen, jobs)
        training_power = train_power.PowerTraining.of(chosen, power_controls, jobs, cluster)
    parts = split(jobs)
    common: dict[str, Any] = {"progress": progress, "folder": folder_path, "resume": resume}
    if algo != CMA_ES:
        _check_names(settings, [each.name for each in fields(train_rl.RLTraining)], f"algo {algo!r}")
        agent, _ = train_rl.train_network(
            parts.train,
            parts.validation,
            cluster,
            train_rl.RLTraining(algo=algo, seed=seed, **settings),
            power=training_power,
            **common,
        )
        return agent
    if training_power is not None:
        _check_names(settings, list(POWER_SEARCH), "cma-es with power")
        agent, _ = train_power.train_power_agent(
            parts.train,
            parts.validation,
            cluster,
            training_power,
            seed=seed,
            trace=trace,
            **{**POWER_SEARCH, **settings},
            **common,
        )
    elif cluster.node_level:
        _check_names(settings, [each.name for each in fields(train_gpu.GpuTraining)], "cma-es on GPU clusters")
        gpu_training = train_gpu.GpuTraining(seed=seed, **settings)
        agent, _ = train_gpu.train_gpu_agent(jobs, cluster, gpu_training, trace=trace, **common)
    else:
        _check_names(settings, [each.name for each in fields(train_batch.BatchTraining)], "cma-es")
        batch_training = train_batch.BatchTraining(seed=seed, **settings)
        agent, _ = train_batch.train_linear_agent(jobs, cluster, batch_training, trace=trace, **common)
    agent.save(folder_path / "agent.json")
    return agent


def power_settings(power: PowerSettings | str | None) -> PowerSettings | None:
    """Power settings given as an object, or as the name of a power model.

    >>> power_settings("taurus").power
    'taurus'
    """
    return PowerSettings(power) if isinstance(power, str) else power


def _check_names(settings: dict[str, Any], known: list[str], of: str) -> None:
    """Raise an error for a setting that the training does not have."""
    for name in settings:
        if name not in known:
            raise UnknownNameError(f"setting of {of}", name, known)
