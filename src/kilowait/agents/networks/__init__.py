"""Neural networks that score every action of a scheduling environment: kernel, attention and graph attention.

A network is a *feature extractor*, which turns an observation into one vector a job and one for the summary, and a
*head*, which turns these into logits and a value (`ActorCritic`) or into Q values (`DuelingQ`). Every extractor goes
with either head.

Preference weights (such as energy against waiting time) need no special layers: a multi-objective environment appends
them to ``summary``, which every extractor joins to every job.
"""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    from kilowait.errors import MissingExtraError

    raise MissingExtraError("torch", "learn") from None

from kilowait.agents.networks.factory import FEATURE_EXTRACTORS, load_network, network, q_network, save_network
from kilowait.agents.networks.heads import ActorCritic, DuelingQ, greedy_actions
from kilowait.agents.networks.spec import NetworkSizes, ObservationSpecProtocol

__all__ = [
    "FEATURE_EXTRACTORS",
    "ActorCritic",
    "DuelingQ",
    "ObservationSpecProtocol",
    "NetworkSizes",
    "greedy_actions",
    "load_network",
    "network",
    "q_network",
    "save_network",
]
