"""Weights for placed nodes: the agent that orders jobs and GPU types, and its search."""

from kilowait.agents.linear_gpu.agent import (
    FEATURES,
    RULES,
    TYPE_FEATURES,
    LinearGpuAgent,
    rule_agent,
)

__all__ = ["FEATURES", "RULES", "TYPE_FEATURES", "LinearGpuAgent", "rule_agent"]
