"""The linear GPU agent: weights that order jobs and GPU types on node-level clusters, and its training by CMA-ES."""

from kilowait.agents.linear_gpu.agent import FEATURES, POLICY_WEIGHTS, TYPE_FEATURES, LinearGpuAgent, policy_agent

__all__ = ["FEATURES", "POLICY_WEIGHTS", "TYPE_FEATURES", "LinearGpuAgent", "policy_agent"]
