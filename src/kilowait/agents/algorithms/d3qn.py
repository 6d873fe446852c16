"""Deep Q-learning with its remedies: double, dueling, prioritized, n-step; and, by switches, the rest of Rainbow.

Mnih et al. (2015); van Hasselt et al. "Double Q-learning" (2016); Wang et al. "Dueling networks" (2016); Schaul et al.
"Prioritized experience replay" (2016); Hessel et al. "Rainbow" (AAAI 2018), which adds noisy layers in place of random
actions (`noisy`) and distributions of returns in place of their means (`atoms`).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass, field
from os import PathLike

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.networks.factory import q_network
from kilowait.agents.networks.heads import DuelingQ
from kilowait.agents.networks.spec import Sizes
from kilowait.agents.rl.categorical_returns import projected
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
from kilowait.agents.rl.replay_buffer import ReplayBatch, ReplayBuffer
from kilowait.agents.rl.results import TrainingResult
from kilowait.agents.rl.training_state import (
    Progress,
    TrainingState,
    Validate,
    WarmStart,
)

__all__ = ["D3QNSettings", "train_d3qn"]


@dataclass(frozen=True)
class D3QNSettings:
    """How D3QN learns. An update plays `rollout` steps of every environment, then takes `gradient_steps`."""

    total_timesteps: int = 500_000
    """Of all environments together; whole updates, at least one."""
    train_freq: int = 8
    """Steps of each environment between updates."""
    gradient_steps: int = 8
    """Steps of the optimizer in an update."""
    batch_size: int = 256
    """Steps of the past that each of them learns from."""
    buffer_size: int = 100_000
    """Steps of the past that are kept; checkpoints hold them all."""
    learning_starts: int = 5_000
    """Steps that are played before anything is learned."""
    n_steps: int = 3
    """Steps whose rewards are counted before the value is trusted."""
    learning_rate: float = 5e-4
    """Of Adam."""
    gamma: float = 0.99
    """Of the future, a step."""
    target_update_interval: int = 200
    """Gradient steps after which the target network is made the same again."""
    per_alpha: float = 0.5
    """Exponent of the error in the priority of a step; 0 draws all alike."""
    per_beta: float = 0.4
    """How much of the priorities' bias is undone at first; all of it in the end."""
    exploration_fraction: float = 0.3
    """Part of training during which the share of random actions falls from 1 to `last_epsilon`; no matter if noisy."""
    exploration_final_eps: float = 0.02
    """Share of random actions after that."""
    noisy: bool = False
    """Whether noise on the last layers explores, instead of random actions."""
    n_atoms: int = 1
    """Atoms of the distribution of returns; 1 learns their mean, Rainbow has 51."""
    v_range: tuple[float, float] = (-10.0, 10.0)
    """First and last atom, in units of rewards as they are learned from (normalised: deviations of the return)."""
    max_grad_norm: float = 10.0
    """Norm that gradients are cut to."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the deviation of returns so far."""
    network: str = "kernel"
    """A name of `kilowait.agents.networks.KINDS`."""
    sizes: Sizes = field(default_factory=Sizes)
    """Of the network."""
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


