"""Algorithms that learn by playing, one a page, each with its own loop: read one and you have read all of it.

``train_NAME(vec, settings, seed=…)`` plays the environments of `vec` and gives a `Trained`. On a CPU the same seed
gives the same weights to the bit, also when it was stopped after any update and resumed from its folder.
"""

import kilowait.agents.rl  # noqa: F401 - first: says what to install where torch is missing
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
