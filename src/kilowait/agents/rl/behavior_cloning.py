"""A warm start: before it learns by itself, a network imitates a teacher's choices where the teacher plays.

Policies learn by cross-entropy on the masked distribution. Values of actions learn by a large margin, that whatever
the teacher did not choose be worth less (Hester et al., "Deep Q-learning from demonstrations", AAAI 2018), as
cross-entropy would drive them far beyond any return. Beside it the values are fitted to the returns the teacher
reached, or the first updates of what follows would be noise.

The teacher plays new episodes all the time, and every update learns from what it has just seen; so the agreement that
is told is that with choices that were not learned from before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.rl.device import DeviceTransfer, TorchRng
from kilowait.agents.rl.distributions import MaskedCategorical
from kilowait.agents.rl.env_protocol import VectorEnvProtocol
from kilowait.agents.rl.episode_stats import Episodes, ReturnScale
from kilowait.agents.rl.gae import generalised_advantages
from kilowait.agents.rl.hyperparameter_checks import check_settings
from kilowait.agents.rl.results import Update
from kilowait.agents.rl.rollout_buffer import RolloutBuffer
from kilowait.agents.rl.training_state import LAST, Progress, TrainingState

__all__ = ["FOLDER", "HISTORY", "ImitationSettings", "ExpertEnv", "BehaviorCloning", "imitate"]

FOLDER = "warm"
"""Where a warm start keeps its state, within the folder of the training."""
HISTORY = "warm.json"
"""How it went, beside that folder, once it is done."""


@dataclass(frozen=True)
class ImitationSettings:
    """How a network imitates. An update watches `rollout` steps of every environment and learns from them."""

    expert: str
    """Who is imitated, in words."""
    total_timesteps: int = 50_000
    """Choices of the teacher, in all environments together; whole updates, at least one."""
    n_steps: int = 32
    """Steps of each environment between updates."""
    n_epochs: int = 4
    """Passes over what was seen in an update."""
    batch_size: int = 128
    """Choices in a step of the optimizer."""
    learning_rate: float = 2e-3
    """Of Adam, at the beginning; it falls in a straight line to nearly 0."""
    margin: float = 0.8
    """Values of actions: by how much the teacher's is to be worth more than any other."""
    vf_coef: float = 0.5
    """Weight of the value's squared error."""
    gamma: float = 0.999
    """Of the future, a step; that of the algorithm that follows."""
    gae_lambda: float = 0.95
    """Lambda of the returns that values are fitted to."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the deviation of returns so far, as in the algorithm that follows."""
    max_grad_norm: float = 1.0
    """Norm that gradients are cut to."""
    checkpoint_every: int = 10
    """Updates between checkpoints."""
    patience: ClassVar[None] = None
    """Nobody loses it: a warm start is judged once, when it is done."""

    def __post_init__(self) -> None:
        check_settings(self)

    def updates(self, envs: int) -> int:
        """How many there are with so many environments.

        >>> ImitationSettings("saf", total_timesteps=1000, n_steps=10).updates(envs=25)
        4
        """
        return max(1, self.total_timesteps // (self.n_steps * envs))


class ExpertEnv(Protocol):
    """Environments and somebody who knows what to choose where they stand."""

    vec: VectorEnvProtocol

    def choose(self) -> npt.NDArray[np.int64]:
        """(B,) an action of each environment."""

    def close(self) -> None:
        """Let go of them."""


@dataclass(frozen=True)
class BehaviorCloning:
    """What an algorithm does with its network before the first update: `warm` of `train_ppo` and the others."""

    settings: ImitationSettings
    lessons: Callable[[], ExpertEnv]
    """Makes them when they are needed: a training that goes on after the warm start needs none."""
    folder: Path | None = None
    """Of the training; its state is kept in a folder within."""
    resume: bool = False
    """Whether to go on with a warm start that was interrupted there."""
    progress: Progress | None = None

    def __call__(self, network: ActorCritic | DuelingQ, algorithm: str, seed: int) -> None:
        """Let the network imitate."""
        within = None if self.folder is None else self.folder / FOLDER
        kept = self.resume and within is not None and (within / LAST).exists()
        lessons = self.lessons()
        try:
            history = imitate(
                network, lessons, self.settings, algorithm=algorithm, seed=seed,
                folder=within, resume=within if kept else None, progress=self.progress,
            )  # fmt: skip
        finally:
            lessons.close()
        if self.folder is not None:
            told = {"teacher": self.settings.expert, "updates": [_plain(asdict(one)) for one in history]}
            (self.folder / HISTORY).write_text(json.dumps(told, allow_nan=False) + "\n", encoding="utf-8")


def imitate(
    network: ActorCritic | DuelingQ,
    lessons: ExpertEnv,
    settings: ImitationSettings,
    *,
    algorithm: str,
    seed: int,
    folder: Path | None = None,
    resume: Path | None = None,
    progress: Progress | None = None,
) -> list[Update]:
    """Teach a network, on the device where it is; how that went.

    Args:
        network: what learns, in place.
        lessons: environments and the teacher.
        settings: see `ImitationSettings`.
        algorithm: what is to follow; a checkpoint of a warm start for another one is refused.
        seed: of environments and minibatches.
        folder: where checkpoints are kept; None keeps none.
        resume: folder to go on from.
        progress: hears of every update; its losses have `agreement`, the share of choices that were the teacher's.
    """
    vec, where = lessons.vec, next(network.parameters()).device
    size, updates = settings.n_steps * vec.num_envs, settings.updates(vec.num_envs)
    optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate, eps=1e-5)
    draws = TorchRng(seed, "agents.imitation", where)
    scale = ReturnScale(vec.num_envs, settings.gamma)
    episodes = Episodes(vec.num_envs)
    rollout = RolloutBuffer(settings.n_steps, vec.num_envs, DeviceTransfer(where))
    judge = cast(ActorCritic, lambda seen: _judged(network, seen))
    keeper = TrainingState(
        f"{algorithm}, warm start", vec, settings, seed=seed, updates=updates, network=network,
        parts={"optimizer": optimizer, "draws": draws, "scale": scale, "episodes": episodes},
        folder=folder, validate=None, progress=progress,
    )  # fmt: skip
    observation = keeper.begin(resume)
    while not keeper.done:
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - keeper.number / updates)
        with torch.no_grad():
            for step in range(settings.n_steps):
                rollout.add_observation(step, observation, judge, draws.generator)
                actions = lessons.choose()
                rollout.actions[step] = torch.from_numpy(actions)
                observation, rewards, terminated, truncated, infos = vec.step(actions)
                done = terminated | truncated
                episodes.step(infos, done)
                scale.step(rewards, done)
                rollout.add_transition(step, rewards, terminated, truncated, infos, judge)
            played = rollout.close(observation, judge, scale.divisor if settings.normalize_rewards else 1.0)
        returns = generalised_advantages(
            played["rewards"], rollout.values, rollout.next_values, played["terminated"], played["truncated"],
            gamma=settings.gamma, gae_lambda=settings.gae_lambda,
        )  # fmt: skip
        returns = (returns + rollout.values).flatten()
        seen, taken = rollout.flat(), rollout.actions.flatten()

        figures = []
        for epoch in range(settings.n_epochs):
            order = torch.randperm(size, generator=draws.generator, device=where)
            for part in torch.split(order, settings.batch_size):
                scores, values = _judged(network, {name: kept[part] for name, kept in seen.items()})
                mine = taken[part]
                choice_loss = _choice_loss(network, scores, mine, settings.margin).mean()
                if isinstance(network, DuelingQ):  # the value of what the teacher did, not of what looks best
                    values = scores.gather(-1, mine[:, None]).squeeze(-1)
                value_loss = 0.5 * (values - returns[part]).square().mean()
                optimizer.zero_grad()
                torch.autograd.backward(choice_loss + settings.vf_coef * value_loss)
                torch.nn.utils.clip_grad_norm_(network.parameters(), settings.max_grad_norm)
                optimizer.step()
                if epoch == 0:
                    agreed = (scores.argmax(-1) == mine).float().mean()
                    figures.append(torch.stack([choice_loss, value_loss, agreed]).detach())
        choice_, value_, agreed_ = torch.stack(figures).mean(0).tolist()
        losses = {"imitation": choice_, "value": value_, "agreement": agreed_}
        keeper.end_update(observation, steps=size, episodes=episodes.means(), losses=losses)
    return keeper.history


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """With null for what there is not: JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and isnan(value) else value for name, value in record.items()
    }


def _judged(network: ActorCritic | DuelingQ, seen: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Scores of actions, -inf where the mask forbids, and the value of the state."""
    if isinstance(network, ActorCritic):
        return network(seen)
    values = network(seen)
    return values, values.amax(-1)


def _choice_loss(network: ActorCritic | DuelingQ, scores: Tensor, actions: Tensor, margin: float) -> Tensor:
    """(B,) how far the network is from choosing these actions."""
    if isinstance(network, ActorCritic):
        return -MaskedCategorical(scores).log_prob(actions)
    taken = scores.gather(-1, actions[:, None])
    others = (scores + margin).scatter(-1, actions[:, None], taken)
    return others.amax(-1) - taken.squeeze(-1)
