"""Write the observation of `kilowait/Gpu-v0`: the shown jobs and their features, the mask, the summary.

All waiting jobs are shown if there are enough slots. Otherwise half the slots have the jobs submitted first, so that no
job is hidden forever, and half those with the fewest remaining GPU-seconds, by estimates: first of the jobs that can
start now, then of the others. Preemptible running jobs have separate slots after these: those with the most remaining
GPU-seconds.
"""

from __future__ import annotations

from math import cos, log, log1p, pi, sin
from typing import Any

import numpy as np

from kilowait.engine.gpu.job_progress import done_at
from kilowait.engine.gpu.state import RUNNING, gpu_state_without_refcount
from kilowait.engine.kernels.heap import heapify, pop
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, noinline, without_refcount
from kilowait.envs.gpu.observation_spec import CONSTANT_FEATURES, VARYING_FEATURES
from kilowait.envs.kernels.gpu_env_decision import (
    PASS,
    allowed,
    first_late,
    fitting_types,
    may_hold,
    preemptible,
    type_of,
    waited_s,
    wanted_types,
)
from kilowait.envs.kernels.gpu_env_states import log_arrays_without_refcount

__all__ = ["write_observation"]

BEFORE = len(CONSTANT_FEATURES)
AFTER = len(VARYING_FEATURES)


@kernel
def _remaining_s(s: Any, job: int) -> float:
    """Remaining work, seconds, by the estimate."""
    job_state = s.job_state[job]
    done = done_at(job_state, s.clock[0].now) if job_state.status == RUNNING else job_state.done
    return max(job_state.estimate_s - done, 1.0)


@kernel
def _may_start(
    s: Any, source: Any, fitting_cache: Any, copy: Any, by_type: bool, late: int, only: bool, job: int
) -> bool:
    if only:
        return job == late
    bits = fitting_types(s, fitting_cache, copy.moment, job)
    usable = allowed(s, source.may, late, job, bits)
    return usable != 0 and (usable == bits or by_type)


@noinline
def _most_relevant(
    s: Any,
    copy: Any,
    source: Any,
    fitting_cache: Any,
    by_type: bool,
    late: int,
    only: bool,
    free_slots: int,
    slots: Any,
) -> int:
    """Fill the slots if more jobs wait than there are slots; returns the number of filled slots."""
    s = gpu_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    fitting_cache = without_refcount(fitting_cache)
    slots = without_refcount(slots)
    k = s.clock[0]
    shown = 0
    at = k.queue_lo
    while at < k.queue_hi and shown < free_slots // 2:
        if _may_start(s, source, fitting_cache, copy, by_type, late, only, s.queue[at].job):
            slots[shown] = s.queue[at].job
            shown += 1
        at += 1
    count = 0
    while at < k.queue_hi:
        job = s.queue[at].job
        if _may_start(s, source, fitting_cache, copy, by_type, late, only, job):
            s.order[count].key = s.jobs[job].gpu_share * _remaining_s(s, job)
            s.order[count].job = job
            count += 1
        at += 1
    heapify(s.order, count)
    while count > 0 and shown < free_slots:
        slots[shown] = s.order[0].job
        pop(s.order, count)
        count -= 1
        shown += 1
    at = k.queue_lo
    while at < k.queue_hi and shown < free_slots:
        if not _may_start(s, source, fitting_cache, copy, by_type, late, only, s.queue[at].job):
            slots[shown] = s.queue[at].job
            shown += 1
        at += 1
    return shown


@noinline
def _fill_victim_slots(s: Any, source: Any, starts: int, free_slots: int, slots: Any) -> int:
    """Fill the last slots with preemptible running jobs; returns their number."""
    s = gpu_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    slots = without_refcount(slots)
    k = s.clock[0]
    lo = len(slots) - free_slots
    wanted = wanted_types(s, source.may)
    count = 0
    for i in range(k.running):
        job = s.running_jobs[i]
        if preemptible(s, job, starts) and (wanted >> type_of(s, job)) & 1:
            s.order[count].key = -s.jobs[job].gpu_share * _remaining_s(s, job)
            s.order[count].job = job
            count += 1
    heapify(s.order, count)
    shown = 0
    while count > 0 and shown < free_slots:
        slots[lo + shown] = s.order[0].job
        pop(s.order, count)
        count -= 1
        shown += 1
    return shown


