"""Behavior cloning: before reinforcement learning a network imitates an expert's decisions in the expert's episodes.

Policies learn by cross-entropy on the masked distribution. Q networks learn with a large-margin loss, which lowers the
Q values of actions that the expert did not take (Hester et al., "Deep Q-learning from demonstrations", AAAI 2018), as
cross-entropy would drive them far beyond any return. Values are also fitted to the expert's returns, as otherwise the
first RL updates would be noise.

The expert runs new episodes all the time, and every update learns from the latest steps; so the reported agreement is
measured on decisions that were not learned from before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.networks.heads import ActorCritic, DuelingQ, MaskedCategorical, Network
from kilowait.agents.rl.device import TorchRng
from kilowait.agents.rl.env_protocol import ObservationArrays, VectorEnvProtocol
from kilowait.agents.rl.learner import LearnerOptions, Update, UpdateMetrics, check_settings, gradient_step
from kilowait.agents.rl.rollout_buffer import RolloutLearner
from kilowait.agents.rl.training_state import LAST_CHECKPOINT_FILE, run_training
from kilowait.files import write_text

FOLDER = "warm"
"""Subfolder of the training folder with the checkpoints of the warm start."""
HISTORY = "warm.json"
"""History of the finished warm start, in the training folder."""


@dataclass(frozen=True)
class BehaviorCloningSettings:
    """Hyperparameters of behavior cloning. An update collects `n_steps` expert steps of every environment."""

    expert: str
    """Name of the expert."""
    total_timesteps: int = 50_000
    """Decisions of the expert in all environments together; rounded down to complete updates, at least one."""
    n_steps: int = 32
    """Steps of each environment between updates."""
    n_epochs: int = 4
    """Passes over the steps of an update."""
    batch_size: int = 128
    """Decisions in the batch of a gradient step."""
    learning_rate: float = 2e-3
    """Initial learning rate of Adam; it decays linearly to nearly 0."""
    margin: float = 0.8
    """Large-margin loss: margin between the Q value of the expert's action and any other."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    gamma: float = 0.999
    """Discount factor a step; that of the following algorithm."""
    gae_lambda: float = 0.95
    """Lambda of the returns that values are fitted to."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the running standard deviation of the returns, as in the following algorithm."""
    max_grad_norm: float = 1.0
    """Maximum norm of the gradients."""
    checkpoint_every: int = 10
    """Updates between checkpoints."""
    anneal_lr: ClassVar[bool] = True
    precision: ClassVar[str] = "float32"
    patience: ClassVar[None] = None
    """No early stopping: a warm start is validated once, when it is finished."""

    def __post_init__(self) -> None:
        check_settings(self)

    def updates(self, envs: int) -> int:
        """Number of updates with `envs` environments.

        >>> BehaviorCloningSettings("saf", total_timesteps=1000, n_steps=10).updates(envs=25)
        4
        """
        return max(1, self.total_timesteps // (self.n_steps * envs))


class ExpertEnv(Protocol):
    """Environments with an expert that chooses their actions."""

    vec: VectorEnvProtocol

    def choose(self) -> npt.NDArray[np.int64]:
        """(B,) the expert's action for each environment."""

    def close(self) -> None:
        """Close the environments."""


@dataclass(frozen=True)
class BehaviorCloning:
    """Warm start of a network before the first update: the argument `warm` of `train_ppo` and the others."""

    settings: BehaviorCloningSettings
    make_expert_env: Callable[[], ExpertEnv]
    """Creates the expert's environments when they are needed: a training resumed after the warm start needs none."""
    folder: Path | None = None
    """Folder of the training; checkpoints are written to a subfolder."""
    resume: bool = False
    """Whether to resume an interrupted warm start from there."""
    progress: Callable[[Update], None] | None = None

    def __call__(self, network: Network, algorithm: str, seed: int) -> None:
        """Train the network by imitation."""
        subfolder = None if self.folder is None else self.folder / FOLDER
        resumed = self.resume and subfolder is not None and (subfolder / LAST_CHECKPOINT_FILE).exists()
        expert_env = self.make_expert_env()
        try:
            history = imitate(
                network, expert_env, self.settings, algorithm=algorithm, seed=seed,
                folder=subfolder, resume=subfolder if resumed else None, progress=self.progress,
            )  # fmt: skip
        finally:
            expert_env.close()
        if self.folder is not None:
            record = {"expert": self.settings.expert, "updates": [_plain(asdict(one)) for one in history]}
            write_text(self.folder / HISTORY, json.dumps(record, allow_nan=False) + "\n")


def imitate(
    network: Network,
    expert_env: ExpertEnv,
    settings: BehaviorCloningSettings,
    *,
    algorithm: str,
    seed: int,
    folder: Path | None = None,
    resume: Path | None = None,
    progress: Callable[[Update], None] | None = None,
) -> list[Update]:
    """Train a network by imitation, on the device where it is; returns the updates.

    Args:
        network: the network, trained in place.
        expert_env: environments with the expert.
        settings: see `BehaviorCloningSettings`.
        algorithm: the following algorithm; a checkpoint of a warm start for another one is refused.
        seed: of environments and minibatches.
        folder: where checkpoints are written; None: no checkpoints.
        resume: folder to resume from.
        progress: called with every update; `losses` contains `agreement`, the share of decisions equal to the expert's.
    """
    learner = Imitation(f"{algorithm}, warm start", network, expert_env, settings, seed)
    options: LearnerOptions = {"seed": seed, "checkpoint_dir": folder, "resume": resume, "progress": progress}
    return run_training(learner, options).history


class Imitation(RolloutLearner[BehaviorCloningSettings]):
    """The updates of behavior cloning: the latest steps of the expert, and several passes over them."""

    def __init__(
        self, name: str, network: Network, expert_env: ExpertEnv, settings: BehaviorCloningSettings, seed: int
    ) -> None:
        device = next(network.parameters()).device
        super().__init__(name, expert_env.vec, settings, network, TorchRng(seed, "agents.imitation", device))
        self.expert_env = expert_env
        # Not `self.adam`: on a GPU its fused steps are rounded differently.
        self.optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate, eps=1e-5)
        self.parts["optimizer"] = self.optimizer
        self.actor = lambda observations: _scores_and_value(network, observations)

    def update(self, observation: ObservationArrays, number: int) -> tuple[ObservationArrays, UpdateMetrics]:
        """Collect steps of the expert, and learn to choose its actions."""
        settings, rollout = self.settings, self.rollout
        observation, transitions = self.collect(observation, number, expert=self.expert_env.choose)
        returns = (self.advantages(transitions) + rollout.values).flatten()
        observations, actions_taken = rollout.flat(), rollout.actions.flatten()
        metrics = []
        for epoch in range(settings.n_epochs):
            order = torch.randperm(self.steps, generator=self.rng.generator, device=self.device)
            for part in torch.split(order, settings.batch_size):
                batch = {name: array[part] for name, array in observations.items()}
                measured = self._gradient_step(batch, actions_taken[part], returns[part])
                if epoch == 0:
                    metrics.append(measured)
        choice, value, agreement = torch.stack(metrics).mean(0).tolist()
        losses = {"imitation": choice, "value": value, "agreement": agreement}
        return observation, UpdateMetrics(losses, self.episodes.means())

    def _gradient_step(self, observation: dict[str, Tensor], expert_actions: Tensor, returns: Tensor) -> Tensor:
        """One gradient step; returns the losses of choice and value, and the agreement before it."""
        settings, network = self.settings, self.network
        scores, values = _scores_and_value(network, observation)
        choice_loss = _choice_loss(network, scores, expert_actions, settings.margin).mean()
        if isinstance(network, DuelingQ):  # the value of the expert's action, not of the greedy one
            values = scores.gather(-1, expert_actions[:, None]).squeeze(-1)
        value_loss = 0.5 * (values - returns).square().mean()
        gradient_step(self.optimizer, choice_loss + settings.vf_coef * value_loss, network, settings.max_grad_norm)
        agreement = (scores.argmax(-1) == expert_actions).float().mean()
        return torch.stack([choice_loss, value_loss, agreement]).detach()


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """The record with None instead of NaN, which JSON does not have."""
    return {name: None if isinstance(value, float) and isnan(value) else value for name, value in record.items()}


def _scores_and_value(network: Network, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Scores of actions, -inf where the mask forbids, and the value of the state."""
    if isinstance(network, ActorCritic):
        return network(observation)
    values = network(observation)
    return values, values.amax(-1)


def _choice_loss(network: Network, scores: Tensor, actions: Tensor, margin: float) -> Tensor:
    """(B,) imitation loss of these actions: negative log-probability, or the large-margin loss of a Q network."""
    if isinstance(network, ActorCritic):
        return -MaskedCategorical(scores).log_prob(actions)
    taken = scores.gather(-1, actions[:, None])
    others = (scores + margin).scatter(-1, actions[:, None], taken)
    return others.amax(-1) - taken.squeeze(-1)
