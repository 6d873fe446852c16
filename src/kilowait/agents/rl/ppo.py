"""Proximal policy optimization (PPO), with action masks, and optionally with a constraint on a cost.

Schulman, Wolski, Dhariwal, Radford and Klimov, "Proximal policy optimization algorithms" (2017), with generalized
advantage estimation and the implementation details that Huang et al. found to matter ("The 37 implementation details
of PPO", 2022), except clipping of the value loss, which did not help there.

With `cost` the problem is constrained: the reward is reduced by a multiplier times a cost that the environment
reports, and the multiplier rises until the mean cost of an episode is below the limit (`LagrangeMultiplier`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.networks.factory import network
from kilowait.agents.networks.heads import ActorCritic, MaskedCategorical
from kilowait.agents.rl.device import TorchRng
from kilowait.agents.rl.env_protocol import ObservationArrays, VectorEnvProtocol, step_cost
from kilowait.agents.rl.learner import LearnerOptions, TrainingResult, TrainingSettings, UpdateMetrics, gradient_step
from kilowait.agents.rl.rollout_buffer import RolloutLearner
from kilowait.agents.rl.training_state import train
from kilowait.errors import InputError


@dataclass
class LagrangeMultiplier:
    """A Lagrange multiplier for "mean cost of an episode <= limit", learned together with the policy.

    The penalized reward is (reward - multiplier x cost) / (1 + multiplier), after Tessler, Mankowitz and Mannor,
    "Reward constrained policy optimization" (ICLR 2019); the divisor keeps its scale.

    >>> dual = LagrangeMultiplier(limit=10.0, rate=0.5)
    >>> dual.update(30.0)  # 200 % excess the limit
    >>> dual.multiplier, dual.penalized(np.array([-1.0]), np.array([3.0])).tolist()
    (1.0, [-2.0])
    """

    limit: float
    """Mean cost of an episode; with a limit of 0 the step of the multiplier is absolute instead of relative."""
    rate: float
    """Step of the multiplier for a cost that is 100 % above the limit."""
    multiplier: float = 0.0

    def penalized(self, rewards: npt.NDArray[np.float64], costs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Rewards minus the multiplier times their costs, scaled."""
        return (rewards - self.multiplier * costs) / (1.0 + self.multiplier)

    def update(self, cost: float) -> None:
        """Update with the mean cost of the finished episodes; NaN (none finished) changes nothing."""
        if not np.isnan(cost):
            excess = (cost - self.limit) / (abs(self.limit) or 1.0)
            self.multiplier = max(0.0, self.multiplier + self.rate * excess)

    def state_dict(self) -> dict[str, Any]:
        """State of the multiplier."""
        return {"multiplier": self.multiplier}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.multiplier = float(state["multiplier"])


@dataclass(frozen=True)
class PPOHyperparameters:
    """Hyperparameters of PPO. An update collects `n_steps` steps of every environment and trains `n_epochs` on them."""

    total_timesteps: int = 1_000_000
    """Environment steps of all environments together; rounded down to complete updates, at least one."""
    n_steps: int = 64
    """Steps of each environment between updates."""
    n_epochs: int = 3
    """Passes over a rollout."""
    n_minibatches: int = 8
    """Minibatches of a rollout, shuffled anew in each pass."""
    learning_rate: float = 5e-4
    """Initial learning rate of Adam."""
    anneal_lr: bool = True
    """Whether the learning rate decays linearly to nearly 0."""
    gamma: float = 0.999
    """Discount factor a step; near 1, as episodes are long and end."""
    gae_lambda: float = 0.95
    """Lambda of generalized advantage estimation."""
    clip_range: float = 0.2
    """Clipping range of the probability ratio of an action."""
    ent_coef: float = 0.003
    """Weight of the policy's entropy, which delays premature convergence."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Maximum norm of the gradients."""
    target_kl: float | None = None
    """KL divergence, nats, beyond which the remaining passes of an update are skipped; None: no limit."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the running standard deviation of the returns."""
    cost: str | None = None
    """Name in `infos` of a cost a step; None: no constraint."""
    cost_limit: float = 0.0
    """Largest allowed mean cost of an episode."""
    cost_rate: float = 0.05
    """Step size of the Lagrange multiplier."""


