"""Who goes next, by learning: agents that are trained on the past of a log.

Names are loaded when they are first used: weights by direct search need no torch, the networks do.
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
    from kilowait.agents.course import Generation
    from kilowait.agents.learning import (
        Trained,
        TrainingError,
        Update,
        greedy_actions,
        load_network,
        save_network,
    )
    from kilowait.agents.linear import LinearAgent
    from kilowait.agents.loading import load_agent
    from kilowait.agents.networks import KINDS, Sizes, network, q_network
    from kilowait.agents.objectives import mean_bsld
    from kilowait.agents.scoring import FEATURES, features
    from kilowait.agents.search import EvolutionStrategy, minimise
    from kilowait.agents.training import train

_HOME = {
    "FEATURES": "scoring",
    "LinearAgent": "linear",
    "features": "scoring",
    "load_agent": "loading",
    "EvolutionStrategy": "search",
    "minimise": "search",
    "Generation": "course",
    "mean_bsld": "objectives",
    "train": "training",
    "KINDS": "networks",
    "Sizes": "networks",
    "network": "networks",
    "q_network": "networks",
    "Trained": "learning",
    "TrainingError": "learning",
    "Update": "learning",
    "greedy_actions": "learning",
    "load_network": "learning",
    "save_network": "learning",
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
    "KINDS",
    "LinearAgent",
    "PPOSettings",
    "SACSettings",
    "Sizes",
    "Trained",
    "TrainingError",
    "Update",
    "features",
    "greedy_actions",
    "load_agent",
    "load_network",
    "mean_bsld",
    "minimise",
    "network",
    "q_network",
    "save_network",
    "train",
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
