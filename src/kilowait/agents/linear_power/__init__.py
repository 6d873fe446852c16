"""The linear power agent: weights that order jobs and set DVFS states, node sleep and load shifting; its training."""

from kilowait.agents.linear_power.agent import WEIGHTS, LinearPowerAgent, from_controls, power_agent_from_dict

__all__ = ["WEIGHTS", "LinearPowerAgent", "from_controls", "power_agent_from_dict"]
