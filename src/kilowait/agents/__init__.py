"""Learned schedulers: linear agents found by evolution strategies, and neural networks trained by RL.

Names are imported when they are first used: linear agents do not need torch, networks do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilowait.agents.algorithms import (
        A2CSettings,
        D3QNSettings,
        PPOSettings,
        SACSettings,
        train_a2c,
        train_d3qn,
        train_ppo,
        train_sac,
    )
    from kilowait.agents.evolution.checkpoint import CheckpointDir, Generation
    from kilowait.agents.evolution.cma_es import EvolutionStrategy, minimize
    from kilowait.agents.evolution.search import mean_bsld
    from kilowait.agents.io import load_agent
    from kilowait.agents.linear_batch.agent import LinearAgent
    from kilowait.agents.linear_batch.score import FEATURES, features
    from kilowait.agents.linear_batch.train import train_linear_batch
    from kilowait.agents.networks import FEATURE_EXTRACTORS, NetworkSizes, network, q_network
    from kilowait.agents.rl import TrainingError, TrainingResult, Update, greedy_actions, load_network, save_network
    from kilowait.agents.rl.hyperparameter_checks import steps_per_update
    from kilowait.agents.training_data import SyntheticMix

_HOME = {
    "FEATURES": "linear_batch.score",
    "LinearAgent": "linear_batch.agent",
    "features": "linear_batch.score",
    "load_agent": "io",
    "SyntheticMix": "training_data",
    "EvolutionStrategy": "evolution.cma_es",
    "minimize": "evolution.cma_es",
    "Generation": "evolution.checkpoint",
    "CheckpointDir": "evolution.checkpoint",
    "mean_bsld": "evolution.search",
    "train_linear_batch": "linear_batch.train",
    "FEATURE_EXTRACTORS": "networks",
    "NetworkSizes": "networks",
    "network": "networks",
    "q_network": "networks",
    "TrainingResult": "rl",
    "TrainingError": "rl",
    "Update": "rl",
    "greedy_actions": "rl",
    "load_network": "rl",
    "save_network": "rl",
    "steps_per_update": "rl.hyperparameter_checks",
    "A2CSettings": "algorithms",
    "D3QNSettings": "algorithms",
    "PPOSettings": "algorithms",
    "SACSettings": "algorithms",
    "train_a2c": "algorithms",
    "train_d3qn": "algorithms",
    "train_ppo": "algorithms",
    "train_sac": "algorithms",
}

__all__ = [
    "A2CSettings",
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
    "train_linear_batch",
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
