"""Reward terms of `kilowait/Gpu-v0`: metrics of the whole episode, charged as they accrue.

The value of a term so far is computed as if the simulation stopped now; the reward of a step is minus the increase. The
steps of an episode therefore sum to the metric, whatever decisions are taken. Time in the system accrues for every job
that has arrived and not finished, whether it waits or runs.
"""

from __future__ import annotations

__all__ = ["TERMS"]

TERMS: dict[str, str] = {
    "jct": "mean job completion time, from joining the queue to the end, hours",
    "wait": "mean time without allocated GPUs, before the first start and between segments, hours",
    "slowdown": "mean of completion time over run time at speed 1 (at least 10 s), at least 1, less 1",
    "sla": "share of the jobs whose time without allocated GPUs is longer than the bound sla_s",
    "priority": "mean job completion time, hours, each job weighted by 1 + its priority",
    "lost": "work lost by preemption, GPU-hours at the speed of the job on the GPU type it ran on",
    "makespan": "from the first submission to the last end, hours",
    "idle": "unallocated GPU-hours up to the last end: GPUs x makespan x (1 - utilization)",
}
"""Reward terms, in the order of the columns of info["terms"]. All are costs: smaller is better.

The slowdown differs from that of `kilowait.metrics` where speeds differ or work is lost: the latter divides by the time
for which GPUs were allocated, which would reward slow GPUs. Where all speeds are 1 and no job is preempted they are
equal."""
