"""Learned schedulers: linear agents found by evolution strategies, and neural networks trained by RL.

Names are imported when they are first used: linear agents do not need torch, networks do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilowait.agents.evolution.batch import BatchObjective, BatchSearchSettings
    from kilowait.agents.evolution.cma_es import EvolutionStrategy, minimize
    from kilowait.agents.evolution.search import CheckpointDir, Generation, mean_bsld, train_linear_agent
    from kilowait.agents.io import load_agent
    from kilowait.agents.linear_batch import LinearAgent
    from kilowait.agents.linear_batch_score import FEATURES, features
    from kilowait.agents.networks import (
        FEATURE_EXTRACTORS,
        NetworkSizes,
        greedy_actions,
        load_network,
        network,
        q_network,
        save_network,
    )
    from kilowait.agents.rl import (
        A2CSettings,
        D3QNSettings,
        PPOSettings,
        SACSettings,
        TrainingError,
        TrainingResult,
        Update,
        train_a2c,
        train_d3qn,
        train_ppo,
        train_sac,
    )
    from kilowait.agents.rl.learner import steps_per_update
    from kilowait.agents.training_data import SyntheticMix

_MODULES = {
    "evolution.batch": "BatchObjective BatchSearchSettings",
    "evolution.cma_es": "EvolutionStrategy minimize",
    "evolution.search": "CheckpointDir Generation mean_bsld train_linear_agent",
    "io": "load_agent",
    "linear_batch": "LinearAgent",
    "linear_batch_score": "FEATURES features",
    "networks": "FEATURE_EXTRACTORS NetworkSizes greedy_actions load_network network q_network save_network",
    "rl": "A2CSettings D3QNSettings PPOSettings SACSettings TrainingError TrainingResult Update "
    "train_a2c train_d3qn train_ppo train_sac",
    "rl.learner": "steps_per_update",
    "training_data": "SyntheticMix",
}
"""Public names by module."""
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "A2CSettings",
    "BatchObjective",
    "BatchSearchSettings",
    "D3QNSettings",
    "EvolutionStrategy",
    "FEATURES",
    "Generation",
    "FEATURE_EXTRACTORS",
    "CheckpointDir",
    "LinearAgent",
    "SyntheticMix",
    "PPOSettings",
    "SACSettings",
    "NetworkSizes",
    "TrainingResult",
    "TrainingError",
    "Update",
    "features",
    "greedy_actions",
    "load_agent",
    "load_network",
    "mean_bsld",
    "minimize",
    "network",
    "q_network",
    "save_network",
    "steps_per_update",
    "train_linear_agent",
    "train_a2c",
    "train_d3qn",
    "train_ppo",
    "train_sac",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kilowait.agents' has no attribute {name!r}")
    value = getattr(import_module(f"kilowait.agents.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
