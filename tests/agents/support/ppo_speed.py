"""Benchmark of PPO's steps a second with nearly free environments: ``python -m tests.agents.support.ppo_speed``.

Needs torch and numpy alone. The environments hand out prepared observations of random queues.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kilowait.agents.algorithms.ppo import PPOSettings, train_ppo
from kilowait.agents.networks.spec import LoadedSpec, Sizes
from kilowait.agents.rl.results import Update


class PreparedVectorEnv:
    """A vector environment that returns prepared observations."""

    def __init__(
        self, num_envs: int, slots: int, features: int, summary: int, filled: float, graph: bool
    ) -> None:
        self.num_envs = num_envs
        names = ("wait_h", *(f"f{one}" for one in range(1, features)))
        self.spec_of_observation = LoadedSpec(
            names, tuple(f"s{one}" for one in range(summary)), slots, choices=1, extra=1, graph=graph
        )
        random = np.random.default_rng(0)
        self.prepared: list[dict[str, np.ndarray]] = []
        for _ in range(2):
            there = np.arange(slots) < random.binomial(slots, filled, (num_envs, 1))
            seen = {
                "jobs": random.random((num_envs, slots, features), np.float32) * there[..., None],
                "summary": random.random((num_envs, summary), np.float32),
                "mask": np.concatenate([there, np.ones((num_envs, 1), bool)], 1).astype(np.int8),
            }
            if graph:
                seen["edges"] = random.integers(0, 8, (num_envs, slots, slots), np.uint8)
            self.prepared.append({name: np.ascontiguousarray(rows) for name, rows in seen.items()})
        self.reward = random.random(num_envs)
        self.turn = 0

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return self.prepared[0], {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.turn += 1
        done = (np.arange(self.num_envs) + self.turn) % 128 == 0
        return self.prepared[self.turn % 2], self.reward, done, np.zeros_like(done), {}


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ask.add_argument("--envs", type=int, default=8192)
    ask.add_argument("--slots", type=int, default=64)
    ask.add_argument("--features", type=int, default=16)
    ask.add_argument("--filled", type=float, default=0.5)
    ask.add_argument("--width", type=int, default=64)
    ask.add_argument("--rollout", type=int, default=32)
    ask.add_argument("--epochs", type=int, default=2)
    ask.add_argument("--minibatches", type=int, default=4)
    ask.add_argument("--network", default="kernel")
    ask.add_argument("--precision", default="float32")
    ask.add_argument("--updates", type=int, default=6)
    ask.add_argument("--threads", type=int, default=None)
    given = ask.parse_args()
    vec = PreparedVectorEnv(given.envs, given.slots, given.features, 32, given.filled, given.network == "gat")
    settings = PPOSettings(
        n_steps=given.rollout, n_epochs=given.epochs, n_minibatches=given.minibatches, network=given.network,
        precision=given.precision, sizes=Sizes(width=given.width),
    )  # fmt: skip
    settings = replace(settings, total_timesteps=given.updates * given.rollout * given.envs)
    rates: list[float] = []

    def hear(update: Update) -> None:
        rates.append(update.steps_per_s)

    train_ppo(vec, settings, seed=0, device=given.device, threads=given.threads, progress=hear)
    memory = torch.cuda.max_memory_allocated() / 2**30 if given.device == "cuda" else 0.0
    print(f"{vars(given)}\n  {np.median(rates[1:]):,.0f} steps/s, {memory:.1f} GiB on the device", flush=True)


if __name__ == "__main__":
    main()
