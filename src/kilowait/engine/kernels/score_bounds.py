"""Order of waiting jobs by time-dependent scores, without scoring all of them at every pass.

It serves policies whose scores are *monotone*: the score of a waiting job never rises with time, and its user's share
of usage only adds a term, the same for all jobs of the user, which never falls with the share. So a score at a later
time, with a smaller share, is a lower bound of all scores until then. The queue has such a bound of every job (`key`,
minus infinity for jobs that have just arrived). To find the first job of the order, only jobs whose bound is not above
the best score found so far are scored. The result does not depend on the span of time and the decrease of shares
(slack) for which the bounds are valid; these are doubled or halved to minimize the work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.jit import kernel, maybe_inline
from kilowait.engine.kernels.queue import dequeue, end_pass, update_overrun_ends
from kilowait.engine.kernels.reservations import (
    EVERY_GROUP,
    apply_announcements,
    begin_pass,
    block_groups,
    place,
    reserve,
    start,
    update_share,
    usage_now,
)
from kilowait.engine.kernels.scheduling_pass import anything_free, backfill, next_candidate, score_now
from kilowait.engine.kernels.state import QUEUED

MARGIN = 1e-9
"""Relative margin of a bound: more than the rounding of powers, which need not be monotone, and of sums."""
FIRST_SPAN_S = 3600.0
SPANS_S = (1.0, 1e8)
"""Minimum and maximum time for which bounds are computed."""
FIRST_SLACK = 0.02
SLACKS = (1e-4, 0.25)
"""Minimum and maximum slack."""


@maybe_inline
def bound_of(s: Any, job: int, score: Any, parameters: Any) -> float:
    """A lower bound of the score of a waiting job until `bounds_until_s`."""
    k = s.clock[0]
    if k.bounds_until_s - s.jobs[job].submit_s > k.max_wait_s:
        return -np.inf
    if k.half_life_s > 0:
        row = s.job_extra[job].user
        used = s.usage[row]
        if used.bounds != k.bounds:
            update_share(s, row)
            used.bounds = k.bounds
            used.least_share = used.share * (1.0 - k.bounds_slack)
            used.gain_s = np.inf
        s.jobs[job].usage_share = used.least_share
    value = score(s.jobs[job], k.bounds_until_s, parameters)
    return value - MARGIN * (1.0 + abs(value)) if abs(value) < np.inf else -np.inf


@maybe_inline
def least_share_change(s: Any) -> float:
    """Lower bound of the shares of all users now, relative to those when the bounds were computed.

    The usage of a user decays at most by half in a half-life, and the total is known.
    """
    k = s.clock[0]
    if k.half_life_s == 0 or k.bounds_usage == 0.0:
        return 1.0
    decay = 2.0 ** (-(k.now - k.bounds_s) / k.half_life_s)
    return k.bounds_usage * decay / usage_now(s, len(s.usage) - 1) - MARGIN


@maybe_inline
def prepare_bounds(s: Any, score: Any, parameters: Any) -> None:
    """Compute the bounds anew if they are no longer valid, or so loose that many jobs are scored."""
    k = s.clock[0]
    waiting = k.queue_hi - k.queue_lo
    loose = k.bounds_scores > waiting // 2 + 32
    expired = k.now > k.bounds_until_s
    if not loose and not expired and least_share_change(s) >= 1.0 - k.bounds_slack:
        return
    if loose:
        k.bounds_span_s = max(0.5 * k.bounds_span_s, SPANS_S[0])
        k.bounds_slack = max(0.5 * k.bounds_slack, SLACKS[0])
    elif k.bounds_scores < waiting // 4 + 16:
        if expired:
            k.bounds_span_s = min(2.0 * k.bounds_span_s, SPANS_S[1])
        else:
            k.bounds_slack = min(2.0 * k.bounds_slack, SLACKS[1])
    k.bounds += 1
    k.bounds_scores = 0
    k.bounds_s = k.now
    k.bounds_until_s = k.now + k.bounds_span_s
    k.bounds_usage = usage_now(s, len(s.usage) - 1) if k.half_life_s > 0 else 0.0
    for i in range(k.queue_lo, k.queue_hi):
        s.queue[i].key = bound_of(s, s.queue[i].job, score, parameters)


@maybe_inline
def gain_of(s: Any, job: int, score: Any, parameters: Any) -> float:
    """Difference of the job's score with the share of its user now and with the share of its bound.

    It is a term of the score that all jobs of a user have in common, so it is computed once per user and instant.
    """
    k = s.clock[0]
    row = s.job_extra[job].user
    used = s.usage[row]
    update_share(s, row)
    if used.gain_s != k.now:
        used.gain_s = k.now
        record = s.jobs[job]
        record.usage_share = used.share
        value = score(record, k.now, parameters)
        record.usage_share = used.least_share
        used.gain = value - score(record, k.now, parameters) - 4.0 * MARGIN * (1.0 + abs(value))
    return used.gain


@maybe_inline
def counted_score(s: Any, job: int, score: Any, parameters: Any) -> float:
    """Score of a waiting job as of now."""
    k = s.clock[0]
    key = score_now(s, job, score, parameters)
    k.bounds_scores += 1
    if key != key:
        k.bad_score = job + 1
    return key


@maybe_inline
def job_with_least_bound(s: Any) -> int:
    """The waiting job with the least bound."""
    k = s.clock[0]
    least = k.queue_lo
    for i in range(k.queue_lo, k.queue_hi):
        if s.queue[i].key < s.queue[least].key:
            least = i
    return s.queue[least].job


@maybe_inline
def first_in_order(s: Any, score: Any, parameters: Any, after_key: float, after_job: int) -> tuple[float, int]:
    """Score and number of the first waiting job behind (after_key, after_job) in the order; (inf, -1): none."""
    k = s.clock[0]
    if k.queue_lo == k.queue_hi:
        return np.inf, -1
    # Most jobs are ruled out by a job that is probably the first: the first one of the last pass, if it still waits.
    if after_job >= 0 or s.job_state[k.lead].status != QUEUED:
        k.lead = job_with_least_bound(s)
    best_key = counted_score(s, k.lead, score, parameters)
    best_job = k.lead
    if best_key < after_key or (best_key == after_key and best_job <= after_job):
        best_key = np.inf
        best_job = -1
    for i in range(k.queue_lo, k.queue_hi):
        waiting = s.queue[i]
        if waiting.key <= best_key:
            job = waiting.job
            if waiting.key == -np.inf:
                waiting.key = bound_of(s, job, score, parameters)
            elif k.half_life_s > 0 and waiting.key + gain_of(s, job, score, parameters) > best_key:
                continue
            key = counted_score(s, job, score, parameters)
            behind = key > after_key or (key == after_key and job > after_job)
            if behind and (best_job < 0 or key < best_key or (key == best_key and job < best_job)):
                best_key = key
                best_job = job
    if best_job >= 0:
        k.lead = best_job
    return best_key, best_job


@kernel
def schedule_by_bounds(
    s: Any, all_applied: bool, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any
) -> None:
    """`schedule` with at most one reservation on a cluster with one group, for a policy with monotone scores."""
    k = s.clock[0]
    if k.next_announcement < len(s.announcements):
        apply_announcements(s)
    free = s.pools[s.groups[0].pool_lo].free
    if not anything_free(s) or next_candidate(s, k.queue_lo, free, np.inf, 0) == k.queue_hi:
        if all_applied:
            update_overrun_ends(s)
    else:
        begin_pass(s, all_applied)
        prepare_bounds(s, score, parameters)
        key = -np.inf
        job = -1
        while k.open_groups != 0:
            key, job = first_in_order(s, score, parameters, key, job)
            if job < 0:
                break
            g = place(s, job, EVERY_GROUP if k.depth > 0 else k.open_groups)
            if g >= 0:
                start(s, job, g)
                dequeue(s, job)
            elif k.depth == 0:
                block_groups(s, job)
            else:
                reserve(s, job)
        if k.depth > 0:
            backfill(s, k.queue_lo, False, -1, 0, backfill_score, backfill_parameters)
    end_pass(s)