@kernel
def _queue_position(s: Any, job: int) -> int:
    """Number of jobs before it in the queue, which is sorted by job number."""
    k = s.clock[0]
    lo = k.queue_lo
    hi = k.queue_hi
    while lo < hi:
        middle = (lo + hi) >> 1
        if s.queue[middle].job < job:
            lo = middle + 1
        else:
            hi = middle
    return lo - k.queue_lo


@kernel
def _write_features(
    s: Any, copy: Any, source: Any, gpus: float, job: int, wait: float, allocated_s: float, row: Any
) -> None:
    """Write the features of a job, except its place in the queue, whether it runs, and where it fits."""
    job_state = s.job_state[job]
    fixed = source.features[assume_nonnegative(copy.first + job)]
    fixed_count = assume_nonnegative(len(fixed))
    for f in range(fixed_count):
        row[f] = fixed[f]
    if job_state.starts == 0:
        row[fixed_count] = fixed[0]
        row[fixed_count + 1] = source.area[assume_nonnegative(copy.first + job)]
    else:
        remaining_s = _remaining_s(s, job)
        row[fixed_count] = log(remaining_s / 3600.0) / 3.0
        row[fixed_count + 1] = log1p(remaining_s * s.jobs[job].gpu_share / (gpus * 3600.0)) / 3.0
    row[fixed_count + 2] = allocated_s / (allocated_s + 3600.0)
    row[fixed_count + 3] = wait / (wait + 3600.0)
    row[fixed_count + 4] = wait / (wait + 86400.0)
    row[fixed_count + 5] = wait / (wait + job_state.estimate_s)


