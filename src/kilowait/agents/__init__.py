"""Who goes next, by learning: agents that are trained on the past of a log and judged on its future."""

from kilowait.agents.judging import Verdict, judge
from kilowait.agents.linear import FEATURES, LinearAgent, features, load_agent
from kilowait.agents.search import EvolutionStrategy, minimise
from kilowait.agents.training import Generation, mean_bsld, train
from kilowait.agents.windows import Split, split, spread_windows

__all__ = [
    "FEATURES",
    "EvolutionStrategy",
    "Generation",
    "LinearAgent",
    "Split",
    "Verdict",
    "features",
    "judge",
    "load_agent",
    "mean_bsld",
    "minimise",
    "split",
    "spread_windows",
    "train",
]