@dataclass(frozen=True)
class PPOSettings(TrainingSettings, PPOHyperparameters):
    """Hyperparameters of PPO and settings of its training."""

    validate_every: int = 10
    checkpoint_every: int = 10


class PPO(RolloutLearner[PPOSettings]):
    """The networks and the updates of PPO."""

    network: ActorCritic

    def __init__(self, vec: VectorEnvProtocol, settings: PPOSettings, seed: int, device: torch.device) -> None:
        agent = network(vec.spec_of_observation, settings.network, seed=seed, **asdict(settings.sizes)).to(device)
        super().__init__("ppo", vec, settings, agent, TorchRng(seed, "agents.ppo", device), cost=settings.cost)
        if self.steps < settings.n_minibatches:
            raise InputError(
                f"a rollout of {self.steps} steps cannot be split into {settings.n_minibatches} minibatches; take fewer"
            )
        self.dual = LagrangeMultiplier(settings.cost_limit, settings.cost_rate)
        self.parts |= {"dual": self.dual}

    def update(self, observation: ObservationArrays, number: int) -> tuple[ObservationArrays, UpdateMetrics]:
        """Collect a rollout and train on it in several passes."""
        settings = self.settings
        observation, transitions = self.collect(observation, number, reward=self._penalized)
        advantages = self.advantages(transitions)
        returns = (advantages + self.rollout.values).flatten()
        advantages = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).flatten()
        policy_loss, value_loss, entropy, kl = self._train(advantages, returns)

        episode_means = self.episodes.means()
        losses = {"policy": policy_loss, "value": value_loss}
        if settings.cost is not None:
            self.dual.update(episode_means["cost"])
            losses["multiplier"] = self.dual.multiplier
            if not math.isnan(episode_means["cost"]):
                losses["cost"] = episode_means["cost"]
        return observation, UpdateMetrics(losses, episode_means, entropy, kl)

    def _train(self, advantages: Tensor, returns: Tensor) -> list[float]:
        """Train on the rollout; returns the means of policy loss, value loss, entropy and KL divergence."""
        settings, agent, rng = self.settings, self.network, self.rng
        observations, actions_taken, old_log_probs = (
            self.rollout.flat(),
            self.rollout.actions.flatten(),
            self.rollout.log_probs.flatten(),
        )
        metrics = []  # tensors on the device; read once an update, as reading waits for the device
        for _ in range(settings.n_epochs):
            order = torch.randperm(self.steps, generator=rng.generator, device=self.device)
            for rows in order.tensor_split(settings.n_minibatches):
                with self.lower_precision():
                    logits, values = agent({name: array[rows] for name, array in observations.items()})
                choice = MaskedCategorical(logits)
                log_ratio = choice.log_prob(actions_taken[rows]) - old_log_probs[rows]
                ratio = log_ratio.exp()
                advantage = advantages[rows]
                clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
                policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
                value_loss = 0.5 * (values - returns[rows]).square().mean()
                entropy = choice.entropy().mean()
                loss = policy_loss + settings.vf_coef * value_loss - settings.ent_coef * entropy
                gradient_step(self.optimizer, loss, agent, settings.max_grad_norm)
                kl = (ratio - 1 - log_ratio).mean()
                metrics.append(torch.stack([policy_loss, value_loss, entropy, kl]).detach())
            if settings.target_kl is not None and metrics[-1][3].item() > settings.target_kl:
                break
        means: list[float] = torch.stack(metrics).mean(0).tolist()
        return means

    def _penalized(self, rewards: npt.NDArray[np.float64], infos: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """Rewards minus the penalty of the constraint."""
        cost = self.settings.cost
        return rewards if cost is None else self.dual.penalized(rewards, step_cost(infos, cost))


def train_ppo(
    vec: VectorEnvProtocol, settings: PPOSettings | None = None, **options: Unpack[LearnerOptions]
) -> TrainingResult:
    """Train by PPO.

    Args:
        vec: vector environment.
        settings: see `PPOSettings`.
        options: seed, device, callbacks and checkpoints, see `kilowait.agents.rl.learner.LearnerOptions`.
    """
    chosen = settings or PPOSettings()
    return train(lambda device: PPO(vec, chosen, options["seed"], device), options)
