"""Training a network on the earlier part of a log, in a folder that survives a crash."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait import agents
from kilowait.agents.training_data import SyntheticMix, laid_out
from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import plain_json, save_folder
from kilowait.evaluation.storage.folder import read_json
from kilowait.evaluation.storage.toml import to_toml
from kilowait.experiments.early_stopping import BestModel
from kilowait.experiments.env_factory import (
    EnvFactory,
    LoadCurriculum,
    SyntheticCurriculum,
    world_for,
)
from kilowait.experiments.resume import (
    check_memory,
    mark_begun,
    training_folder,
    world_of,
)
from kilowait.experiments.synthetic_training import check_mixed
from kilowait.experiments.train_power import PowerTraining
from kilowait.jobs import JobTable

__all__ = [
    "ALGORITHMS",
    "RLTraining",
    "learn",
    "save_learned",
    "warm_updates",
]

ALGORITHMS = {
    "ppo": "proximal policy optimisation",
    "a2c": "advantage actor-critic",
    "d3qn": "dueling double deep Q-network, prioritized replay",
    "sac": "discrete soft actor-critic",
}
"""Algorithms that train networks, with what they are."""


WARM = "warm.json"
"""How a warm start went, in the folder of the training."""


@dataclass(frozen=True)
class RLTraining:
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
    prediction_features: bool = False
    """Whether the network is shown what predictions know besides the estimate; jobs must bring them. Not on placed
    nodes."""
    reward: Mapping[str, float] | None = None
    """Weights of the terms of the reward; None: slowdown, on placed nodes mean completion time."""
    preferences: tuple[str, ...] = ()
    """Instead of a reward: terms whose weights are drawn for every episode and told to the network, so that it learns
    every trade-off between them. Their units are what SAF reaches on windows of the training jobs."""
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
    seconds: float = math.inf
    """After which training stops, where it stands; what validated best so far is the agent."""
    device: str = "cpu"
    precision: str = "float32"
    threads: int = 1
    """Of torch on the CPU; two beside a busy neighbour can be a hundred times as slow as one."""
    env_threads: int | None = None
    """Of the environments; None: one a core. 1 is best beside other trainings. It changes no result."""
    teacher: str | None = None
    """Who is imitated before anything else is learned: a rule's name or look-ahead; None: nobody."""
    teacher_steps: int = 50_000
    """Choices of the teacher to learn from."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the algorithm's own settings, such as learning_rate; sizes of the network as a mapping."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise UnknownNameError("algorithm", self.algo, (*ALGORITHMS, "cma-es"))
        if self.limit and (self.algo != "ppo" or len(self.limit) > 1):
            raise InputError(
                f"limits {dict(self.limit)} for {self.algo}; it is ppo that keeps a limit, and one"
            )
        if self.preferences and self.reward is not None:
            raise InputError(
                f"preferences {', '.join(self.preferences)} beside a reward; weights are drawn: leave the reward out"
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
                "total_timesteps": self.steps,
                "network": self.net,
                "precision": self.precision,
                **(
                    {"exploration_fraction": 0.0} if self.teacher and self.algo == "d3qn" else {}
                ),  # it knows something
                **dict(zip(("cost", "cost_limit"), next(iter(self.limit.items()), ()), strict=False)),
                **_with_sizes(self.settings),
            }
        )


def learn(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    how: RLTraining,
    *,
    folder: str | PathLike[str],
    resume: bool = False,
    progress: Callable[[Any], None] | None = None,
    power: PowerTraining | None = None,
    mixture: SyntheticMix | None = None,
) -> tuple[Any, list[Any]]:
    """A `NetworkAgent` trained on `jobs` and chosen on `validation`, later jobs of the same log; and its history.

    The folder holds ``last.safetensors``, from which `resume` goes on exactly, ``agent.pt``, and ``explained.json``:
    what the network looks at when it plays the validation jobs. With `power` it learns on kilowait/Energy-v0. A
    `mixture` has generated jobs to learn from besides; with a share of 1 `jobs` are not looked at.
    """
    from kilowait.agents.networks.preference import preferred
    from kilowait.agents.pareto import weighed
    from kilowait.agents.rl.agent_file import save_network
    from kilowait.agents.rl.device import use_device
    from kilowait.agents.rl.integrated_gradients import explained
    from kilowait.agents.rl.training_state import LAST
    from kilowait.agents.rl.validation import figures
    from kilowait.experiments.experts import warm_start

    window_jobs = min(how.window_jobs, len(validation))
    parts = {"training": jobs, "validation": validation}
    laid = None
    if mixture is not None:
        check_mixed(cluster, powered=power is not None)
        laid = laid_out(jobs, mixture)
        parts |= mixture.tables
        jobs = laid.jobs
    for name, part in parts.items():
        if name != "validation" and len(part) < how.episode_jobs:
            raise InputError(
                f"there are {len(part):,} {name} jobs, and an episode has {how.episode_jobs:,}; take shorter episodes "
                "(--episode-jobs) or a longer log"
            )
    world = world_for(cluster, how, power)
    settings = how.algorithm_settings()
    with use_device(how.device, None):
        pass  # a device that is not there is told before anything is begun
    few = world_for(cluster, replace(how, slots=1), power).envs(jobs, 1, min(len(jobs), 2), False)
    kept = getattr(settings, "buffer_size", agents.steps_per_update(settings) * how.envs)
    shown = few.spec_of_observation
    shown = replace(shown, slots=shown.slots - 1 + how.slots)
    check_memory(shown, envs=how.envs + how.windows, kept=kept, settings=settings)
    few.close()
    checks = world.envs(validation, how.windows, window_jobs, False)
    first = np.linspace(0, len(validation) - window_jobs, how.windows).astype(np.int64)
    units = _units(world, jobs if laid is None else jobs[: laid.parts[0][1]], how)

    def played(*, copied: bool) -> Any:
        """Environments to learn in; a teacher is watched in the same."""
        vec = world.envs(jobs, how.envs, how.episode_jobs, copied)
        if units:
            vec.draw_preferences(units)
        if laid is not None and mixture is not None:
            vec.set_episode_ranges(laid.parts, laid.weights(mixture.share))
        return vec

    keeping = how.algo in ("d3qn", "sac")  # they keep what they saw; the others carry it away at once
    vec = played(copied=keeping)
    if laid is not None and mixture is not None and mixture.curriculum == "synthetic-first":
        vec = SyntheticCurriculum(vec, laid, mixture, how.steps)
    if how.ease != 1.0:
        vec = LoadCurriculum(vec, how.ease, how.steps)
    train = getattr(agents, f"train_{how.algo}")
    begun = resume and (Path(folder) / LAST).exists()
    warm = None
    if how.teacher is not None:
        warm = warm_start(
            how.teacher, how.teacher_steps, lambda: played(copied=False), cluster, settings, folder=folder,
            resume=resume, progress=progress,
        )  # fmt: skip
    seen = world_of(world.name, world.asked, parts, cluster, how)
    drawn = {} if power is None else power.world
    mixed = {} if mixture is None else mixture.words
    mark_begun(Path(folder), {**seen, **world.more, **drawn, **mixed}, resume=resume)

    def judge(network: Any) -> float:
        """What the network is worth on the validation jobs, less is better."""
        if units:
            return weighed(network, checks, first, units)
        return float(figures(network, checks, first).mean())

    best = BestModel(judge, how.seconds, progress)
    trained = best.of(
        train,
        vec,
        settings,
        seed=how.seed,
        device=how.device,
        threads=how.threads,
        checkpoint_dir=folder,
        resume=folder if begun else None,
        validate=best.validate,
        progress=best.progress,
        warm=warm,
    )
    provenance = {"env": world.name, "asking": world.asked, "learning": _plain(how), "cluster": cluster.name}
    provenance |= {**world.more, **({"units": units} if units else {}), **mixed}
    save_network(trained.network, Path(folder) / "agent.pt", provenance=provenance)
    trained.network.provenance = provenance
    told_evenly = preferred(trained.network, dict.fromkeys(units, 1.0)) if units else trained.network
    looked = explained(told_evenly, checks, first, cluster)
    told = {} if looked is None else looked.to_dict()
    (Path(folder) / "explained.json").write_text(plain_json(told) + "\n", encoding="utf-8")
    return world.agent(trained.network), trained.history


def _units(world: EnvFactory, jobs: JobTable, how: RLTraining) -> dict[str, float]:
    """The units of the terms between which preferences are drawn, measured on windows of the training jobs."""
    from kilowait.agents.pareto import units_of

    if not how.preferences:
        return {}
    window_jobs = min(how.window_jobs, len(jobs))
    first = np.linspace(0, len(jobs) - window_jobs, how.windows).astype(np.int64)
    return units_of(world.envs(jobs, how.windows, window_jobs, False), first, how.preferences)


def warm_updates(how: RLTraining) -> int:
    """Updates of the warm start, 0 without a teacher."""
    if how.teacher is None:
        return 0
    from kilowait.agents.rl.behavior_cloning import ImitationSettings

    return ImitationSettings(how.teacher, how.teacher_steps).updates(how.envs)


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
        **({"warm_start": read_json(state / WARM, state)} if (state / WARM).exists() else {}),
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
    sizes = import_module("kilowait.agents.networks.spec").sizes_of(settings["sizes"])
    return {**settings, "sizes": sizes}


def _plain(how: RLTraining) -> dict[str, Any]:
    """The settings as numbers and words."""
    told = asdict(how)
    told |= {name: dict(getattr(how, name)) for name in ("limit", "settings")}
    told["preferences"] = list(how.preferences)
    told["reward"] = None if how.reward is None else dict(how.reward)
    return told
