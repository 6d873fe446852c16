"""The linear batch agent: weighted features of a job and of its user's ended jobs, and its training by CMA-ES."""

from kilowait.agents.linear_batch.agent import (
    FEATURES,
    USER_HISTORY_WEIGHT,
    LinearAgent,
    default_weights,
    features,
    load_linear_agent,
    saf_weights,
)

__all__ = [
    "FEATURES",
    "USER_HISTORY_WEIGHT",
    "LinearAgent",
    "features",
    "load_linear_agent",
    "saf_weights",
    "default_weights",
]
