"""The error of a GPU simulation that ends although jobs wait or run."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.gpu.event_loop import MAX_IDLE_ROUNDS
from kilowait.engine.gpu.request_text import request_text
from kilowait.engine.gpu.state import ENDING, RUNNING, WAITING
from kilowait.errors import NoProgressError
from kilowait.jobs import JobTable

__all__ = ["unfinished_jobs_error"]


def unfinished_jobs_error(state: Any, jobs: JobTable, types: tuple[str, ...], policy: str) -> NoProgressError | None:
    """The error of a run that has ended; None if no job waits or runs. `jobs` are in the order of their numbers."""
    status = state.job_state["status"]
    now_s = float(state.clock[0].now)
    waiting, running = np.flatnonzero(status == WAITING), np.flatnonzero((status == RUNNING) | (status == ENDING))
    if len(running):
        job = state.job_state[running[0]]
        kind = types[int(state.nodes["type"][state.places[job.place_lo, 0]])]
        return NoProgressError(
            f"job {jobs['job_id'][running[0]]} under policy {policy!r} would never end: {float(job.run_s):g} s of work "
            f"at speed {float(job.rate):g} on {kind or 'nodes without GPUs'}; give a larger speed, or 0 for types that "
            "the job cannot use"
        )
    if not len(waiting):
        return None
    number = int(waiting[0])
    job = state.job_state[number]
    request = request_text(int(job.pieces), int(job.gpus), int(job.gpu_milli), int(job.cpu), int(job.memory))
    others = f" and {len(waiting) - 1:,} more" if len(waiting) > 1 else ""
    rounds = f" has started none in {MAX_IDLE_ROUNDS:,} rounds" if state.clock[0].round_interval_s > 0 else ""
    return NoProgressError(
        f"policy {policy!r}{rounds or ' starts no job'}: at {now_s:g} s job {jobs['job_id'][number]}, which needs "
        f"{request},{others} wait{'' if others else 's'}, nothing runs, and no arrival or completion is due; start a "
        "waiting job whenever the cluster is idle (start(job) places it on any type with room), or use another policy"
    )
