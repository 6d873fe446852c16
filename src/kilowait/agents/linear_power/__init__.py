"""Weights that steer power: the agent, the order of jobs it begins with, the windows and the search."""

from kilowait.agents.linear_power.agent import (
    WEIGHTS,
    LinearPowerAgent,
    from_controls,
    steered_agent,
)

__all__ = ["WEIGHTS", "LinearPowerAgent", "from_controls", "steered_agent"]
