"""Advantage actor-critic (A2C): collect a short rollout, take one gradient step, discard the rollout.

Mnih et al., "Asynchronous methods for deep reinforcement learning" (ICML 2016), synchronous instead of asynchronous.
Simpler than PPO and less sample-efficient: every transition is used once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from os import PathLike

import torch

from kilowait.agents.networks.factory import network
from kilowait.agents.networks.spec import NetworkSizes
from kilowait.agents.rl.device import DeviceTransfer, TorchRng, lower_precision, use_device
from kilowait.agents.rl.distributions import MaskedCategorical
from kilowait.agents.rl.env_protocol import VectorEnvProtocol
from kilowait.agents.rl.episode_stats import EpisodeStatistics, ReturnScale
from kilowait.agents.rl.hyperparameter_checks import check_settings
from kilowait.agents.rl.rollout_buffer import RolloutBuffer, n_step_returns
from kilowait.agents.rl.training_result import TrainingResult
from kilowait.agents.rl.training_state import Progress, TrainingState, Validate, WarmStart
from kilowait.files import locks_output

__all__ = ["A2CSettings", "train_a2c"]


@dataclass(frozen=True)
class A2CSettings:
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
    network: str = "kernel"
    """A name of `kilowait.agents.networks.FEATURE_EXTRACTORS`."""
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


@locks_output("checkpoint_dir", inside=True)
def train_a2c(
    vec: VectorEnvProtocol,
    settings: A2CSettings | None = None,
    *,
    seed: int,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
    resume: str | PathLike[str] | None = None,
    checkpoint_dir: str | PathLike[str] | None = None,
    validate: Validate | None = None,
    warm: WarmStart | None = None,
) -> TrainingResult:
    """Train by A2C; the arguments are those of `kilowait.agents.algorithms.ppo.train_ppo`."""
    settings = settings or A2CSettings()
    size = settings.n_steps * vec.num_envs
    updates = max(1, settings.total_timesteps // size)
    with use_device(device, threads) as torch_device:
        agent = network(vec.spec_of_observation, settings.network, seed=seed, **asdict(settings.sizes)).to(torch_device)
        optimizer = torch.optim.Adam(
            agent.parameters(), settings.learning_rate, eps=1e-5, fused=torch_device.type == "cuda"
        )
        rng = TorchRng(seed, "agents.a2c", torch_device)
        scale = ReturnScale(vec.num_envs, settings.gamma)
        episodes = EpisodeStatistics(vec.num_envs)
        rollout = RolloutBuffer(settings.n_steps, vec.num_envs, DeviceTransfer(torch_device))
        training = TrainingState(
            "a2c", vec, settings, seed=seed, updates=updates, network=agent,
            parts={"optimizer": optimizer, "rng": rng, "scale": scale, "episodes": episodes},
            folder=checkpoint_dir, validate=validate, progress=progress, warm=warm,
        )  # fmt: skip
        observation = training.begin(resume)
        while not training.done:
            if settings.anneal_lr:
                optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - training.number / updates)

            with torch.no_grad(), lower_precision(torch_device, settings.precision):
                for step in range(settings.n_steps):
                    actions = rollout.add_observation(step, observation, agent, rng.generator)
                    observation, rewards, terminated, truncated, infos = vec.step(actions)
                    done = terminated | truncated
                    episodes.step(infos, done)
                    scale.step(rewards, done)
                    rollout.add_transition(step, rewards, terminated, truncated, infos, agent)
                transitions = rollout.close(observation, agent, scale.divisor if settings.normalize_rewards else 1.0)
            returns = n_step_returns(
                transitions["rewards"], rollout.next_values, transitions["terminated"], transitions["truncated"],
                gamma=settings.gamma, n_steps=min(settings.n_step_return, settings.n_steps),
            )  # fmt: skip
            advantages = (returns - rollout.values).flatten()
            if settings.normalize_advantage:
                advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)

            with lower_precision(torch_device, settings.precision):
                logits, values = agent(rollout.flat())
            choice = MaskedCategorical(logits)
            policy_loss = -(advantages * choice.log_prob(rollout.actions.flatten())).mean()
            value_loss = 0.5 * (values - returns.flatten()).square().mean()
            entropy = choice.entropy().mean()
            loss = policy_loss + settings.vf_coef * value_loss - settings.ent_coef * entropy
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
            optimizer.step()

            policy_loss_, value_loss_, entropy_ = torch.stack([policy_loss, value_loss, entropy]).tolist()
            losses = {"policy": policy_loss_, "value": value_loss_}
            training.end_update(observation, steps=size, episodes=episodes.means(), losses=losses, entropy=entropy_)
        return training.result()
