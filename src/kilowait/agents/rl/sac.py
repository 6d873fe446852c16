"""Soft actor-critic (SAC) for discrete actions, with two critics and a learned temperature.

Haarnoja et al., "Soft actor-critic algorithms and applications" (2018), in the discrete form of Christodoulou (2019):
the minimum of two critics counters overestimation, and the temperature keeps the entropy at a share of the maximum
entropy of the *allowed* actions of each state, so that a state with one allowed action has target entropy 0.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from math import log
from typing import Unpack

import torch
from torch import Tensor, nn

from kilowait.agents.networks.factory import network, q_network
from kilowait.agents.networks.heads import ActorCritic, MaskedCategorical
from kilowait.agents.rl.device import TorchRng
from kilowait.agents.rl.env_protocol import ObservationArrays, VectorEnvProtocol
from kilowait.agents.rl.learner import LearnerOptions, TrainingResult, TrainingSettings, UpdateMetrics, gradient_step
from kilowait.agents.rl.replay_buffer import OffPolicyHyperparameters, OffPolicyLearner, ReplayBatch
from kilowait.agents.rl.training_state import train


@dataclass(frozen=True)
class SACHyperparameters(OffPolicyHyperparameters):
    """Hyperparameters of SAC."""

    learning_rate: float = 5e-4
    """Learning rate of Adam, for policy, critics and temperature."""
    gamma: float = 0.99
    """Discount factor a step."""
    tau: float = 0.01
    """Soft-update coefficient of the target networks, a gradient step."""
    target_entropy: float = 0.2
    """Target entropy, as a share of the maximum entropy of the allowed actions."""
    initial_ent_coef: float = 0.2
    """Initial temperature: the reward of one additional nat of entropy."""
    max_grad_norm: float = 10.0
    """Maximum norm of the gradients."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the running standard deviation of the returns."""


@dataclass(frozen=True)
class SACSettings(TrainingSettings, SACHyperparameters):
    """Hyperparameters of SAC and settings of its training."""

    checkpoint_every: int = 500


