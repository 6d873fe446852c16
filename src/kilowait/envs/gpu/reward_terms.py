"""The terms of the reward: figures of the whole episode, paid as they accrue.

What a term is worth so far is reckoned as if the clock stopped now; a step earns what that has grown by. The steps of
an episode so sum to the figure itself, whatever was decided. Time in the system accrues for every job that has come and
not finished, whether it waits or runs.
"""

from __future__ import annotations

__all__ = ["TERMS"]

TERMS: dict[str, str] = {
    "jct": "mean job completion time, from joining the queue to the end, hours",
    "wait": "mean time without a place, before the first start and between segments, hours",
    "slowdown": "mean of completion time over run time at speed 1 (at least 10 s), at least 1, less 1",
    "sla": "share of the jobs whose time without a place is longer than the bound sla_s",
    "priority": "mean job completion time, hours, each job weighted by 1 + its priority",
    "lost": "work lost by preemption, GPU-hours at the speed of the job where it lost it",
    "makespan": "from the first submission to the last end, hours",
    "idle": "GPU-hours in which GPUs were not held, up to the last end: GPUs x makespan x (1 - utilization)",
}
"""What the return is made of, in the order of the columns of info["terms"]. All are costs: smaller is better.

The slowdown is not that of `kilowait.metrics` where speeds differ or work is lost: that one divides by the time for
which places were held, and would pay for slow GPUs. Where all speeds are 1 and nobody is put out they are the same."""
