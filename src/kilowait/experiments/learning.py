"""Training a network on the earlier part of a log, in a folder that survives a crash."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait import agents
from kilowait.cluster import Cluster
from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.evaluation.folders import plain_json, save_folder
from kilowait.evaluation.folders.toml import to_toml
from kilowait.evaluation.folders.writing import read_json
from kilowait.jobs import JobTable

__all__ = ["ALGORITHMS", "Curves", "Learning", "learn", "save_learned", "training_folder"]

ALGORITHMS = {
    "ppo": "proximal policy optimisation",
    "a2c": "advantage actor-critic",
    "d3qn": "dueling double deep Q-network, prioritized replay",
    "sac": "discrete soft actor-critic",
}
"""Algorithms that train networks, with what they are."""


@dataclass(frozen=True)
class Learning:
    """How to train a network. What is None is the algorithm's own default."""

    algo: str = "ppo"
    net: str = "kernel"
    """kernel, attention or gat."""
    seed: int = 0
    steps: int = 1_000_000
    """Decisions of all environments together."""
    envs: int = 32
    """Environments that play side by side."""
    episode_jobs: int = 256
    """Jobs in an episode."""
    slots: int = 64
    """Waiting jobs shown at once."""
    backfill: str | int = "easy"
    backfill_order: str = "agent"
    """A rule for the candidates of backfilling, or "agent": the network orders those too."""
    reward: Mapping[str, float] | None = None
    """Weights of the terms of the reward; None: slowdown, on placed nodes mean completion time."""
    sla_s: float = 4 * 3600.0
    """Wait beyond which a job counts for the term sla, seconds."""
    limit: Mapping[str, float] = field(default_factory=dict)
    """PPO: one term and the most it may be, such as {"sla": 0.05}: 95 % of the jobs are to wait at most sla_s. The
    rest of the reward is made small subject to that, by a price on the term that rises until it holds."""
    max_wait_s: float | None = None
    """A job that has waited longer goes first; None: no bound."""
    ease: float = 1.0
    """Curriculum: episodes begin with arrivals this many times as fast as in the log and come to it, in a straight
    line, by the middle of the training; below 1 the machine is less busy at first."""
    windows: int = 16
    """Windows of the validation jobs that choose the best weights."""
    window_jobs: int = 1024
    """Jobs in each."""
    device: str = "cpu"
    precision: str = "float32"
    threads: int = 1
    """Of torch on the CPU; two beside a busy neighbour can be a hundred times as slow as one."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the algorithm's own settings, such as learning_rate; sizes of the network as a mapping."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise UnknownNameError("algorithm", self.algo, (*ALGORITHMS, "es"))
        if self.limit and (self.algo != "ppo" or len(self.limit) > 1):
            raise InputError(
                f"limits {dict(self.limit)} for {self.algo}; it is ppo that keeps a limit, and one"
            )
        if not (math.isfinite(self.ease) and self.ease > 0):
            raise InputError(
                f"the curriculum begins at {self.ease} times the arrivals; give a number above 0"
            )

    def algorithm_settings(self) -> Any:
        """The dataclass of the algorithm."""
        kind = getattr(agents, f"{self.algo.upper()}Settings")
        known = [each.name for each in fields(kind)]
        for name in self.settings:
            if name not in known:
                raise UnknownNameError(f"setting of {self.algo}", name, known)
        return kind(
            **{
                "total_steps": self.steps,
                "network": self.net,
                "precision": self.precision,
                **dict(zip(("cost", "cost_limit"), next(iter(self.limit.items()), ()), strict=False)),
                **_with_sizes(self.settings),
            }
        )


class _Eased:
    """A vector env whose arrivals come faster, or slower, at first; its count of steps is kept with it."""

    def __init__(self, vec: Any, ease: float, steps: int) -> None:
        self._vec, self._ease, self._until = vec, ease, max(1, steps // 2)
        self._done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vec, name)

    def _set(self) -> None:
        way = min(1.0, self._done / self._until)
        self._vec.squeeze(self._ease + (1.0 - self._ease) * way)

    def reset(self, **how: Any) -> Any:
        self._set()
        return self._vec.reset(**how)

    def step(self, actions: npt.NDArray[np.int64]) -> Any:
        self._done += len(actions)
        self._set()
        return self._vec.step(actions)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        return {**self._vec.snapshot(), "eased": np.array([self._done])}

    def restore(self, kept: Mapping[str, npt.NDArray[Any]]) -> Any:
        self._done = int(kept["eased"][0])
        return self._vec.restore({name: array for name, array in kept.items() if name != "eased"})


def learn(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    how: Learning,
    *,
    folder: str | PathLike[str],
    resume: bool = False,
    progress: Callable[[Any], None] | None = None,
) -> tuple[Any, list[Any]]:
    """A `NetworkAgent` trained on `jobs` and chosen on `validation`, later jobs of the same log; and its history.

    The folder holds ``last.safetensors``, from which `resume` goes on exactly, ``agent.pt``, and ``explained.json``:
    what the network looks at when it plays the validation jobs.
    """
    from kilowait.agents.judging import figures
    from kilowait.agents.learning.agent_file import save_network
    from kilowait.agents.learning.attributing import explained

    window_jobs = min(how.window_jobs, len(validation))
    if len(jobs) < how.episode_jobs:
        raise InputError(
            f"the training part of the log has {len(jobs):,} jobs and an episode {how.episode_jobs:,}; take shorter "
            "episodes (--episode-jobs) or a longer log"
        )
    world = _gpu_world(cluster, how) if cluster.placed else _batch_world(cluster, how)
    copied = how.algo in ("d3qn", "sac")  # they keep what they saw; the others carry it away at once
    vec = world.envs(jobs, how.envs, how.episode_jobs, copied)
    checks = world.envs(validation, how.windows, window_jobs, False)
    first = np.linspace(0, len(validation) - window_jobs, how.windows).astype(np.int64)
    if how.ease != 1.0:
        vec = _Eased(vec, how.ease, how.steps)
    train = getattr(agents, f"train_{how.algo}")
    trained = train(
        vec,
        how.algorithm_settings(),
        seed=how.seed,
        device=how.device,
        threads=how.threads,
        checkpoint_dir=folder,
        resume=folder if resume else None,
        validate=lambda network: float(figures(network, checks, first).mean()),
        progress=progress,
    )
    provenance = {"env": world.name, "asking": world.asked, "learning": _plain(how), "cluster": cluster.name}
    save_network(trained.network, Path(folder) / "agent.pt", provenance=provenance)
    trained.network.provenance = provenance
    looked = explained(trained.network, checks, first, cluster)
    told = {} if looked is None else looked.to_dict()
    (Path(folder) / "explained.json").write_text(plain_json(told) + "\n", encoding="utf-8")
    return world.agent(trained.network), trained.history


class _World(NamedTuple):
    """Where a network is trained: how environments are made, and what plays with it afterwards."""

    name: str
    envs: Callable[[JobTable, int, int, bool], Any]
    """(log, copies, jobs in an episode, whether observations are new arrays)"""
    agent: Callable[[Any], Any]
    asked: dict[str, Any]


def _batch_world(cluster: Cluster, how: Learning) -> _World:
    from kilowait.agents.player import NetworkAgent, asked_as
    from kilowait.envs.board import Asking
    from kilowait.envs.vector import BatchVectorEnv

    asking = Asking(
        slots=how.slots,
        backfill=how.backfill,
        backfill_order=how.backfill_order,
        max_wait_s=np.inf if how.max_wait_s is None else how.max_wait_s,
        graph=how.net == "gat",
    )

    def envs(jobs: JobTable, copies: int, episode_jobs: int, copied: bool) -> Any:
        return BatchVectorEnv(
            copies, jobs=jobs, cluster=cluster, episode_jobs=episode_jobs, reward=how.reward, sla_s=how.sla_s,
            autoreset_mode="SameStep", copy=copied, **vars(asking),
        )  # fmt: skip

    return _World("kilowait/Batch-v0", envs, lambda network: NetworkAgent(network, asking), asked_as(asking))


def _gpu_world(cluster: Cluster, how: Learning) -> _World:
    from kilowait.agents.gpu_player import GpuNetworkAgent, gpu_asked_as
    from kilowait.envs.gpu.board import GpuAsking
    from kilowait.envs.gpu.vector import GpuVectorEnv
    from kilowait.experiments.placing import run_speeds

    if how.net == "gat":
        raise InputError(
            "the environment of placed nodes shows no graph of jobs; take --net kernel or attention"
        )
    asking = GpuAsking(slots=how.slots, max_wait_s=np.inf if how.max_wait_s is None else how.max_wait_s)

    def envs(jobs: JobTable, copies: int, episode_jobs: int, copied: bool) -> Any:
        return GpuVectorEnv(
            copies, jobs=jobs, cluster=cluster, speeds=run_speeds("auto", jobs, cluster), episode_jobs=episode_jobs,
            reward=how.reward, sla_s=how.sla_s, autoreset_mode="SameStep", copy=copied, **vars(asking),
        )  # fmt: skip

    return _World(
        "kilowait/Gpu-v0", envs, lambda network: GpuNetworkAgent(network, asking), gpu_asked_as(asking)
    )


def training_folder(out: str | PathLike[str]) -> Path:
    """Where the state of a training is kept while it runs, and after: beside the folder of the agent.

    >>> training_folder("runs/first").name
    'first.training'
    """
    return Path(out).with_name(f"{Path(out).name}.training")


class Curves:
    """Figures of a training for TensorBoard, and for Weights & Biases where that is asked for and installed."""

    def __init__(
        self, folder: Path, *, wandb: str | None = None, config: Mapping[str, Any] | None = None
    ) -> None:
        """`folder`: where TensorBoard's files go; without TensorBoard nothing is written there. `wandb`: a project."""
        self._board: Any = None
        self._wandb: Any = None
        try:
            from kilowait.agents.curves import board

            self._board = board(folder)
        except ImportError:
            pass
        if wandb is not None:
            try:
                self._wandb = import_module("wandb").init(project=wandb, config=dict(config or {}))
            except ImportError:
                raise MissingExtraError("wandb", "learn") from None

    def __call__(self, update: Any) -> None:
        """Write down what one update did."""
        told = {
            "episode/return": update.mean_return,
            "episode/metric": update.metric,
            "policy/entropy": update.entropy,
            "policy/kl": update.kl,
            "validation/metric": update.validation,
            "speed/steps_per_s": update.steps_per_s,
            **{f"loss/{name}": value for name, value in update.losses.items()},
        }
        told = {name: value for name, value in told.items() if not math.isnan(value)}
        if self._board is not None:
            for name, value in told.items():
                self._board.add_scalar(name, value, update.steps)
        if self._wandb is not None:
            self._wandb.log(told, step=update.steps)

    def close(self) -> None:
        """Write out what is left."""
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def save_learned(
    out: str | PathLike[str],
    history: list[Any],
    *,
    scenario: Mapping[str, Any],
    results: Mapping[str, Any],
    manifest: Mapping[str, Any],
    force: bool = False,
) -> Path:
    """Write agent.pt, how the training went, and where it all comes from."""
    state = training_folder(out)
    told = {
        "training": [asdict(update) for update in history],
        "explained": read_json(state / "explained.json", state),
        **results,
    }

    def fill(folder: Path) -> None:
        shutil.copyfile(state / "agent.pt", folder / "agent.pt")
        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        (folder / "results.json").write_text(plain_json(told) + "\n", encoding="utf-8")

    return save_folder(out, fill, kind="agent", manifest=manifest, force=force)


def _with_sizes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as the algorithm takes them: sizes of the network, a mapping in files, are a `Sizes`."""
    if "sizes" not in settings:
        return dict(settings)
    sizes = import_module("kilowait.agents.networks.sizes").sizes_of(settings["sizes"])
    return {**settings, "sizes": sizes}


def _plain(how: Learning) -> dict[str, Any]:
    """The settings as numbers and words."""
    told = asdict(how)
    told |= {name: dict(getattr(how, name)) for name in ("limit", "settings")}
    told["reward"] = None if how.reward is None else dict(how.reward)
    return told
