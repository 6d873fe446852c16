"""Who goes next, by learning: agents that are trained on the past of a log."""

from kilowait.agents.linear import FEATURES, LinearAgent, features, load_agent
from kilowait.agents.search import EvolutionStrategy, minimise
from kilowait.agents.training import Generation, mean_bsld, train

__all__ = [
    "FEATURES",
    "EvolutionStrategy",
    "Generation",
    "LinearAgent",
    "features",
    "load_agent",
    "mean_bsld",
    "minimise",
    "train",
]
