"""Soft actor-critic (SAC) for discrete actions, with two critics and a learned temperature.

Haarnoja et al., "Soft actor-critic algorithms and applications" (2018), in the discrete form of Christodoulou (2019):
the minimum of two critics counters overestimation, and the temperature keeps the entropy at a share of the maximum
entropy of the *allowed* actions of each state, so that a state with one allowed action has target entropy 0.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass, field
from math import log
from os import PathLike

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kilowait.agents.networks.factory import network, q_network
from kilowait.agents.networks.spec import NetworkSizes
from kilowait.agents.rl.device import DeviceTransfer, TorchRng, lower_precision, use_device
from kilowait.agents.rl.distributions import MaskedCategorical
from kilowait.agents.rl.env_protocol import VectorEnvProtocol
from kilowait.agents.rl.episode_stats import EpisodeStatistics, ReturnScale
from kilowait.agents.rl.hyperparameter_checks import check_settings
from kilowait.agents.rl.replay_buffer import ReplayBuffer
from kilowait.agents.rl.training_result import TrainingResult
from kilowait.agents.rl.training_state import Progress, TrainingState, Validate, WarmStart
from kilowait.files import locks_output

__all__ = ["SACSettings", "train_sac"]


@dataclass(frozen=True)
class SACSettings:
    """Hyperparameters of SAC. An update collects `train_freq` steps of every environment, then takes `gradient_steps`
    gradient steps.
    """

    total_timesteps: int = 500_000
    """Environment steps of all environments together; rounded down to complete updates, at least one."""
    train_freq: int = 8
    """Steps of each environment between updates."""
    gradient_steps: int = 8
    """Gradient steps in an update, of every optimizer."""
    batch_size: int = 256
    """Transitions in the batch of a gradient step."""
    buffer_size: int = 100_000
    """Capacity of the replay buffer, transitions; checkpoints contain all of them."""
    learning_starts: int = 5_000
    """Environment steps before the first gradient step."""
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
    network: str = "kernel"
    """A name of `kilowait.agents.networks.FEATURE_EXTRACTORS`, used for policy and critics."""
    sizes: NetworkSizes = field(default_factory=NetworkSizes)
    """Sizes of the networks."""
    precision: str = "float32"
    """Or "bf16": layers compute in 16 bits; weights and losses stay in 32."""
    validate_every: int = 100
    """Updates between validations."""
    patience: int | None = None
    """Validations without a new best after which training stops; None: never stop early."""
    checkpoint_every: int = 500
    """Updates between checkpoints."""

    def __post_init__(self) -> None:
        check_settings(self)


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


@locks_output("checkpoint_dir", inside=True)
def train_sac(
    vec: VectorEnvProtocol,
    settings: SACSettings | None = None,
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
    """Train by SAC; the arguments are those of `kilowait.agents.algorithms.ppo.train_ppo`.

    The returned network is the policy; its value head, which SAC does not use, is untrained.
    """
    settings = settings or SACSettings()
    size = settings.train_freq * vec.num_envs
    updates = max(1, settings.total_timesteps // size)
    with use_device(device, threads) as torch_device:
        spec, sizes = vec.spec_of_observation, asdict(settings.sizes)
        agent = network(spec, settings.network, seed=seed, **sizes).to(torch_device)
        pair = [q_network(spec, settings.network, seed=seed + 1 + index, **sizes) for index in range(2)]
        critics = TwinCritics(pair[0], pair[1], settings.initial_ent_coef).to(torch_device)
        target = deepcopy(critics).requires_grad_(False)
        fused = torch_device.type == "cuda"
        actor_optimizer = torch.optim.Adam(agent.parameters(), settings.learning_rate, eps=1e-5, fused=fused)
        critic_optimizer = torch.optim.Adam(critics.pair.parameters(), settings.learning_rate, eps=1e-5, fused=fused)
        temperature_optimizer = torch.optim.Adam([critics.log_temperature], settings.learning_rate, fused=fused)
        rng = TorchRng(seed, "agents.sac", torch_device)
        scale = ReturnScale(vec.num_envs, settings.gamma)
        episodes = EpisodeStatistics(vec.num_envs)
        replay = ReplayBuffer(settings.buffer_size, vec.num_envs, DeviceTransfer(torch_device), gamma=settings.gamma)
        training = TrainingState(
            "sac", vec, settings, seed=seed, updates=updates, network=agent,
            parts={"critics": critics, "target": target, "actor_optimizer": actor_optimizer,
                   "critic_optimizer": critic_optimizer, "temperature_optimizer": temperature_optimizer, "rng": rng,
                   "scale": scale, "episodes": episodes, "replay": replay},
            folder=checkpoint_dir, validate=validate, progress=progress, warm=warm,
        )  # fmt: skip
        observation = training.begin(resume)
        while not training.done:
            for _ in range(settings.train_freq):
                stored = replay.store_observation(observation)
                with torch.no_grad(), lower_precision(torch_device, settings.precision):
                    actions = MaskedCategorical(agent(stored)[0]).sample(rng.generator)
                env_actions: npt.NDArray[np.int64] = actions.cpu().numpy()
                observation, rewards, terminated, truncated, infos = vec.step(env_actions)
                done = terminated | truncated
                episodes.step(infos, done)
                scale.step(rewards, done)
                replay.store_transition(actions, rewards, terminated, truncated)

            losses, entropy_ = {}, float("nan")
            if training.steps + size > settings.learning_starts and len(replay):
                divisor = scale.divisor if settings.normalize_rewards else 1.0
                metrics = []
                for _ in range(settings.gradient_steps):
                    batch = replay.sample(settings.batch_size, rng.generator)
                    temperature = critics.log_temperature.exp().detach()

                    with torch.no_grad(), lower_precision(torch_device, settings.precision):
                        next_policy = MaskedCategorical(agent(batch.next_observation)[0])
                        next_q = _finite(torch.minimum(*target.values(batch.next_observation)))
                        soft_values = (next_policy.probabilities * (next_q - temperature * next_policy.finite)).sum(-1)
                        targets = batch.rewards / divisor + batch.discounts * soft_values
                    with lower_precision(torch_device, settings.precision):
                        q_values = critics.values(batch.observation)
                    q_taken = [values.gather(-1, batch.actions[:, None]).squeeze(-1) for values in q_values]
                    critic_loss = torch.stack([(values - targets).square().mean() for values in q_taken]).sum()
                    critic_optimizer.zero_grad()
                    torch.autograd.backward(critic_loss)
                    nn.utils.clip_grad_norm_(critics.pair.parameters(), settings.max_grad_norm)
                    critic_optimizer.step()

                    with lower_precision(torch_device, settings.precision):
                        choice = MaskedCategorical(agent(batch.observation)[0])
                        with torch.no_grad():
                            min_q = _finite(torch.minimum(*critics.values(batch.observation)))
                    actor_loss = (choice.probabilities * (temperature * choice.finite - min_q)).sum(-1).mean()
                    actor_optimizer.zero_grad()
                    torch.autograd.backward(actor_loss)
                    nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
                    actor_optimizer.step()

                    entropy = choice.entropy().detach()
                    targets_entropy = target_entropy(batch.observation["mask"], settings.target_entropy)
                    temperature_loss = critics.log_temperature.exp() * (entropy - targets_entropy).mean()
                    temperature_optimizer.zero_grad()
                    torch.autograd.backward(temperature_loss)
                    temperature_optimizer.step()

                    with torch.no_grad():
                        for target_weights, weights in zip(target.parameters(), critics.parameters(), strict=True):
                            target_weights.lerp_(weights, settings.tau)
                    metrics.append(torch.stack([critic_loss, actor_loss, temperature, entropy.mean()]).detach())
                critic_, actor_, temperature_, entropy_ = torch.stack(metrics).mean(0).tolist()
                losses = {"q": critic_, "policy": actor_, "temperature": temperature_}
            training.end_update(observation, steps=size, episodes=episodes.means(), losses=losses, entropy=entropy_)
        return training.result()


def _finite(values: Tensor) -> Tensor:
    """Values with 0 for actions that are not allowed: their probability is 0, and 0 x -inf would be NaN."""
    return values.masked_fill(values == -torch.inf, 0.0)
