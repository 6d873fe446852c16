"""Write the observation of `kilowait/Gpu-v0`: the shown jobs and their features, the mask, the summary.

All waiting jobs are shown if there are enough slots. Otherwise half the slots have the jobs submitted first, so that no
job is hidden forever, and half those with the fewest remaining GPU-seconds, by estimates: first of the jobs that can
start now, then of the others. Preemptible running jobs have separate slots after these: those with the most remaining
GPU-seconds.
With a graph, edges between the shown jobs are bits of `observation_spec.GPU_EDGES`.
"""

from __future__ import annotations

from math import log, log1p
from typing import Any

import numpy as np

from kilowait.engine.gpu.job_progress import done_at
from kilowait.engine.gpu.state import RUNNING
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, noinline
from kilowait.envs.kernels.decision_batch import queue_position
from kilowait.envs.kernels.decision_gpu import (
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
from kilowait.envs.kernels.observation_batch import NEAR_S, fill_slots, write_time
from kilowait.envs.observation_spec import GPU_VARYING_FEATURES

AFTER = len(GPU_VARYING_FEATURES)


@kernel
def _remaining_s(s: Any, job: int) -> float:
    """Remaining work, seconds, by the estimate."""
    job_state = s.job_state[job]
    done = done_at(job_state, s.clock[0].now) if job_state.status == RUNNING else job_state.done
    return max(job_state.estimate_s - done, 1.0)


@kernel
def _may_start(s: Any, a: Any, source: Any, b: int, late: int, only: bool, job: int) -> bool:
    """Whether the agent may choose the job."""
    if only:
        return job == late
    bits = fitting_types(s, a.own.fitting_cache[b], a.copies[b].moment, job)
    usable = allowed(s, source.may, late, job, bits)
    return usable != 0 and (usable == bits or a.env_settings[0].by_type != 0)


@noinline
def _most_relevant(s: Any, a: Any, source: Any, b: int, late: int, only: bool, slot_count: int) -> int:
    """Fill the slots if more jobs wait than there are slots; returns the number of filled slots."""
    slots = a.slots[b]
    k = s.clock[0]
    shown = 0
    at = k.queue_lo
    while at < k.queue_hi and shown < slot_count // 2:
        if _may_start(s, a, source, b, late, only, s.queue[at].job):
            slots[shown] = s.queue[at].job
            shown += 1
        at += 1
    count = 0
    while at < k.queue_hi:
        job = s.queue[at].job
        if _may_start(s, a, source, b, late, only, job):
            s.order[count].key = s.jobs[job].gpu_share * _remaining_s(s, job)
            s.order[count].job = job
            count += 1
        at += 1
    shown = fill_slots(s.order, count, slots, shown, slot_count)
    at = k.queue_lo
    while at < k.queue_hi and shown < slot_count:
        if not _may_start(s, a, source, b, late, only, s.queue[at].job):
            slots[shown] = s.queue[at].job
            shown += 1
        at += 1
    return shown


@noinline
def _fill_victim_slots(s: Any, a: Any, source: Any, b: int) -> int:
    """Fill the last slots with preemptible running jobs; returns their number."""
    slots = a.slots[b]
    starts = a.env_settings[0].starts
    first = len(slots) - a.env_settings[0].victims
    k = s.clock[0]
    wanted = wanted_types(s, source.may)
    count = 0
    for i in range(k.running):
        job = s.running_jobs[i]
        if preemptible(s, job, starts) and (wanted >> type_of(s, job)) & 1:
            s.order[count].key = -s.jobs[job].gpu_share * _remaining_s(s, job)
            s.order[count].job = job
            count += 1
    return fill_slots(s.order, count, slots, first, len(slots)) - first


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


@kernel
def _write_waiting_jobs(s: Any, a: Any, source: Any, b: int, late: int, only: bool) -> int:
    """Write the waiting jobs and their mask; returns the number of shown ones."""
    k = s.clock[0]
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    slots = a.slots[b]
    mask = a.mask[b]
    by_type = env_settings.by_type != 0
    types = s.speed.shape[1]
    fixed_count = assume_nonnegative(source.features.shape[1])
    last = fixed_count + AFTER
    slot_count = len(slots) - env_settings.victims
    choices = env_settings.choices
    choices_per_placement = 1 + types if by_type else 1
    waiting = assume_nonnegative(k.queue_hi - k.queue_lo)
    if waiting <= slot_count:
        shown = waiting
        for i in range(waiting):
            slots[i] = s.queue[assume_nonnegative(k.queue_lo + i)].job
    else:
        shown = assume_nonnegative(_most_relevant(s, a, source, b, late, only, slot_count))
    for i in range(shown):
        job = assume_nonnegative(slots[i])
        row = a.jobs[b, i]
        _write_features(s, copy, source, env_settings.gpus, job, waited_s(s, job), s.job_state[job].attained_s, row)
        row[fixed_count + 6] = (i if waiting <= slot_count else queue_position(s, job) - k.queue_lo) / waiting
        row[fixed_count + 7] = 0.0
        bits = fitting_types(s, a.own.fitting_cache[b], copy.moment, job)
        for kind in range(types):
            row[last + kind] = (bits >> kind) & 1
        usable = allowed(s, source.may, late, job, bits)
        if copy.phase != PASS or (only and job != late):
            usable = 0
        anywhere = usable != 0 and usable == bits
        at = assume_nonnegative(i * choices)
        for _ in range(choices // choices_per_placement):
            mask[at] = anywhere
            if by_type:
                for kind in range(types):
                    mask[at + 1 + kind] = (usable >> kind) & 1
            at += choices_per_placement
    _clear(a.jobs[b], mask, choices, shown, copy.shown)
    copy.shown = shown
    return shown


@kernel
def _write_running_jobs(s: Any, a: Any, source: Any, b: int, only: bool) -> None:
    """Write the running jobs that may be preempted, and their mask."""
    now = s.clock[0].now
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    slots = a.slots[b]
    types = s.speed.shape[1]
    fixed_count = assume_nonnegative(source.features.shape[1])
    first = len(slots) - env_settings.victims
    before = first + copy.victims
    copy.victims = _fill_victim_slots(s, a, source, b) if copy.phase == PASS and not only else 0
    for i in range(first, first + copy.victims):
        job = assume_nonnegative(slots[i])
        row = a.jobs[b, assume_nonnegative(i)]
        allocated_s = now - s.job_state[job].start_s + s.job_state[job].attained_s
        wait_s = now - s.job_state[job].arrival_s - allocated_s
        _write_features(s, copy, source, env_settings.gpus, job, wait_s, allocated_s, row)
        row[fixed_count + 6] = 0.0
        row[fixed_count + 7] = 1.0
        for kind in range(types):
            row[fixed_count + AFTER + kind] = kind == type_of(s, job)
        a.mask[b, assume_nonnegative(i * env_settings.choices)] = 1
    _clear(a.jobs[b], a.mask[b], env_settings.choices, first + copy.victims, before)


@noinline
def write_observation(s: Any, a: Any, source: Any, b: int, last: bool) -> None:
    """Write the observation of one copy. Rows of slots that are no longer filled become zero."""
    k = s.clock[0]
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    mask = a.mask[b]
    waiting = assume_nonnegative(k.queue_hi - k.queue_lo)
    late = first_late(s, env_settings.max_wait_s)
    only = late >= 0 and fitting_types(s, a.own.fitting_cache[b], copy.moment, late) != 0
    shown = _write_waiting_jobs(s, a, source, b, late, only)
    if env_settings.victims > 0:
        _write_running_jobs(s, a, source, b, only)
    if env_settings.hold != 0:
        mask[len(mask) - 1] = copy.phase == PASS and may_hold(s, only)
    _write_summary(s, source, env_settings, waiting, shown, a.summary[b])
    if a.edges.shape[1] > 0:
        _write_edges(s, copy, source, env_settings.victims, a.own.free[b], a.slots[b], a.edges[b])
    if last:
        _store_last(a, b)


@noinline
def _store_last(a: Any, b: int) -> None:
    """Keep the last observation of an episode."""
    own = a.own
    for i in range(a.summary.shape[1]):
        a.last_summary[b, i] = a.summary[b, i]
    if len(own.last_jobs) > 0:
        for i in range(a.jobs.shape[1]):
            for f in range(a.jobs.shape[2]):
                own.last_jobs[b, i, f] = a.jobs[b, i, f]
        for i in range(a.mask.shape[1]):
            own.last_mask[b, i] = a.mask[b, i]
        for i in range(a.edges.shape[1]):
            for j in range(a.edges.shape[2]):
                own.last_edges[b, i, j] = a.edges[b, i, j]


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
    write_time(k.now, summary, 10)


@noinline
def _write_edges(s: Any, copy: Any, source: Any, victims: int, free: Any, slots: Any, edges: Any) -> None:
    """Write the edges of one copy. Sets `free` to the free thousandths of GPUs and of cores of each type."""
    for kind in range(len(free)):
        free[kind, 0] = 0
        free[kind, 1] = 0
        for i in range(s.type_lo[kind], s.type_lo[kind + 1]):
            free[kind, 0] += s.nodes[s.by_type[i]].gpu_milli
            free[kind, 1] += s.nodes[s.by_type[i]].cpu
    for i in range(len(slots)):
        for j in range(len(slots)):
            edges[i, j] = 0
    rows = copy.shown + copy.victims
    for i in range(rows):
        a = assume_nonnegative(_row(copy, slots, victims, i))
        for j in range(i, rows):
            b = assume_nonnegative(_row(copy, slots, victims, j))
            bits = _bits(s, source, free, assume_nonnegative(slots[a]), assume_nonnegative(slots[b]))
            edges[a, b] = bits
            edges[b, a] = bits


@kernel
def _row(copy: Any, slots: Any, victims: int, number: int) -> int:
    """Slot of the shown job with this number: waiting jobs come first, running jobs have the last slots."""
    return number if number < copy.shown else len(slots) - victims + number - copy.shown


@kernel
def _bits(s: Any, source: Any, free: Any, one: int, other: int) -> int:
    a = s.jobs[one]
    b = s.jobs[other]
    bits = 0
    if (a.user >= 0 and a.user == b.user) or (a.account >= 0 and a.account == b.account):
        bits |= 1
    if _compete(s, source, free, one, other):
        bits |= 2
    if abs(s.job_state[one].arrival_s - s.job_state[other].arrival_s) <= NEAR_S:
        bits |= 4
    return bits


@kernel
def _compete(s: Any, source: Any, free: Any, one: int, other: int) -> bool:
    """Whether both jobs can use the same types, and these have too few free GPUs or cores for both."""
    common = _types(s, source, one) & _types(s, source, other)
    if common == 0:
        return False
    gpu_milli = 0
    cpu = 0
    for kind in range(len(free)):
        if (common >> kind) & 1:
            gpu_milli += free[kind, 0]
            cpu += free[kind, 1]
    gpus = _still_needed(s, one, 1000.0 * s.jobs[one].gpu_share) + _still_needed(
        s, other, 1000.0 * s.jobs[other].gpu_share
    )
    cores = _still_needed(s, one, float(s.job_state[one].cpu * s.job_state[one].pieces)) + _still_needed(
        s, other, float(s.job_state[other].cpu * s.job_state[other].pieces)
    )
    return gpus > gpu_milli + 0.5 or cores > cpu + 0.5


@kernel
def _types(s: Any, source: Any, job: int) -> int:
    """Types, as bits, that a waiting job may use, or the type of a running job."""
    job_state = s.job_state[job]
    return 1 << type_of(s, job) if job_state.status == RUNNING else source.may[job_state.speed_class]


@kernel
def _still_needed(s: Any, job: int, amount: float) -> float:
    """What the job still needs; nothing if it runs."""
    return 0.0 if s.job_state[job].status == RUNNING else amount
