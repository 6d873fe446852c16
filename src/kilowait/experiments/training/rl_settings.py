"""Settings of the training of networks; hyperparameters in a TOML file, by ``kilowait tune`` or by the user.

::

    algo = "ppo"
    network = "kernel"

    [hyperparameters]
    learning_rate = 0.0007

    [hyperparameters.sizes]
    width = 128

``algo`` and ``network`` are optional. An unknown name, or a value of the wrong type, is an error.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from kilowait import agents
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.files.documents import to_toml

ALGORITHMS = {
    "ppo": "proximal policy optimisation",
    "a2c": "advantage actor-critic",
    "d3qn": "dueling double deep Q-network, prioritized replay",
    "sac": "discrete soft actor-critic",
}
"""RL algorithms by name, with their full names."""


@dataclass(frozen=True)
class RLTraining:
    """Settings of the training of a network."""

    algo: str = "ppo"
    network: str = "kernel"
    """kernel, attention or gat."""
    seed: int = 0
    total_timesteps: int = 1_000_000
    """Environment steps (decisions) of all environments together."""
    num_envs: int = 32
    """Number of parallel environments."""
    episode_jobs: int = 256
    """Jobs in an episode."""
    queue_window: int = 64
    """Queue window: maximum number of waiting jobs in an observation."""
    backfill: str | int = Settings.backfill
    backfill_order: str = "agent"
    """Policy that orders the backfill candidates, or "agent": the network orders these too."""
    prediction_features: bool = False
    """Whether observations contain prediction features besides the estimate; the jobs must have them. Not supported on
    GPU clusters."""
    request_features: bool = False
    """Whether observations contain memory, priority, queue and account of jobs, where the log has them. Not on
    GPU clusters, which have features of their own."""
    reward: Mapping[str, float] | None = None
    """Weights of the reward terms; None: slowdown, on GPU clusters mean completion time."""
    objectives: tuple[str, ...] = ()
    """Instead of a reward: terms whose weights are sampled for every episode and are part of the observation, so that
    the network learns all trade-offs between them. Their units are the means of SAF on windows of the training jobs."""
    sla_s: float = 4 * 3600.0
    """Wait above which a job violates the SLA (reward term sla), seconds."""
    constraint: Mapping[str, float] = field(default_factory=dict)
    """PPO only: one reward term with its upper limit, such as {"sla": 0.05}: at most 5 % of the jobs may wait longer
    than sla_s. The reward is optimized subject to it, with a Lagrange multiplier on the term."""
    max_wait_s: float | None = None
    """Maximum wait: jobs that have waited longer have priority; None: no maximum."""
    load_curriculum: float = 1.0
    """Load curriculum: initial arrival rate as a multiple of the log's; it changes linearly to the log's rate by the
    middle of the training. Below 1 the machine is less busy at first."""
    windows: int = 16
    """Number of windows of validation jobs, on which the best weights are selected."""
    window_jobs: int = 1024
    """Jobs in a validation window."""
    time_limit_s: float = math.inf
    """Time limit after which training stops; the network that validated best so far becomes the agent."""
    device: str = "cpu"
    precision: str = "float32"
    threads: int = 1
    """CPU threads of torch; beside other processes two threads can be a hundred times slower than one."""
    env_threads: int | None = None
    """CPU threads of the environments; None: one per core. With several trainings on a machine 1 is best. The results
    do not depend on it."""
    expert: str | None = None
    """Expert of the behavior cloning before RL: a policy's name or a look-ahead; None: no warm start."""
    expert_steps: int = 50_000
    """Number of expert decisions for the behavior cloning."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Further hyperparameters of the algorithm, such as learning_rate; sizes of the network are a nested mapping."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise UnknownNameError("algorithm", self.algo, (*ALGORITHMS, "cma-es"))
        if self.constraint and (self.algo != "ppo" or len(self.constraint) > 1):
            raise InputError(
                f"constraint {dict(self.constraint)} for {self.algo}; only ppo supports a constraint, and only one"
            )
        if self.objectives and self.reward is not None:
            raise InputError(
                f"objectives {', '.join(self.objectives)} and a reward; the weights are sampled: leave the reward out"
            )
        if not (math.isfinite(self.load_curriculum) and self.load_curriculum > 0):
            raise InputError(
                f"the load curriculum begins at {self.load_curriculum} times the arrival rate; give a number above 0"
            )

    def algorithm_settings(self) -> Any:
        """The hyperparameters of the algorithm, as its dataclass."""
        settings_class = getattr(agents, f"{self.algo.upper()}Settings")
        names = [item.name for item in fields(settings_class)]
        for name in self.hyperparameters:
            if name not in names:
                raise UnknownNameError(f"hyperparameter of {self.algo}", name, names)
        return settings_class(
            **{
                "total_timesteps": self.total_timesteps,
                "network": self.network,
                "precision": self.precision,
                **(
                    {"exploration_fraction": 0.0} if self.expert and self.algo == "d3qn" else {}
                ),  # a pretrained network needs no random actions
                **dict(zip(("cost", "cost_limit"), next(iter(self.constraint.items()), ()), strict=False)),
                **_with_sizes(self.hyperparameters),
            }
        )


def _with_sizes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters as arguments of the algorithm's settings, with the sizes of the network as `Sizes`."""
    if "sizes" not in settings:
        return dict(settings)
    sizes = import_module("kilowait.agents.networks.spec").network_sizes(settings["sizes"])
    return {**settings, "sizes": sizes}


