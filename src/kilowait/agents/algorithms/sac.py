"""Soft actor-critic for discrete actions: be good and stay undecided, and let a temperature weigh the two.

Haarnoja et al., "Soft actor-critic algorithms and applications" (2018), in the discrete form of Christodoulou (2019):
twin values against optimism, and a temperature that learns to keep the entropy at a share of what the *allowed*
actions of each state could have, so that a state with one allowed action asks for nothing.
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
from kilowait.agents.networks.spec import Sizes
from kilowait.agents.rl.device import (
    DeviceTransfer,
    TorchRng,
    lower_precision,
    use_device,
)
from kilowait.agents.rl.distributions import MaskedCategorical
from kilowait.agents.rl.env_protocol import VectorEnvProtocol
from kilowait.agents.rl.episode_stats import Episodes, ReturnScale
from kilowait.agents.rl.hyperparameter_checks import check_settings
from kilowait.agents.rl.replay_buffer import ReplayBuffer
from kilowait.agents.rl.results import TrainingResult
from kilowait.agents.rl.training_state import (
    Progress,
    TrainingState,
    Validate,
    WarmStart,
)

__all__ = ["SACSettings", "target_entropy", "train_sac"]


@dataclass(frozen=True)
class SACSettings:
    """How SAC learns. An update plays `rollout` steps of every environment, then takes `gradient_steps`."""

    total_timesteps: int = 500_000
    """Of all environments together; whole updates, at least one."""
    train_freq: int = 8
    """Steps of each environment between updates."""
    gradient_steps: int = 8
    """Steps of the optimizers in an update."""
    batch_size: int = 256
    """Steps of the past that each of them learns from."""
    buffer_size: int = 100_000
    """Steps of the past that are kept; checkpoints hold them all."""
    learning_starts: int = 5_000
    """Steps that are played before anything is learned."""
    learning_rate: float = 5e-4
    """Of Adam, for policy, values and temperature."""
    gamma: float = 0.99
    """Of the future, a step."""
    tau: float = 0.01
    """How far the target networks go to the values in each gradient step."""
    target_entropy: float = 0.2
    """Entropy that is kept, as a share of the most the allowed actions could have."""
    initial_ent_coef: float = 0.2
    """What an additional nat of entropy is worth at first."""
    max_grad_norm: float = 10.0
    """Norm that gradients are cut to."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the deviation of returns so far."""
    network: str = "kernel"
    """A name of `kilowait.agents.networks.KINDS`, for policy and values alike."""
    sizes: Sizes = field(default_factory=Sizes)
    """Of the networks."""
    precision: str = "float32"
    """Or "bf16": layers in 16 bits, weights and losses in 32."""
    validate_every: int = 100
    """Updates between validations."""
    patience: int | None = None
    """Validations without a new best after which training stops; None goes on."""
    checkpoint_every: int = 500
    """Updates between checkpoints."""

    def __post_init__(self) -> None:
        check_settings(self)


