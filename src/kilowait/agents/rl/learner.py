"""What the RL algorithms share: the options of a training, the interface of a learner, and the records of updates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Protocol, Required, TypedDict, TypeVar

import torch
from torch import Tensor, nn

from kilowait.agents.networks.heads import Network
from kilowait.agents.networks.spec import NetworkSizes
from kilowait.agents.rl.device import PRECISIONS, TorchRng, lower_precision
from kilowait.agents.rl.env_protocol import EpisodeStatistics, ObservationArrays, ReturnScale, VectorEnvProtocol
from kilowait.errors import InputError, UnknownNameError


@dataclass(frozen=True)
class Update:
    """Statistics of one update."""

    number: int
    of: int
    steps: int
    """Environment steps of all environments together, since the start."""
    mean_return: float
    """Mean return of the episodes that ended in this update; NaN where none ended."""
    metric: float
    """Mean objective of these episodes; NaN where none ended or the environment has none."""
    losses: dict[str, float]
    """By name, means over the update's minibatches; includes other statistics of the algorithm."""
    entropy: float
    """Entropy of the policy, nats; NaN where there is no policy."""
    kl: float
    """KL divergence from the policy of the rollout, nats; NaN where it is not estimated."""
    validation: float
    """Validation metric, smaller is better; NaN in updates without validation."""
    best: float
    """Smallest validation metric so far; NaN before the first."""
    steps_per_s: float
    """Environment steps of all environments together, learning time included, in this update."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of training: the best validated network, or the last one without validation."""

    network: Network
    settings: Any
    history: list[Update] = field(repr=False)


class Stateful(Protocol):
    """A part of the training that has a state: a network, an optimizer, a generator, a buffer …"""

    def state_dict(self) -> Mapping[str, Any]:
        """The state."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Restore a state."""


class WarmStart(Protocol):
    """Changes a new network before its first update; `agents.rl.behavior_cloning.BehaviorCloning` is one."""

    @property
    def settings(self) -> Any:
        """A dataclass: a training is resumed only with equal settings."""

    def __call__(self, network: Any, algorithm: str, seed: int) -> None:
        """Change the weights."""


@dataclass(frozen=True)
class TrainingSettings:
    """Settings that every algorithm has besides its hyperparameters.

    An algorithm's settings are ``class PPOSettings(TrainingSettings, PPOHyperparameters)``: a dataclass has the fields
    of its last base first, so the hyperparameters come before these.
    """

    network: str = "kernel"
    """A name of `kilowait.agents.networks.FEATURE_EXTRACTORS`; SAC's critics have it too."""
    sizes: NetworkSizes = field(default_factory=NetworkSizes)
    """Sizes of the network."""
    precision: str = "float32"
    """Or "bf16": layers compute in 16 bits; weights and losses stay in 32."""
    validate_every: int = 100
    """Updates between validations."""
    patience: int | None = None
    """Validations without a new best after which training stops; None: never stop early."""
    checkpoint_every: int = 100
    """Updates between checkpoints."""

    def __post_init__(self) -> None:
        check_settings(self)


class LearnerOptions(TypedDict, total=False):
    """Options of a training, the same for every algorithm."""

    seed: Required[int]
    """Of initial weights, environments and sampled actions."""
    device: str
    """"cpu" (the default) or "cuda"; rollouts stay there."""
    threads: int | None
    """CPU threads of torch; None, the default, keeps torch's setting. 1 is best beside other work."""
    progress: Callable[[Update], None] | None
    """Called with every `Update`."""
    resume: str | PathLike[str] | None
    """Checkpoint, or its folder, to resume from."""
    checkpoint_dir: str | PathLike[str] | None
    """Folder of the checkpoints and of the agent."""
    validate: Callable[[Any], float] | None
    """Evaluates a network, smaller is better; the best network is returned."""
    warm: WarmStart | None
    """Called with the new network first, for example behavior cloning."""


@dataclass(frozen=True)
class UpdateMetrics:
    """What an algorithm reports about an update."""

    losses: dict[str, float]
    episodes: dict[str, float]
    """Means over the episodes that ended, see `EpisodeStatistics`."""
    entropy: float = math.nan
    kl: float = math.nan


S = TypeVar("S", bound=Any)
"""The dataclass of an algorithm's settings."""