def train_d3qn(
    vec: VectorEnvProtocol,
    settings: D3QNSettings | None = None,
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
    """Train by D3QN; the arguments are those of `kilowait.agents.algorithms.ppo.train_ppo`."""
    settings = settings or D3QNSettings()
    size = settings.train_freq * vec.num_envs
    updates = max(1, settings.total_timesteps // size)
    with use_device(device, threads) as where:
        agent = q_network(
            vec.spec_of_observation, settings.network, seed=seed, noisy=settings.noisy, atoms=settings.n_atoms,
            span=settings.v_range, **asdict(settings.sizes),
        ).to(where)  # fmt: skip
        target = deepcopy(agent).requires_grad_(False)
        optimizer = torch.optim.Adam(
            agent.parameters(), settings.learning_rate, eps=1e-5, fused=where.type == "cuda"
        )
        draws = TorchRng(seed, "agents.d3qn", where)
        scale = ReturnScale(vec.num_envs, settings.gamma)
        episodes = Episodes(vec.num_envs)
        replay = ReplayBuffer(
            settings.buffer_size, vec.num_envs, DeviceTransfer(where),
            n_steps=settings.n_steps, gamma=settings.gamma, per_alpha=settings.per_alpha,
        )  # fmt: skip
        keeper = TrainingState(
            "d3qn", vec, settings, seed=seed, updates=updates, network=agent,
            parts={"target": target, "optimizer": optimizer, "draws": draws, "scale": scale,
                   "episodes": episodes, "replay": replay},
            folder=checkpoint_dir, validate=validate, progress=progress, warm=warm,
        )  # fmt: skip
        observation = keeper.begin(resume)
        if resume is None:
            target.load_state_dict(agent.state_dict())  # a warm start has moved the agent
        while not keeper.done:
            done_share = keeper.number / updates
            epsilon = _epsilon(settings, done_share)
            correction = settings.per_beta + (1 - settings.per_beta) * done_share

            for _ in range(settings.train_freq):
                seen = replay.place(observation)
                with torch.no_grad(), lower_precision(where, settings.precision):
                    actions = _explored(agent, seen, epsilon, draws.generator)
                chosen: npt.NDArray[np.int64] = actions.cpu().numpy()
                observation, rewards, terminated, truncated, infos = vec.step(chosen)
                done = terminated | truncated
                episodes.step(infos, done)
                scale.step(rewards, done)
                replay.commit(actions, rewards, terminated, truncated)

            losses = {}
            if keeper.steps + size > settings.learning_starts and len(replay):
                divisor = scale.divisor if settings.normalize_rewards else 1.0
                learned = keeper.number * settings.gradient_steps
                figures = []
                for step in range(settings.gradient_steps):
                    drawn = replay.draw(settings.batch_size, draws.generator, per_beta=correction)
                    agent.draw_noise(draws.generator)
                    target.draw_noise(draws.generator)
                    with lower_precision(where, settings.precision):
                        errors, level = _errors(agent, target, drawn, divisor)
                    loss = (drawn.weights * errors).mean()
                    optimizer.zero_grad()
                    torch.autograd.backward(loss)
                    torch.nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
                    optimizer.step()
                    replay.update_priorities(drawn.places, errors)
                    figures.append(torch.stack([loss, level]).detach())
                    if (learned + step + 1) % settings.target_update_interval == 0:
                        target.load_state_dict(agent.state_dict())
                loss_, level_ = torch.stack(figures).mean(0).tolist()
                losses = {"q": loss_, "mean_q": level_, "epsilon": epsilon}
            keeper.end_update(observation, steps=size, episodes=episodes.means(), losses=losses)
        return keeper.trained()


def _epsilon(settings: D3QNSettings, done_share: float) -> float:
    """Share of random actions at a point of training."""
    if settings.noisy:
        return 0.0
    fallen = min(1.0, done_share / settings.exploration_fraction) if settings.exploration_fraction else 1.0
    return 1.0 + fallen * (settings.exploration_final_eps - 1.0)


def _explored(agent: DuelingQ, seen: dict[str, Tensor], epsilon: float, random: torch.Generator) -> Tensor:
    """(B,) the best actions, and random allowed ones in a share of the environments."""
    agent.draw_noise(random)
    best = agent(seen).argmax(-1)
    if epsilon == 0.0:
        return best
    allowed = torch.zeros_like(seen["mask"], dtype=torch.float32).masked_fill(seen["mask"] == 0, -torch.inf)
    anything = MaskedCategorical(allowed).sample(random)
    strays = torch.rand(len(best), generator=random, device=best.device) < epsilon
    return torch.where(strays, anything, best)


def _errors(agent: DuelingQ, target: DuelingQ, drawn: ReplayBatch, divisor: float) -> tuple[Tensor, Tensor]:
    """(B,) how wrong each value was, and the mean of the values. The agent chooses, the target judges."""
    rewards = drawn.rewards / divisor
    row = torch.arange(len(rewards), device=rewards.device)
    with torch.no_grad():
        best = agent(drawn.following).argmax(-1)
    if agent.atoms == 1:
        with torch.no_grad():
            # An episode that ended counts its successor 0 times, but 0 x -inf would be NaN.
            after = target(drawn.following)[row, best].masked_fill(drawn.discounts == 0, 0.0)
            hoped = rewards + drawn.discounts * after
        values = agent(drawn.observation)[row, drawn.actions]
        return torch.nn.functional.smooth_l1_loss(values, hoped, reduction="none"), values.mean()
    with torch.no_grad():
        after = target.log_distribution(drawn.following)[row, best].exp()
        hoped = projected(agent.support, rewards, drawn.discounts, after)
    found = agent.log_distribution(drawn.observation)[row, drawn.actions]
    errors = torch.nn.functional.kl_div(found, hoped, reduction="none").sum(-1)
    return errors, (found.exp() @ agent.support).mean()
