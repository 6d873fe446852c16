"""Benchmark of PPO's steps a second with nearly free environments: ``python -m tests.agents.support.ppo_speed``.

Needs torch and numpy alone. The environments hand out prepared observations of random queues.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kilowait.agents.networks.spec import LoadedSpec, NetworkSizes
from kilowait.agents.rl.learner import Update
from kilowait.agents.rl.ppo import PPOSettings, train_ppo


class PreparedVectorEnv:
    """A vector environment that returns prepared observations."""

    def __init__(self, num_envs: int, slots: int, features: int, summary: int, filled: float, graph: bool) -> None:
        self.num_envs = num_envs
        names = ("wait_h", *(f"f{one}" for one in range(1, features)))
        self.spec_of_observation = LoadedSpec(
            names, tuple(f"s{one}" for one in range(summary)), slots, choices=1, extra=1, graph=graph
        )
        random = np.random.default_rng(0)
        self.prepared: list[dict[str, np.ndarray]] = []
        for _ in range(2):
            occupied = np.arange(slots) < random.binomial(slots, filled, (num_envs, 1))
            observation = {
                "jobs": random.random((num_envs, slots, features), np.float32) * occupied[..., None],
                "summary": random.random((num_envs, summary), np.float32),
                "mask": np.concatenate([occupied, np.ones((num_envs, 1), bool)], 1).astype(np.int8),
            }
            if graph:
                observation["edges"] = random.integers(0, 8, (num_envs, slots, slots), np.uint8)
            self.prepared.append({name: np.ascontiguousarray(rows) for name, rows in observation.items()})
        self.reward = random.random(num_envs)
        self.turn = 0

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return self.prepared[0], {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.turn += 1
        done = (np.arange(self.num_envs) + self.turn) % 128 == 0
        return self.prepared[self.turn % 2], self.reward, done, np.zeros_like(done), {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--envs", type=int, default=8192)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--filled", type=float, default=0.5)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rollout", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--network", default="kernel")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    vec = PreparedVectorEnv(options.envs, options.slots, options.features, 32, options.filled, options.network == "gat")
    settings = PPOSettings(
        n_steps=options.rollout, n_epochs=options.epochs, n_minibatches=options.minibatches, network=options.network,
        precision=options.precision, sizes=NetworkSizes(width=options.width),
    )  # fmt: skip
    settings = replace(settings, total_timesteps=options.updates * options.rollout * options.envs)
    rates: list[float] = []

    def record_rate(update: Update) -> None:
        rates.append(update.steps_per_s)

    train_ppo(vec, settings, seed=0, device=options.device, threads=options.threads, progress=record_rate)
    memory = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else 0.0
    print(f"{vars(options)}\n  {np.median(rates[1:]):,.0f} steps/s, {memory:.1f} GiB on the device", flush=True)


if __name__ == "__main__":
    main()
