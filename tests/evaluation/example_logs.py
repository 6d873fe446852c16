"""Manually constructed logs."""

from __future__ import annotations

import math

import numpy as np

from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import Outcome

NEVER = math.nan


def example_log(*rows, capacity=((0.0, 8),), segments=None, eligible=None, outcome=None, **columns):
    """An execution log of jobs (submit, start or NEVER, run, nodes) on a machine of (time, nodes) steps.

    `segments` are additional segments (row, start, end); `eligible` and `outcome` override those of single rows.
    """
    submit, start, run, nodes = (np.array(c, float) for c in zip(*rows, strict=True)) if rows else [np.empty(0)] * 4
    jobs = JobTable(
        job_id=np.arange(1, len(rows) + 1), submit_s=submit, runtime_s=run, nodes=nodes.astype(int), **columns
    )
    pieces = [(row, start[row], start[row] + run[row]) for row in range(len(rows)) if not math.isnan(start[row])]
    pieces = sorted(pieces + list(segments or ()), key=lambda piece: piece[1])
    row, begin, end = (np.array(c) for c in zip(*pieces, strict=True)) if pieces else [np.empty(0)] * 3
    eligible_s = submit.copy()
    results = np.where(np.isnan(start), Outcome.UNSTARTED, Outcome.COMPLETED).astype(np.int8)
    for number, time in (eligible or {}).items():
        eligible_s[number] = time
    for number, result in (outcome or {}).items():
        results[number] = result
    row = row.astype(np.int64)
    times, sizes = zip(*capacity, strict=True) if capacity else ((), ())
    return ExecutionLog(
        jobs_table=jobs,
        job=row,
        start_s=begin.astype(float),
        end_s=end.astype(float),
        group=np.zeros(len(row), np.int16),
        level=np.zeros(len(row), np.int16),
        outcome=results[row],
        eligible_s=eligible_s,
        job_outcome=results,
        capacity_s=np.array(times, float),
        capacity=np.array(sizes, np.int64),
    )
