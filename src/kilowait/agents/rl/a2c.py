"""Advantage actor-critic (A2C): collect a short rollout, take one gradient step, discard the rollout.

Mnih et al., "Asynchronous methods for deep reinforcement learning" (ICML 2016), synchronous instead of asynchronous.
Simpler than PPO and less sample-efficient: every transition is used once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Unpack

import torch

from kilowait.agents.networks.factory import network
from kilowait.agents.networks.heads import ActorCritic, MaskedCategorical
from kilowait.agents.rl.device import TorchRng
from kilowait.agents.rl.env_protocol import ObservationArrays, VectorEnvProtocol
from kilowait.agents.rl.learner import LearnerOptions, TrainingResult, TrainingSettings, UpdateMetrics, gradient_step
from kilowait.agents.rl.rollout_buffer import RolloutLearner, n_step_returns
from kilowait.agents.rl.training_state import train


@dataclass(frozen=True)
class A2CHyperparameters:
    """Hyperparameters of A2C. An update collects `n_steps` steps of every environment and takes one gradient step."""

    total_timesteps: int = 1_000_000
    """Environment steps of all environments together; rounded down to complete updates, at least one."""
    n_steps: int = 16
    """Steps of each environment between updates."""
    n_step_return: int = 16
    """Rewards summed before bootstrapping from the value; at most `n_steps`."""
    learning_rate: float = 1e-3
    """Initial learning rate of Adam."""
    anneal_lr: bool = True
    """Whether the learning rate decays linearly to nearly 0."""
    gamma: float = 0.999
    """Discount factor a step."""
    ent_coef: float = 0.003
    """Weight of the policy's entropy."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Maximum norm of the gradients."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the running standard deviation of the returns."""
    normalize_advantage: bool = True
    """Whether the advantages of an update are normalized to mean 0 and standard deviation 1."""


@dataclass(frozen=True)
class A2CSettings(TrainingSettings, A2CHyperparameters):
    """Hyperparameters of A2C and settings of its training."""


class A2C(RolloutLearner[A2CSettings]):
    """The network and the updates of A2C."""

    network: ActorCritic

    def __init__(self, vec: VectorEnvProtocol, settings: A2CSettings, seed: int, device: torch.device) -> None:
        agent = network(vec.spec_of_observation, settings.network, seed=seed, **asdict(settings.sizes)).to(device)
        super().__init__("a2c", vec, settings, agent, TorchRng(seed, "agents.a2c", device))

    def update(self, observation: ObservationArrays, number: int) -> tuple[ObservationArrays, UpdateMetrics]:
        """Collect a rollout and take one gradient step."""
        settings, rollout = self.settings, self.rollout
        observation, transitions = self.collect(observation, number)
        returns = n_step_returns(
            transitions["rewards"], rollout.next_values, transitions["terminated"], transitions["truncated"],
            gamma=settings.gamma, n_steps=min(settings.n_step_return, settings.n_steps),
        )  # fmt: skip
        advantages = (returns - rollout.values).flatten()
        if settings.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)

        with self.lower_precision():
            logits, values = self.network(rollout.flat())
        choice = MaskedCategorical(logits)
        policy_loss = -(advantages * choice.log_prob(rollout.actions.flatten())).mean()
        value_loss = 0.5 * (values - returns.flatten()).square().mean()
        entropy = choice.entropy().mean()
        loss = policy_loss + settings.vf_coef * value_loss - settings.ent_coef * entropy
        gradient_step(self.optimizer, loss, self.network, settings.max_grad_norm)

        policy_loss_, value_loss_, entropy_ = torch.stack([policy_loss, value_loss, entropy]).tolist()
        losses = {"policy": policy_loss_, "value": value_loss_}
        return observation, UpdateMetrics(losses, self.episodes.means(), entropy_)


def train_a2c(
    vec: VectorEnvProtocol, settings: A2CSettings | None = None, **options: Unpack[LearnerOptions]
) -> TrainingResult:
    """Train by A2C; the arguments are those of `kilowait.agents.rl.ppo.train_ppo`."""
    chosen = settings or A2CSettings()
    return train(lambda device: A2C(vec, chosen, options["seed"], device), options)
