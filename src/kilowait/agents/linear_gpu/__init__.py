"""The linear GPU agent: weights that order jobs and GPU types on node-level clusters, and its training by CMA-ES."""

from kilowait.agents.linear_gpu.agent import (
    FEATURES,
    RULES,
    TYPE_FEATURES,
    LinearGpuAgent,
    rule_agent,
)

__all__ = ["FEATURES", "RULES", "TYPE_FEATURES", "LinearGpuAgent", "rule_agent"]
