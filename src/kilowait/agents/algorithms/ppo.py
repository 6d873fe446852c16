"""Proximal policy optimisation: play a while, then learn from it, but move the policy only so far.

Schulman, Wolski, Dhariwal, Radford and Klimov, "Proximal policy optimization algorithms" (2017), with masked
actions, generalised advantages, and the details that Huang et al. found to matter ("The 37 implementation details of
PPO", 2022), except clipping of the value loss, which did not help there.

With `cost` it is constrained: the reward pays a price for a cost that the environment reports, and the price rises
until the mean cost of an episode is below the limit (`learning.dual`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from os import PathLike

import torch

from kilowait.agents.networks.factory import network
from kilowait.agents.networks.spec import Sizes
from kilowait.agents.rl.device import (
    DeviceTransfer,
    TorchRng,
    lower_precision,
    use_device,
)
from kilowait.agents.rl.distributions import MaskedCategorical
from kilowait.agents.rl.env_protocol import VectorEnvProtocol
from kilowait.agents.rl.episode_stats import Episodes, ReturnScale, step_cost
from kilowait.agents.rl.gae import generalised_advantages
from kilowait.agents.rl.hyperparameter_checks import check_settings
from kilowait.agents.rl.lagrangian import LagrangeMultiplier
from kilowait.agents.rl.results import TrainingResult
from kilowait.agents.rl.rollout_buffer import RolloutBuffer
from kilowait.agents.rl.training_state import (
    Progress,
    TrainingState,
    Validate,
    WarmStart,
)
from kilowait.errors import InputError

__all__ = ["PPOSettings", "train_ppo"]


@dataclass(frozen=True)
class PPOSettings:
    """How PPO learns. An update plays `rollout` steps of every environment and learns from them `epochs` times."""

    total_timesteps: int = 1_000_000
    """Of all environments together; whole updates, at least one."""
    n_steps: int = 64
    """Steps of each environment between updates."""
    n_epochs: int = 3
    """Passes over a rollout."""
    n_minibatches: int = 8
    """Parts a rollout is cut into, anew in each pass."""
    learning_rate: float = 5e-4
    """Of Adam, at the beginning."""
    anneal_lr: bool = True
    """Whether the learning rate falls in a straight line to nearly 0 at the end."""
    gamma: float = 0.999
    """Of the future, a step. Episodes are long and end."""
    gae_lambda: float = 0.95
    """Lambda of the generalised advantages."""
    clip_range: float = 0.2
    """How far the probability of an action may move in an update, as a ratio."""
    ent_coef: float = 0.003
    """Weight of the policy's entropy, which keeps it from settling too soon."""
    vf_coef: float = 0.5
    """Weight of the value's squared error."""
    max_grad_norm: float = 0.5
    """Norm that gradients are cut to."""
    target_kl: float | None = None
    """Divergence, nats, beyond which an update's remaining passes are left out; None never looks."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the deviation of returns so far."""
    cost: str | None = None
    """Name in infos of a cost a step; None learns without a constraint."""
    cost_limit: float = 0.0
    """Mean cost an episode that is allowed."""
    cost_rate: float = 0.05
    """How fast the price of the cost follows."""
    network: str = "kernel"
    """A name of `kilowait.agents.networks.KINDS`."""
    sizes: Sizes = field(default_factory=Sizes)
    """Of the network."""
    precision: str = "float32"
    """Or "bf16": layers in 16 bits, weights and losses in 32."""
    validate_every: int = 10
    """Updates between validations."""
    patience: int | None = None
    """Validations without a new best after which training stops; None goes on."""
    checkpoint_every: int = 10
    """Updates between checkpoints."""

    def __post_init__(self) -> None:
        check_settings(self)


