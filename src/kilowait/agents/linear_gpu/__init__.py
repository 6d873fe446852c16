"""The linear GPU agent: weights that order jobs and GPU types on node-level clusters, and its training by CMA-ES."""

from kilowait.agents.linear_gpu.agent import (
    FEATURES,
    GPU_TYPE_FEATURES,
    POLICY_WEIGHTS,
    LinearGpuAgent,
    agent_equal_to_policy,
)

__all__ = ["FEATURES", "POLICY_WEIGHTS", "GPU_TYPE_FEATURES", "LinearGpuAgent", "agent_equal_to_policy"]
