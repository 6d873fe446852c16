"""Reward terms with power: those of `envs.reward_terms`, and energy, CO2 and cost.

Of a job that starts, what it draws above its idle nodes is paid at once, for all of its run. What all nodes would draw
idle, and what sleeping, falling and waking ones draw more or less than that, is paid as time passes.
"""

from __future__ import annotations

__all__ = ["TERMS", "USUAL"]

TERMS: dict[str, str] = {
    "slowdown": "mean of turnaround over run time at full speed (at least 10 s), at least 1, less 1",
    "wait": "mean wait, hours",
    "sla": "share of the jobs that wait longer than the bound sla_s",
    "fairness": "mean over users of the mean slowdown of their jobs, less 1",
    "turnaround": "mean time from arrival to end, hours",
    "energy": "kWh of the IT from the first arrival to the last end / jobs",
    "co2": "kg of CO2e of the building's energy over that time / jobs; 0 without a carbon intensity",
    "cost": "price of the building's energy over that time / jobs; 0 without a price",
}
"""What the return is made of, in the order of the columns of info["terms"]. All are costs: smaller is better.

The slowdown is that of `kilowait.metrics` where all jobs run at full speed. That one divides by the time a job took at
its level, and would pay for slow levels."""

USUAL = {"turnaround": 1.0, "energy": 1.0}
"""Weights unless others are given."""