def train_ppo(
    vec: VectorEnvProtocol,
    settings: PPOSettings | None = None,
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
    """Train by PPO.

    Args:
        vec: environments that are played side by side.
        settings: see `PPOSettings`.
        seed: of first weights, environments and choices.
        device: "cpu" or "cuda"; rollouts stay there.
        threads: of the CPU; None leaves torch as it is. 1 is best beside other work.
        progress: hears of every update.
        resume: checkpoint, or its folder, to go on from.
        checkpoint_dir: where checkpoints and the agent are kept.
        validate: judges a network, smaller is better; the best is given back.
        warm: what is done with the fresh network first, such as imitation.
    """
    settings = settings or PPOSettings()
    size = settings.n_steps * vec.num_envs
    updates = max(1, settings.total_timesteps // size)
    if size < settings.n_minibatches:
        raise InputError(
            f"a rollout of {size} steps cannot be cut into {settings.n_minibatches} minibatches; take fewer"
        )
    with use_device(device, threads) as where:
        agent = network(vec.spec_of_observation, settings.network, seed=seed, **asdict(settings.sizes)).to(
            where
        )
        optimizer = torch.optim.Adam(
            agent.parameters(), settings.learning_rate, eps=1e-5, fused=where.type == "cuda"
        )
        draws = TorchRng(seed, "agents.ppo", where)
        scale = ReturnScale(vec.num_envs, settings.gamma)
        episodes = Episodes(vec.num_envs, settings.cost)
        dual = LagrangeMultiplier(settings.cost_limit, settings.cost_rate)
        rollout = RolloutBuffer(settings.n_steps, vec.num_envs, DeviceTransfer(where))
        keeper = TrainingState(
            "ppo", vec, settings, seed=seed, updates=updates, network=agent,
            parts={"optimizer": optimizer, "draws": draws, "scale": scale, "episodes": episodes, "dual": dual},
            folder=checkpoint_dir, validate=validate, progress=progress, warm=warm,
        )  # fmt: skip
        observation = keeper.begin(resume)
        while not keeper.done:
            if settings.anneal_lr:
                optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - keeper.number / updates)

            with torch.no_grad(), lower_precision(where, settings.precision):
                for step in range(settings.n_steps):
                    actions = rollout.add_observation(step, observation, agent, draws.generator)
                    observation, rewards, terminated, truncated, infos = vec.step(actions)
                    done = terminated | truncated
                    episodes.step(infos, done)
                    if settings.cost is not None:
                        rewards = dual.priced(rewards, step_cost(infos, settings.cost))
                    scale.step(rewards, done)
                    rollout.add_transition(step, rewards, terminated, truncated, infos, agent)
                played = rollout.close(
                    observation, agent, scale.divisor if settings.normalize_rewards else 1.0
                )
            advantages = generalised_advantages(
                played["rewards"], rollout.values, rollout.next_values, played["terminated"], played["truncated"],
                gamma=settings.gamma, gae_lambda=settings.gae_lambda,
            )  # fmt: skip
            returns = (advantages + rollout.values).flatten()
            advantages = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).flatten()
            seen, taken, before = rollout.flat(), rollout.actions.flatten(), rollout.log_probs.flatten()

            figures = []  # tensors on the device; looked at once an update, as looking waits for the device
            for _ in range(settings.n_epochs):
                order = torch.randperm(size, generator=draws.generator, device=where)
                for part in order.tensor_split(settings.n_minibatches):
                    with lower_precision(where, settings.precision):
                        logits, values = agent({name: kept[part] for name, kept in seen.items()})
                    choice = MaskedCategorical(logits)
                    moved = choice.log_prob(taken[part]) - before[part]
                    ratio = moved.exp()
                    gain = advantages[part]
                    clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
                    policy_loss = -torch.minimum(ratio * gain, clipped * gain).mean()
                    value_loss = 0.5 * (values - returns[part]).square().mean()
                    entropy = choice.entropy().mean()
                    loss = policy_loss + settings.vf_coef * value_loss - settings.ent_coef * entropy
                    optimizer.zero_grad()
                    torch.autograd.backward(loss)
                    torch.nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
                    optimizer.step()
                    kl = (ratio - 1 - moved).mean()
                    figures.append(torch.stack([policy_loss, value_loss, entropy, kl]).detach())
                if settings.target_kl is not None and figures[-1][3].item() > settings.target_kl:
                    break

            policy_loss_, value_loss_, entropy_, kl_ = torch.stack(figures).mean(0).tolist()
            ended = episodes.means()
            losses = {"policy": policy_loss_, "value": value_loss_}
            if settings.cost is not None:
                dual.move(ended["cost"])
                losses["price"] = dual.multiplier
                if not math.isnan(ended["cost"]):
                    losses["cost"] = ended["cost"]
            keeper.end_update(
                observation, steps=size, episodes=ended, losses=losses, entropy=entropy_, kl=kl_
            )
        return keeper.trained()
