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

from kilowait.agents.networks.factory import KINDS, network, q_network
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.spec import ObservationSpecProtocol, Sizes

__all__ = ["KINDS", "ActorCritic", "DuelingQ", "ObservationSpecProtocol", "Sizes", "network", "q_network"]