@noinline
def write_observation(
    s: Any,
    copy: Any,
    source: Any,
    env_settings: Any,
    fitting_cache: Any,
    jobs: Any,
    mask: Any,
    summary: Any,
    slots: Any,
) -> None:
    """Write the observation of one copy. Rows of slots that are no longer filled become zero."""
    s = gpu_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    fitting_cache = without_refcount(fitting_cache)
    jobs = without_refcount(jobs)
    mask = without_refcount(mask)
    summary = without_refcount(summary)
    slots = without_refcount(slots)
    k = s.clock[0]
    now = k.now
    in_pass = copy.phase == PASS
    by_type = env_settings.by_type != 0
    types = s.speed.shape[1]
    fixed_count = assume_nonnegative(source.features.shape[1])
    last = fixed_count + AFTER
    free_slots = len(slots) - env_settings.victims
    choices = env_settings.choices
    choices_per_placement = 1 + types if by_type else 1
    waiting = assume_nonnegative(k.queue_hi - k.queue_lo)
    late = first_late(s, env_settings.max_wait_s)
    only = late >= 0 and fitting_types(s, fitting_cache, copy.moment, late) != 0
    before = copy.shown
    if waiting <= free_slots:
        shown = waiting
        for i in range(waiting):
            slots[i] = s.queue[assume_nonnegative(k.queue_lo + i)].job
    else:
        shown = assume_nonnegative(
            _most_relevant(s, copy, source, fitting_cache, by_type, late, only, free_slots, slots)
        )
    for i in range(shown):
        job = assume_nonnegative(slots[i])
        row = jobs[i]
        _write_features(s, copy, source, env_settings.gpus, job, waited_s(s, job), s.job_state[job].attained_s, row)
        row[fixed_count + 6] = (i if waiting <= free_slots else _queue_position(s, job)) / waiting
        row[fixed_count + 7] = 0.0
        bits = fitting_types(s, fitting_cache, copy.moment, job)
        for kind in range(types):
            row[last + kind] = (bits >> kind) & 1
        usable = allowed(s, source.may, late, job, bits)
        if not in_pass or (only and job != late):
            usable = 0
        anywhere = usable != 0 and usable == bits
        at = assume_nonnegative(i * choices)
        for _ in range(choices // choices_per_placement):
            mask[at] = anywhere
            if by_type:
                for kind in range(types):
                    mask[at + 1 + kind] = (usable >> kind) & 1
            at += choices_per_placement
    _clear(jobs, mask, choices, shown, before)
    copy.shown = shown
    if env_settings.victims > 0:
        before = free_slots + copy.victims
        copy.victims = (
            _fill_victim_slots(s, source, env_settings.starts, env_settings.victims, slots)
            if in_pass and not only
            else 0
        )
        for i in range(free_slots, free_slots + copy.victims):
            job = assume_nonnegative(slots[i])
            row = jobs[assume_nonnegative(i)]
            allocated_s = now - s.job_state[job].start_s + s.job_state[job].attained_s
            _write_features(
                s,
                copy,
                source,
                env_settings.gpus,
                job,
                now - s.job_state[job].arrival_s - allocated_s,
                allocated_s,
                row,
            )
            row[fixed_count + 6] = 0.0
            row[fixed_count + 7] = 1.0
            for kind in range(types):
                row[last + kind] = kind == type_of(s, job)
            mask[assume_nonnegative(i * choices)] = 1
        _clear(jobs, mask, choices, free_slots + copy.victims, before)
    if env_settings.hold != 0:
        mask[len(mask) - 1] = in_pass and may_hold(s, only)
    _write_summary(s, source, env_settings, waiting, shown, summary)


@kernel
def _clear(jobs: Any, mask: Any, choices: int, lo: int, hi: int) -> None:
    """Clear these slots."""
    for i in range(assume_nonnegative(lo), hi):
        for f in range(jobs.shape[1]):
            jobs[i, f] = 0.0
        for c in range(assume_nonnegative(i * choices), (i + 1) * choices):
            mask[c] = 0


@kernel
def _write_summary(s: Any, source: Any, env_settings: Any, waiting: int, shown: int, summary: Any) -> None:
    k = s.clock[0]
    now = k.now
    gpus = env_settings.gpus
    types = s.speed.shape[1]
    free = 0
    whole = 0
    widest = 0
    for kind in range(types):
        gpu_milli = 0
        cpu = 0
        for i in range(s.type_lo[kind], s.type_lo[kind + 1]):
            n = s.nodes[s.by_type[i]]
            gpu_milli += n.gpu_milli
            cpu += n.cpu
            whole += n.free_gpus
            widest = max(widest, n.free_gpus)
        free += gpu_milli
        summary[14 + kind] = (
            gpu_milli / source.type_milli[kind]
            if source.type_milli[kind] > 0
            else (cpu / max(source.type_cpu[kind], 1))
        )
    backlog = 0.0
    for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
        job = assume_nonnegative(s.queue[i].job)
        backlog += s.jobs[job].gpu_share * _remaining_s(s, job)
    ahead = 0.0
    release = np.inf
    for i in range(assume_nonnegative(k.running)):
        job = assume_nonnegative(s.running_jobs[i])
        remaining_s = _remaining_s(s, job)
        ahead += s.jobs[job].gpu_share * remaining_s
        release = min(release, remaining_s / s.job_state[job].rate)
    release = release if k.running > 0 else 0.0
    summary[0] = free / (1000.0 * gpus)
    summary[1] = whole / gpus
    summary[2] = widest / env_settings.widest
    summary[3] = log1p(float(waiting)) / 5.0
    summary[4] = log1p(backlog / (3600.0 * gpus)) / 3.0
    summary[5] = log1p(float(k.running)) / 5.0
    summary[6] = log1p(ahead / (3600.0 * gpus)) / 3.0
    summary[7] = log1p(float(k.ending)) / 5.0
    summary[8] = release / (release + 3600.0)
    summary[9] = (waiting - shown) / waiting if waiting > 0 else 0.0
    day = 2.0 * pi * (now / 86400.0 - np.floor(now / 86400.0))
    week = 2.0 * pi * (now / 604800.0 - np.floor(now / 604800.0))
    summary[10] = sin(day)
    summary[11] = cos(day)
    summary[12] = sin(week)
    summary[13] = cos(week)