def training_updates(training: RLTraining) -> int:
    """Number of updates of the training, without those of the warm start."""
    steps_per_update = agents.steps_per_update(training.algorithm_settings())
    return max(1, training.total_timesteps // (steps_per_update * training.num_envs))


def warm_start_updates(training: RLTraining) -> int:
    """Number of updates of the warm start, 0 without an expert."""
    if training.expert is None:
        return 0
    from kilowait.agents.rl.behavior_cloning import BehaviorCloningSettings

    return BehaviorCloningSettings(training.expert, training.expert_steps).updates(training.num_envs)


def plain_settings(training: RLTraining) -> dict[str, Any]:
    """The settings as plain data."""
    return {item.name: _plain_value(getattr(training, item.name)) for item in fields(training)}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


OPTION_OF_FIELD = {
    "total_timesteps": "--total-timesteps",
    "network": "--network, or network = ... above [hyperparameters]",
}
"""Fields of an algorithm's settings that are not hyperparameters, and the option that sets each."""


TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a string in quotes"}


@dataclass(frozen=True)
class HyperparameterFile:
    """Content of a hyperparameter file."""

    algo: str
    network: str
    hyperparameters: Mapping[str, Any]


def hyperparameters_toml(file: HyperparameterFile) -> str:
    """Text of a hyperparameter file.

    >>> print(hyperparameters_toml(HyperparameterFile("ppo", "gat", {"sizes": {"width": 32}})))
    algo = "ppo"
    network = "gat"
    <BLANKLINE>
    [hyperparameters.sizes]
    width = 32
    <BLANKLINE>
    """
    return to_toml({"algo": file.algo, "network": file.network, "hyperparameters": file.hyperparameters})


def read_hyperparameters(
    path: str | PathLike[str], *, algo: str | None = None, network: str | None = None
) -> HyperparameterFile:
    """The hyperparameters in a file, checked.

    Args:
        path: the file.
        algo: the requested algorithm; a file for another one is an error. None: the file's algorithm, or ppo.
        network: the requested network; a file for another one is an error. None: the file's network, or kernel.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"cannot read the hyperparameters in {path}: {problem.strerror or problem}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"{path} is not TOML: {problem}; kilowait tune writes such a file") from None
    for name in data:
        if name not in ("algo", "network", "hyperparameters"):
            raise UnknownNameError(f"entry of {path}", name, ("algo", "network", "hyperparameters"))
    for name, option, requested in (("algo", "--algo", algo), ("network", "--network", network)):
        if name in data and requested is not None and data[name] != requested:
            raise InputError(
                f"{path} is for {option} {data[name]}, and {option} {requested} is requested; leave one of them out"
            )
    settings = data.get("hyperparameters", {})
    if not isinstance(settings, dict):
        raise InputError(f"{path}: hyperparameters is {settings!r}; write a table, [hyperparameters]")
    chosen_algo, chosen_network = (data.get("algo", algo or "ppo"), data.get("network", network or "kernel"))
    if chosen_algo not in ALGORITHMS:
        raise UnknownNameError("algorithm with a network", str(chosen_algo), ALGORITHMS)
    if chosen_network not in agents.FEATURE_EXTRACTORS:
        raise UnknownNameError("network", str(chosen_network), agents.FEATURE_EXTRACTORS)
    file = HyperparameterFile(chosen_algo, chosen_network, settings)
    try:
        _check(file)
    except InputError as problem:
        raise InputError(f"{path}: {problem}") from None
    return file


def _check(file: HyperparameterFile) -> None:
    """Raise an error unless the algorithm accepts these hyperparameters."""
    kind = getattr(agents, f"{file.algo.upper()}Settings")
    hints = get_type_hints(kind)
    for name, value in file.hyperparameters.items():
        if name in OPTION_OF_FIELD:
            raise InputError(f"{name} is not a hyperparameter; set it with {OPTION_OF_FIELD[name]}")
        if name not in hints:
            raise UnknownNameError(f"hyperparameter of {file.algo}", name, hints)
        if name == "sizes":
            if not isinstance(value, dict):
                raise InputError(f"sizes is {value!r}; write a table, [hyperparameters.sizes]")
            for size, count in value.items():
                _check_type(size, count, int)
        else:
            _check_type(name, value, hints[name])
    RLTraining(algo=file.algo, network=file.network, hyperparameters=file.hyperparameters).algorithm_settings()


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Raise an error unless the value has the field's type; a float may be an integer, and TOML has no None."""
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if not isinstance(value, list) or len(value) != len(inner):
            raise InputError(f"{name} is {value!r}; it must be a list of {len(inner)} numbers")
        for item, item_type in zip(value, inner, strict=True):
            _check_type(name, item, item_type)
        return
    if isinstance(kind, UnionType):
        kind = next(item for item in get_args(kind) if item is not type(None))
    fits = (
        isinstance(value, bool)
        if kind is bool
        else not isinstance(value, bool) and isinstance(value, (int, float) if kind is float else kind)
    )
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{name} is {value!r}; it must be {TYPE_NAMES[kind]}")
