"""Dueling double deep Q-network (D3QN) with prioritized replay and n-step returns; optionally the rest of Rainbow.

Mnih et al. (2015); van Hasselt et al. "Double Q-learning" (2016); Wang et al. "Dueling networks" (2016); Schaul et al.
"Prioritized experience replay" (2016); Hessel et al. "Rainbow" (AAAI 2018), which adds noisy layers instead of
epsilon-greedy exploration (`noisy`) and distributions of returns instead of their means (`n_atoms`).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Unpack

import torch
from torch import Tensor

from kilowait.agents.networks.factory import q_network
from kilowait.agents.networks.heads import DuelingQ, MaskedCategorical
from kilowait.agents.rl.device import TorchRng
from kilowait.agents.rl.env_protocol import ObservationArrays, VectorEnvProtocol
from kilowait.agents.rl.learner import LearnerOptions, TrainingResult, TrainingSettings, UpdateMetrics, gradient_step
from kilowait.agents.rl.replay_buffer import OffPolicyHyperparameters, OffPolicyLearner, ReplayBatch
from kilowait.agents.rl.training_state import train


def project_returns(support: Tensor, rewards: Tensor, discounts: Tensor, probabilities: Tensor) -> Tensor:
    """The distribution of reward + discount x return, projected onto the atoms of the return.

    Probability between two atoms is split between them, probability beyond the last is assigned to it: Bellemare,
    Dabney and Munos, "A distributional perspective on reinforcement learning" (ICML 2017).

    Args:
        support: (n,) equally spaced returns.
        rewards: (B,)
        discounts: (B,); 0 where the episode ended.
        probabilities: (B, n) of the following return.

    >>> half = torch.tensor([[0.0, 1.0, 0.0]])
    >>> project_returns(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([0.25]), torch.tensor([1.0]), half).tolist()
    [[0.0, 0.75, 0.25]]
    """
    apart = support[1] - support[0]
    moved = rewards[:, None] + discounts[:, None] * support
    place = (moved.clamp(support[0], support[-1]) - support[0]) / apart
    atoms = torch.arange(len(support), device=support.device)
    # (B, to, from): share of each moved atom assigned to each fixed one. No scatter, so the result is deterministic.
    near = (1.0 - (place[:, None, :] - atoms[:, None]).abs()).clamp(min=0.0)
    return torch.einsum("bij,bj->bi", near, probabilities)


@dataclass(frozen=True)
class D3QNHyperparameters(OffPolicyHyperparameters):
    """Hyperparameters of D3QN."""

    n_steps: int = 3
    """Rewards summed before bootstrapping from the value."""
    learning_rate: float = 5e-4
    """Learning rate of Adam."""
    gamma: float = 0.99
    """Discount factor a step."""
    target_update_interval: int = 200
    """Gradient steps between copies of the weights to the target network."""
    per_alpha: float = 0.5
    """Priority exponent; 0 samples uniformly."""
    per_beta: float = 0.4
    """Initial exponent of the importance-sampling correction; it rises to 1 at the end of the training."""
    exploration_fraction: float = 0.3
    """Fraction of the training during which epsilon decays from 1 to `exploration_final_eps`; unused if `noisy`."""
    exploration_final_eps: float = 0.02
    """Final epsilon: the share of random actions."""
    noisy: bool = False
    """Whether noisy output layers explore, instead of random actions."""
    n_atoms: int = 1
    """Atoms of the distribution of returns; 1 learns their mean, Rainbow uses 51."""
    v_range: tuple[float, float] = (-10.0, 10.0)
    """First and last atom, in units of the (normalized) rewards."""
    max_grad_norm: float = 10.0
    """Maximum norm of the gradients."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the running standard deviation of the returns."""


@dataclass(frozen=True)
class D3QNSettings(TrainingSettings, D3QNHyperparameters):
    """Hyperparameters of D3QN and settings of its training."""

    checkpoint_every: int = 500


