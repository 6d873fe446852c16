"""The score that remembers: its agent, what it looks at, what it keeps of ended jobs, its search."""

from kilowait.agents.linear_batch.agent import (
    FEATURES,
    TRUST,
    LinearAgent,
    features,
    load_agent,
    saf_weights,
    usual_weights,
)

__all__ = ["FEATURES", "TRUST", "LinearAgent", "features", "load_agent", "saf_weights", "usual_weights"]
