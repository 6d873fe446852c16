"""Networks that look at a queue and score every action: by themselves, by attention, or along the jobs' graph.

A network is a *body*, which turns what is seen into one vector a job and one for the whole, and a *head*, which turns
these into logits and a value (`ActorCritic`) or into values of actions (`DuelingQ`). Every body goes with either head.

Weights of a preference (how much a kilowatt-hour counts beside an hour of waiting) need nothing of their own: an
environment that is told to vary them appends them to ``summary``, which every body joins to every job.
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