class D3QN(OffPolicyLearner[D3QNSettings]):
    """The networks and the updates of D3QN."""

    network: DuelingQ

    def __init__(self, vec: VectorEnvProtocol, settings: D3QNSettings, seed: int, device: torch.device) -> None:
        agent = q_network(
            vec.spec_of_observation, settings.network, seed=seed, noisy=settings.noisy, atoms=settings.n_atoms,
            span=settings.v_range, **asdict(settings.sizes),
        ).to(device)  # fmt: skip
        super().__init__(
            "d3qn", vec, settings, agent, TorchRng(seed, "agents.d3qn", device),
            n_steps=settings.n_steps, per_alpha=settings.per_alpha,
        )  # fmt: skip
        self.target = deepcopy(agent).requires_grad_(False)
        self.optimizer = self.adam(agent.parameters(), eps=1e-5)
        self.parts |= {"target": self.target, "optimizer": self.optimizer, "replay": self.replay}

    def begin(self) -> None:
        """Copy the weights to the target network: a warm start has changed the agent."""
        self.target.load_state_dict(self.network.state_dict())

    def update(self, observation: ObservationArrays, number: int) -> tuple[ObservationArrays, UpdateMetrics]:
        """Collect steps into the replay buffer, and take gradient steps on batches of it."""
        settings, progress_share = self.settings, number / self.updates
        epsilon = _epsilon(settings, progress_share)
        observation = self.collect(
            observation, lambda stored: _epsilon_greedy(self.network, stored, epsilon, self.rng.generator)
        )
        losses = {}
        if self.takes_gradient_steps(number):
            per_beta = settings.per_beta + (1 - settings.per_beta) * progress_share
            gradient_steps = number * settings.gradient_steps
            metrics = [
                self._gradient_step(per_beta, gradient_steps + step) for step in range(1, settings.gradient_steps + 1)
            ]
            loss, mean_q = torch.stack(metrics).mean(0).tolist()
            losses = {"q": loss, "mean_q": mean_q, "epsilon": epsilon}
        return observation, UpdateMetrics(losses, self.episodes.means())

    def _gradient_step(self, per_beta: float, number: int) -> Tensor:
        """The gradient step of this number, counted from 1; returns the loss and the mean Q value."""
        settings, agent, target, replay, rng = self.settings, self.network, self.target, self.replay, self.rng
        batch = replay.sample(settings.batch_size, rng.generator, per_beta=per_beta)
        agent.sample_noise(rng.generator)
        target.sample_noise(rng.generator)
        with self.lower_precision():
            errors, mean_q = _td_errors(agent, target, batch, self.divisor)
        loss = (batch.weights * errors).mean()
        gradient_step(self.optimizer, loss, agent, settings.max_grad_norm)
        replay.update_priorities(batch.indices, errors)
        if number % settings.target_update_interval == 0:
            target.load_state_dict(agent.state_dict())
        return torch.stack([loss, mean_q]).detach()


def train_d3qn(
    vec: VectorEnvProtocol, settings: D3QNSettings | None = None, **options: Unpack[LearnerOptions]
) -> TrainingResult:
    """Train by D3QN; the arguments are those of `kilowait.agents.rl.ppo.train_ppo`."""
    chosen = settings or D3QNSettings()
    return train(lambda device: D3QN(vec, chosen, options["seed"], device), options)


def _epsilon(settings: D3QNSettings, progress_share: float) -> float:
    """Share of random actions after this share of the training."""
    if settings.noisy:
        return 0.0
    decayed = min(1.0, progress_share / settings.exploration_fraction) if settings.exploration_fraction else 1.0
    return 1.0 + decayed * (settings.exploration_final_eps - 1.0)


def _epsilon_greedy(agent: DuelingQ, observation: dict[str, Tensor], epsilon: float, random: torch.Generator) -> Tensor:
    """(B,) greedy actions, replaced by random allowed ones with probability `epsilon`."""
    agent.sample_noise(random)
    greedy = agent(observation).argmax(-1)
    if epsilon == 0.0:
        return greedy
    allowed = torch.zeros_like(observation["mask"], dtype=torch.float32).masked_fill(
        observation["mask"] == 0, -torch.inf
    )
    random_actions = MaskedCategorical(allowed).sample(random)
    exploring = torch.rand(len(greedy), generator=random, device=greedy.device) < epsilon
    return torch.where(exploring, random_actions, greedy)


def _td_errors(agent: DuelingQ, target: DuelingQ, batch: ReplayBatch, divisor: float) -> tuple[Tensor, Tensor]:
    """(B,) temporal-difference losses, and the mean Q value. Double Q: the agent chooses, the target evaluates."""
    rewards = batch.rewards / divisor
    row = torch.arange(len(rewards), device=rewards.device)
    with torch.no_grad():
        greedy = agent(batch.next_observation).argmax(-1)
    if agent.atoms == 1:
        with torch.no_grad():
            # After the end of an episode the discount is 0, but 0 x -inf would be NaN.
            next_values = target(batch.next_observation)[row, greedy].masked_fill(batch.discounts == 0, 0.0)
            targets = rewards + batch.discounts * next_values
        values = agent(batch.observation)[row, batch.actions]
        return torch.nn.functional.smooth_l1_loss(values, targets, reduction="none"), values.mean()
    with torch.no_grad():
        next_distribution = target.log_distribution(batch.next_observation)[row, greedy].exp()
        targets = project_returns(agent.support, rewards, batch.discounts, next_distribution)
    predicted = agent.log_distribution(batch.observation)[row, batch.actions]
    errors = torch.nn.functional.kl_div(predicted, targets, reduction="none").sum(-1)
    return errors, (predicted.exp() @ agent.support).mean()