class TwinCritics(nn.Module):
    """Two independently initialized Q networks, and the temperature."""

    def __init__(self, first: nn.Module, second: nn.Module, temperature: float) -> None:
        super().__init__()
        self.pair = nn.ModuleList([first, second])
        self.log_temperature = nn.Parameter(torch.tensor(log(temperature)))

    def values(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(B, A) Q values of both networks, -inf where the mask forbids."""
        first, second = (index(observation) for index in self.pair)
        return first, second


def target_entropy(mask: Tensor, share: float) -> Tensor:
    """(B,) nats: a share of the entropy of the uniform distribution over the allowed actions.

    >>> target_entropy(torch.tensor([[1, 1, 0], [0, 0, 1]]), 1.0).tolist()
    [0.6931471824645996, 0.0]
    """
    return share * (mask != 0).sum(-1).clamp(min=1).log()


class SAC(OffPolicyLearner[SACSettings]):
    """The networks and the updates of SAC."""

    network: ActorCritic

    def __init__(self, vec: VectorEnvProtocol, settings: SACSettings, seed: int, device: torch.device) -> None:
        spec, sizes = vec.spec_of_observation, asdict(settings.sizes)
        agent = network(spec, settings.network, seed=seed, **sizes).to(device)
        super().__init__("sac", vec, settings, agent, TorchRng(seed, "agents.sac", device))
        pair = [q_network(spec, settings.network, seed=seed + 1 + index, **sizes) for index in range(2)]
        self.critics = TwinCritics(pair[0], pair[1], settings.initial_ent_coef).to(device)
        self.target = deepcopy(self.critics).requires_grad_(False)
        self.actor_optimizer = self.adam(agent.parameters(), eps=1e-5)
        self.critic_optimizer = self.adam(self.critics.pair.parameters(), eps=1e-5)
        self.temperature_optimizer = self.adam([self.critics.log_temperature])
        self.parts |= {
            "critics": self.critics, "target": self.target, "actor_optimizer": self.actor_optimizer,
            "critic_optimizer": self.critic_optimizer, "temperature_optimizer": self.temperature_optimizer,
            "replay": self.replay,
        }  # fmt: skip

    def update(self, observation: ObservationArrays, number: int) -> tuple[ObservationArrays, UpdateMetrics]:
        """Collect steps into the replay buffer, and take gradient steps on batches of it."""
        settings = self.settings
        observation = self.collect(
            observation, lambda stored: MaskedCategorical(self.network(stored)[0]).sample(self.rng.generator)
        )
        losses, entropy = {}, float("nan")
        if self.takes_gradient_steps(number):
            metrics = [
                self._gradient_step(self.replay.sample(settings.batch_size, self.rng.generator))
                for _ in range(settings.gradient_steps)
            ]
            critic, actor, temperature, entropy = torch.stack(metrics).mean(0).tolist()
            losses = {"q": critic, "policy": actor, "temperature": temperature}
        return observation, UpdateMetrics(losses, self.episodes.means(), entropy)

    def _gradient_step(self, batch: ReplayBatch) -> Tensor:
        """One step of every optimizer; returns the losses of critics and policy, the temperature and the entropy."""
        settings, critics = self.settings, self.critics
        temperature = critics.log_temperature.exp().detach()
        critic_loss = self._critic_loss(batch, temperature)
        gradient_step(self.critic_optimizer, critic_loss, critics.pair, settings.max_grad_norm)

        with self.lower_precision():
            choice = MaskedCategorical(self.network(batch.observation)[0])
            with torch.no_grad():
                min_q = _finite(torch.minimum(*critics.values(batch.observation)))
        actor_loss = (choice.probabilities * (temperature * choice.finite - min_q)).sum(-1).mean()
        gradient_step(self.actor_optimizer, actor_loss, self.network, settings.max_grad_norm)

        entropy = choice.entropy().detach()
        targets_entropy = target_entropy(batch.observation["mask"], settings.target_entropy)
        temperature_loss = critics.log_temperature.exp() * (entropy - targets_entropy).mean()
        self.temperature_optimizer.zero_grad()
        torch.autograd.backward(temperature_loss)
        self.temperature_optimizer.step()

        with torch.no_grad():
            for target_weights, weights in zip(self.target.parameters(), critics.parameters(), strict=True):
                target_weights.lerp_(weights, settings.tau)
        return torch.stack([critic_loss, actor_loss, temperature, entropy.mean()]).detach()

    def _critic_loss(self, batch: ReplayBatch, temperature: Tensor) -> Tensor:
        """Squared errors of both critics against the soft values of the target networks."""
        with torch.no_grad(), self.lower_precision():
            next_policy = MaskedCategorical(self.network(batch.next_observation)[0])
            next_q = _finite(torch.minimum(*self.target.values(batch.next_observation)))
            soft_values = (next_policy.probabilities * (next_q - temperature * next_policy.finite)).sum(-1)
            targets = batch.rewards / self.divisor + batch.discounts * soft_values
        with self.lower_precision():
            q_values = self.critics.values(batch.observation)
        q_taken = [values.gather(-1, batch.actions[:, None]).squeeze(-1) for values in q_values]
        return torch.stack([(values - targets).square().mean() for values in q_taken]).sum()


def train_sac(
    vec: VectorEnvProtocol, settings: SACSettings | None = None, **options: Unpack[LearnerOptions]
) -> TrainingResult:
    """Train by SAC; the arguments are those of `kilowait.agents.rl.ppo.train_ppo`.

    The returned network is the policy; its value head, which SAC does not use, is untrained.
    """
    chosen = settings or SACSettings()
    return train(lambda device: SAC(vec, chosen, options["seed"], device), options)


def _finite(values: Tensor) -> Tensor:
    """Values with 0 for actions that are not allowed: their probability is 0, and 0 x -inf would be NaN."""
    return values.masked_fill(values == -torch.inf, 0.0)