class TwinCritics(nn.Module):
    """Two networks of values that err apart, and the temperature."""

    def __init__(self, first: nn.Module, second: nn.Module, temperature: float) -> None:
        super().__init__()
        self.pair = nn.ModuleList([first, second])
        self.log_temperature = nn.Parameter(torch.tensor(log(temperature)))

    def values(self, seen: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(B, A) by each of the two, -inf where the mask forbids."""
        first, second = (one(seen) for one in self.pair)
        return first, second


def target_entropy(mask: Tensor, share: float) -> Tensor:
    """(B,) nats: a share of the entropy of choosing evenly among the allowed actions.

    >>> target_entropy(torch.tensor([[1, 1, 0], [0, 0, 1]]), 1.0).tolist()
    [0.6931471824645996, 0.0]
    """
    return share * (mask != 0).sum(-1).clamp(min=1).log()


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

    The network that comes back is the policy; its value, which SAC has no use for, is untrained.
    """
    settings = settings or SACSettings()
    size = settings.train_freq * vec.num_envs
    updates = max(1, settings.total_timesteps // size)
    with use_device(device, threads) as where:
        spec, sizes = vec.spec_of_observation, asdict(settings.sizes)
        agent = network(spec, settings.network, seed=seed, **sizes).to(where)
        pair = [q_network(spec, settings.network, seed=seed + 1 + one, **sizes) for one in range(2)]
        twins = TwinCritics(pair[0], pair[1], settings.initial_ent_coef).to(where)
        target = deepcopy(twins).requires_grad_(False)
        fused = where.type == "cuda"
        actor_optimizer = torch.optim.Adam(agent.parameters(), settings.learning_rate, eps=1e-5, fused=fused)
        critic_optimizer = torch.optim.Adam(
            twins.pair.parameters(), settings.learning_rate, eps=1e-5, fused=fused
        )
        heat_optimizer = torch.optim.Adam([twins.log_temperature], settings.learning_rate, fused=fused)
        draws = TorchRng(seed, "agents.sac", where)
        scale = ReturnScale(vec.num_envs, settings.gamma)
        episodes = Episodes(vec.num_envs)
        replay = ReplayBuffer(settings.buffer_size, vec.num_envs, DeviceTransfer(where), gamma=settings.gamma)
        keeper = TrainingState(
            "sac", vec, settings, seed=seed, updates=updates, network=agent,
            parts={"twins": twins, "target": target, "actor_optimizer": actor_optimizer,
                   "critic_optimizer": critic_optimizer, "heat_optimizer": heat_optimizer, "draws": draws,
                   "scale": scale, "episodes": episodes, "replay": replay},
            folder=checkpoint_dir, validate=validate, progress=progress, warm=warm,
        )  # fmt: skip
        observation = keeper.begin(resume)
        while not keeper.done:
            for _ in range(settings.train_freq):
                seen = replay.place(observation)
                with torch.no_grad(), lower_precision(where, settings.precision):
                    actions = MaskedCategorical(agent(seen)[0]).sample(draws.generator)
                chosen: npt.NDArray[np.int64] = actions.cpu().numpy()
                observation, rewards, terminated, truncated, infos = vec.step(chosen)
                done = terminated | truncated
                episodes.step(infos, done)
                scale.step(rewards, done)
                replay.commit(actions, rewards, terminated, truncated)

            losses, entropy_ = {}, float("nan")
            if keeper.steps + size > settings.learning_starts and len(replay):
                divisor = scale.divisor if settings.normalize_rewards else 1.0
                figures = []
                for _ in range(settings.gradient_steps):
                    drawn = replay.draw(settings.batch_size, draws.generator)
                    heat = twins.log_temperature.exp().detach()

                    with torch.no_grad(), lower_precision(where, settings.precision):
                        after = MaskedCategorical(agent(drawn.following)[0])
                        least = _finite(torch.minimum(*target.values(drawn.following)))
                        soft = (after.probabilities * (least - heat * after.finite)).sum(-1)
                        hoped = drawn.rewards / divisor + drawn.discounts * soft
                    with lower_precision(where, settings.precision):
                        both = twins.values(drawn.observation)
                    taken = [values.gather(-1, drawn.actions[:, None]).squeeze(-1) for values in both]
                    critic_loss = torch.stack([(values - hoped).square().mean() for values in taken]).sum()
                    critic_optimizer.zero_grad()
                    torch.autograd.backward(critic_loss)
                    nn.utils.clip_grad_norm_(twins.pair.parameters(), settings.max_grad_norm)
                    critic_optimizer.step()

                    with lower_precision(where, settings.precision):
                        choice = MaskedCategorical(agent(drawn.observation)[0])
                        with torch.no_grad():
                            least = _finite(torch.minimum(*twins.values(drawn.observation)))
                    actor_loss = (choice.probabilities * (heat * choice.finite - least)).sum(-1).mean()
                    actor_optimizer.zero_grad()
                    torch.autograd.backward(actor_loss)
                    nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
                    actor_optimizer.step()

                    entropy = choice.entropy().detach()
                    wanted = target_entropy(drawn.observation["mask"], settings.target_entropy)
                    heat_loss = twins.log_temperature.exp() * (entropy - wanted).mean()
                    heat_optimizer.zero_grad()
                    torch.autograd.backward(heat_loss)
                    heat_optimizer.step()

                    with torch.no_grad():
                        for slow, quick in zip(target.parameters(), twins.parameters(), strict=True):
                            slow.lerp_(quick, settings.tau)
                    figures.append(torch.stack([critic_loss, actor_loss, heat, entropy.mean()]).detach())
                critic_, actor_, heat_, entropy_ = torch.stack(figures).mean(0).tolist()
                losses = {"q": critic_, "policy": actor_, "temperature": heat_}
            keeper.end_update(
                observation, steps=size, episodes=episodes.means(), losses=losses, entropy=entropy_
            )
        return keeper.trained()


def _finite(values: Tensor) -> Tensor:
    """Values with 0 for actions that are not allowed: their probability is 0, and 0 x -inf would be NaN."""
    return values.masked_fill(values == -torch.inf, 0.0)
