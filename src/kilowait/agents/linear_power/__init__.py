"""The linear power agent: weights that order jobs and set DVFS states, node sleep and load shifting; its training."""

from kilowait.agents.linear_power.agent import (
    WEIGHT_MEANINGS,
    LinearPowerAgent,
    agent_from_controls,
    power_agent_from_dict,
)

__all__ = ["WEIGHT_MEANINGS", "LinearPowerAgent", "agent_from_controls", "power_agent_from_dict"]
