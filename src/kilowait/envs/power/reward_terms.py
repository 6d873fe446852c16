"""Reward terms of `kilowait/Energy-v0`: those of `envs.reward_terms`, and energy, CO2 and cost.

A job's power above its idle nodes is charged when it starts, for its whole run time. The power of idle nodes, and the
difference to it of nodes that sleep, shut down or boot, is charged as time passes.
"""

from __future__ import annotations

__all__ = ["TERMS", "DEFAULT_WEIGHTS"]

TERMS: dict[str, str] = {
    "slowdown": "mean of turnaround over run time at full speed (at least 10 s), at least 1, less 1",
    "wait": "mean wait, hours",
    "sla": "share of the jobs that wait longer than the bound sla_s",
    "fairness": "mean over users of the mean slowdown of their jobs, less 1",
    "turnaround": "mean time from arrival to end, hours",
    "energy": "IT energy from the first arrival to the last end, kWh / jobs",
    "co2": "CO2e of the facility's energy over that time, kg / jobs; 0 without a carbon intensity",
    "cost": "cost of the facility's energy over that time / jobs; 0 without a price",
}
"""Reward terms, in the order of the columns of info["terms"]. All are costs: smaller is better.

The slowdown equals that of `kilowait.metrics` where all jobs run at full speed. The latter divides by the run time at
the job's DVFS state, which would reward slow states."""

DEFAULT_WEIGHTS = {"turnaround": 1.0, "energy": 1.0}
"""Default weights."""
