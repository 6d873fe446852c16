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
    from kilowait.agents.learning import (
        Trained,
        TrainingError,
        Update,
        greedy_actions,
        load_network,
        save_network,
    )
    from kilowait.agents.linear.agent import LinearAgent
    from kilowait.agents.linear.scoring import FEATURES, features
    from kilowait.agents.linear.training import train
    from kilowait.agents.loading import load_agent
    from kilowait.agents.mixture import Mixture
    from kilowait.agents.networks import KINDS, Sizes, network, q_network
    from kilowait.agents.searching.course import Generation, Keeping
    from kilowait.agents.searching.objectives import mean_bsld
    from kilowait.agents.searching.search import EvolutionStrategy, minimise

_HOME = {
    "FEATURES": "linear.scoring",
    "LinearAgent": "linear.agent",
    "features": "linear.scoring",
    "load_agent": "loading",
    "Mixture": "mixture",
    "EvolutionStrategy": "searching.search",
    "minimise": "searching.search",
    "Generation": "searching.course",
    "Keeping": "searching.course",
    "mean_bsld": "searching.objectives",
    "train": "linear.training",
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
    "Keeping",
    "LinearAgent",
    "Mixture",
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