class Learner(ABC, Generic[S]):
    """One algorithm with its networks and everything else that has a state.

    Args:
        name: of the algorithm.
        vec: the environments.
        settings: the algorithm's dataclass; has total_timesteps, validate_every, patience and checkpoint_every.
        network: the network that is trained and validated.
        rng: random numbers of the training.
        cost: name in `infos` of a cost that is summed over each episode.
    """

    def __init__(
        self,
        name: str,
        vec: VectorEnvProtocol,
        settings: S,
        network: Network,
        rng: TorchRng,
        *,
        cost: str | None = None,
    ) -> None:
        self.name, self.vec, self.settings, self.network, self.rng = name, vec, settings, network, rng
        self.actor: Any = network
        """Gives logits and value of observations, for rollouts."""
        self.device = next(network.parameters()).device
        self.steps = steps_per_update(settings) * vec.num_envs
        """Steps of all environments between two updates."""
        self.updates = max(1, settings.total_timesteps // self.steps)
        self.scale = ReturnScale(vec.num_envs, settings.gamma)
        self.episodes = EpisodeStatistics(vec.num_envs, cost)
        self.parts: dict[str, Stateful] = {"rng": rng, "scale": self.scale, "episodes": self.episodes}
        """Everything besides the network that has a state, by name."""

    def begin(self) -> None:
        """Called before the first update of a new training, after a warm start has changed the network."""

    @abstractmethod
    def update(self, observation: ObservationArrays, number: int) -> tuple[ObservationArrays, UpdateMetrics]:
        """Collect steps and train on them, after `number` updates; returns the next observation."""

    @property
    def divisor(self) -> float:
        """What rewards are divided by."""
        return self.scale.divisor if self.settings.normalize_rewards else 1.0

    def lower_precision(self) -> torch.autocast:
        """Context of forward passes in the precision of the settings."""
        return lower_precision(self.device, self.settings.precision)

    def adam(self, parameters: Iterable[Tensor], **options: Any) -> torch.optim.Adam:
        """The optimizer of the algorithms."""
        return torch.optim.Adam(parameters, self.settings.learning_rate, fused=self.device.type == "cuda", **options)


def gradient_step(optimizer: torch.optim.Optimizer, loss: Tensor, module: nn.Module, max_norm: float) -> None:
    """One step of the optimizer down the gradient of a loss, whose norm is limited."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(module.parameters(), max_norm)
    optimizer.step()


AT_LEAST_ONE = frozenset(
    "total_timesteps n_steps n_step_return train_freq n_epochs n_minibatches batch_size buffer_size gradient_steps "
    "target_update_interval n_atoms patience validate_every checkpoint_every".split()
)
ABOVE_ZERO = frozenset("learning_rate clip_range max_grad_norm target_kl initial_ent_coef".split())
SHARES = frozenset(
    "gamma gae_lambda per_alpha per_beta exploration_fraction exploration_final_eps tau target_entropy".split()
)
AT_LEAST_ZERO = frozenset("ent_coef vf_coef cost_limit cost_rate learning_starts".split())


def check_settings(settings: Any) -> None:
    """Check the fields of an algorithm's settings by their names; None is not checked.

    A name has the same meaning in every algorithm, so the bounds are written once.
    """
    for item in fields(settings):
        name, value = item.name, getattr(settings, item.name)
        if value is None:
            continue
        if name in AT_LEAST_ONE and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
        if name in ABOVE_ZERO and not value > 0:
            raise InputError(f"{name} is {value}; it must be above 0")
        if name in SHARES and not 0 <= value <= 1:
            raise InputError(f"{name} is {value}; it must be from 0 to 1")
        if name in AT_LEAST_ZERO and not value >= 0:
            raise InputError(f"{name} is {value}; it must be 0 or more")
        if name == "precision" and value not in PRECISIONS:
            raise UnknownNameError("precision", value, PRECISIONS)


def steps_per_update(settings: Any) -> int:
    """Steps of each environment between two updates: `train_freq` off-policy (D3QN, SAC), else `n_steps`."""
    return int(settings.train_freq if hasattr(settings, "train_freq") else settings.n_steps)


def tensorboard_writer(folder: Path) -> Any:
    """A TensorBoard writer for the folder; ImportError where TensorBoard is not installed."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter
    return writer(str(folder))
