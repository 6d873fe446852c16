"""Reinforcement-learning algorithms (A2C, D3QN, PPO, discrete SAC): one file each, with its complete training loop.

``train_NAME(vec, settings, seed=…)`` trains on the environments of `vec` and returns a `TrainingResult`. On a CPU the
same seed gives bit-identical weights, also when training stops after any update and is resumed from its folder.
"""

import kilowait.agents.rl  # noqa: F401 - first: its error names the extra to install where torch is missing
from kilowait.agents.algorithms.a2c import A2CSettings, train_a2c
from kilowait.agents.algorithms.d3qn import D3QNSettings, train_d3qn
from kilowait.agents.algorithms.ppo import PPOSettings, train_ppo
from kilowait.agents.algorithms.sac import SACSettings, train_sac

__all__ = [
    "A2CSettings",
    "D3QNSettings",
    "PPOSettings",
    "SACSettings",
    "train_a2c",
    "train_d3qn",
    "train_ppo",
    "train_sac",
]
