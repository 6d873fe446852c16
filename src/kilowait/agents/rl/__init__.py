"""Reinforcement learning: one file for each algorithm (A2C, D3QN, PPO, discrete SAC), and what they share.

``train_NAME(vec, settings, seed=…)`` trains on the environments of `vec` and returns a `TrainingResult`. On a CPU the
same seed gives bit-identical weights, also when training stops after any update and is resumed from its folder.
"""

import kilowait.agents.networks  # noqa: F401 (first, as it names the extra where torch is missing)
from kilowait.agents.rl.a2c import A2CSettings, train_a2c
from kilowait.agents.rl.d3qn import D3QNSettings, train_d3qn
from kilowait.agents.rl.learner import TrainingResult, Update
from kilowait.agents.rl.ppo import PPOSettings, train_ppo
from kilowait.agents.rl.sac import SACSettings, train_sac
from kilowait.errors import TrainingError

__all__ = [
    "A2CSettings",
    "D3QNSettings",
    "PPOSettings",
    "SACSettings",
    "TrainingError",
    "TrainingResult",
    "Update",
    "train_a2c",
    "train_d3qn",
    "train_ppo",
    "train_sac",
]
