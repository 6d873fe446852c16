"""Priority policies for GPU clusters, based on attained service and remaining time.

`job` is an `engine.gpu.state.GPU_JOB` record; smaller goes first. Sources: LAS and 2D-LAS, Gu et al. (Tiresias),
NSDI 2019; SRSF, same source; QSSF, Hu et al. (Helios), SC 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.interface import PriorityPolicy
from kilowait.errors import InputError

PREEMPTING = (("preempt", True),)
SLICED = (("preempt", True), ("round_interval_s", 300.0))
"""Attained service changes between events, so the order is recomputed every five minutes."""


def _remaining(job: Any, now: float, parameters: Any) -> float:
    return job.remaining_s


def _remaining_service(job: Any, now: float, parameters: Any) -> float:
    return job.remaining_s * job.gpu_share


def _attained_service(job: Any, now: float, parameters: Any) -> float:
    return job.attained_s * job.gpu_share


def _total_service(job: Any, now: float, parameters: Any) -> float:
    return job.estimate_s * job.gpu_share


def _service_queue(job: Any, now: float, parameters: Any) -> float:
    """parameters: patience, then the queue limits in GPU-seconds."""
    service = job.attained_s * job.gpu_share
    queue = 0.0
    for i in range(1, len(parameters)):
        if service >= parameters[i]:
            queue += 1.0
    if parameters[0] > 0.0 and job.waited_s >= parameters[0] * max(job.attained_s, 1.0):
        queue = 0.0
    # Within a queue first come, first served: a submission is below 1e10 s.
    return queue * 1e10 + job.submit_s


def srtf() -> PriorityPolicy:
    """Shortest remaining time first."""
    return PriorityPolicy("srtf", _remaining, time_dependent=True, node_level=True, gpu_settings=PREEMPTING)


def srsf() -> PriorityPolicy:
    """Shortest remaining service (time times GPUs) first."""
    return PriorityPolicy("srsf", _remaining_service, time_dependent=True, node_level=True, gpu_settings=PREEMPTING)


def las() -> PriorityPolicy:
    """Least attained service (GPU-seconds so far) first."""
    return PriorityPolicy("las", _attained_service, time_dependent=True, node_level=True, gpu_settings=SLICED)


def qssf() -> PriorityPolicy:
    """Smallest service (estimate times GPUs) first; with predicted estimates this is Helios' QSSF."""
    return PriorityPolicy("qssf", _total_service, node_level=True)


def tiresias(*, limits: str = "3250,7200,18000", patience: float = 0.0) -> PriorityPolicy:
    """Queues by attained service, first come first served in each; `limits` in GPU-seconds.

    A job that has waited `patience` times as long as it has run goes back to the first queue; 0: never.
    """
    try:
        values = [float(limit) for limit in limits.split(",")]
    except ValueError:
        raise InputError(f"limits of tiresias are {limits!r}; write GPU-seconds such as 3250,7200,18000") from None
    return PriorityPolicy(
        "tiresias",
        _service_queue,
        np.array([float(patience), *values]),
        time_dependent=True,
        node_level=True,
        gpu_settings=SLICED,
    )
