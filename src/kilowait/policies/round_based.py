"""Round-based policies for heterogeneous GPU clusters: target shares per GPU type, then allocation by deficit.

Sources: max-min fairness over effective throughput, Narayanan et al. (Gavel), OSDI 2020; finish-time fairness,
Mahajan et al. (Themis), NSDI 2020; minimum total completion time by matching, Le et al. (AlloX), EuroSys 2020.

Gavel (Narayanan et al., OSDI 2020): a linear program computes the fraction of time each job should run on each type;
in every round the jobs furthest behind their share go first. Shares are recomputed when the set of jobs changes.

A job gets only types on which it can be placed: some nodes have the GPUs, cores and memory that it requests. CPU-only
jobs take no part in the shares: in every round they start, in the order of submission, on any nodes that have room
after the GPU jobs, and are not preempted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kilowait.engine.policy import RunInputs, gpu_settings_of
from kilowait.jobs import ExecutionLog
from kilowait.series import Floats
from kilowait.units import format_duration

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from kilowait.engine.gpu.simulator import GpuSimulator, GpuView


@dataclass(frozen=True, eq=False)
class ActiveJobs:
    """The n waiting and running jobs, and T GPU types."""

    now_s: float
    number: npt.NDArray[np.int64]
    speed: Floats
    """(n, T); 0: the job cannot run on the type."""
    gpus: Floats
    capacity: Floats
    """(T,) GPUs."""
    weight: Floats
    remaining_s: Floats
    """Estimated, at speed 1."""
    waited_s: Floats
    attained_s: Floats
    done_s: Floats

    @property
    def equal_rate(self) -> Floats:
        """(n,) speed of each job with an equal share of every type it may use."""
        share = np.where(self.speed > 0, self.capacity, 0.0)
        total = share.sum(1, keepdims=True)
        return np.asarray((self.speed * share / np.where(total > 0, total, 1.0)).sum(1))


def max_min(active: ActiveJobs) -> Floats:
    """Max-min fair shares of effective throughput per weight (Gavel).

    Jobs with the same speeds, GPUs and weight get the same shares: the linear program has one row for each kind of job,
    not for each job, which makes it some ten times faster with hundreds of jobs.

    >>> two = np.array([[1.0, 0.5], [1.0, 1.0]])
    >>> ones = np.ones(2)
    >>> active = ActiveJobs(0.0, np.arange(2), two, ones, ones, ones, ones, ones, ones, ones)
    >>> max_min(active).round(3).tolist()  # the first is slow on the second type, and gets the first type
    [[1.0, 0.0], [0.0, 1.0]]
    """
    columns = np.column_stack([active.speed, active.gpus, active.weight])
    _, first, kind, count = np.unique(columns, axis=0, return_index=True, return_inverse=True, return_counts=True)
    normal_rate = np.where(active.equal_rate > 0, active.equal_rate, 1.0)
    gains = active.speed * (active.gpus / (active.weight * normal_rate))[:, None]
    kinds = replace(active, number=active.number[first], speed=active.speed[first], gpus=active.gpus[first] * count)
    return _maximize_minimum(kinds, gains[first], count)[kind.ravel()]


def finish_time_fair(active: ActiveJobs) -> Floats:
    """Shares that minimize the largest ratio of finish time to the finish time in an isolated 1/n share (Themis).

    Minimising max (t + left / rate) / ideal is, for a bound rho, a linear program; rho is found by bisection.
    """
    n = len(active.number)
    isolated_rate = np.where(active.equal_rate > 0, active.equal_rate, 1.0) * np.minimum(
        1.0, active.capacity.sum() / (n * active.gpus)
    )
    past = active.waited_s + active.attained_s
    ideal = (active.done_s + active.remaining_s) / isolated_rate
    lowest, highest = float((past / ideal).max(initial=0.0)), 0.0
    best = max_min(active)
    rate = (best * active.speed).sum(1)
    with np.errstate(divide="ignore"):
        highest = float(((past + active.remaining_s / rate) / ideal).max(initial=0.0))
    if not np.isfinite(highest):
        return best
    for _ in range(20):
        if highest - lowest <= 0.01 * highest:
            break
        middle = (lowest + highest) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = active.remaining_s / (middle * ideal - past)
        shares = _shares_with_rate(active, needed) if (needed > 0).all() and np.isfinite(needed).all() else None
        if shares is None:
            lowest = middle
        else:
            best, highest = shares, middle
    return best


def allox(active: ActiveJobs) -> Floats:
    """Assignment that minimizes the sum of completion times of one-GPU jobs (AlloX).

    Jobs are matched to positions in the queue of each GPU, counted from the end: the k-th position from the end delays
    k jobs. The first job of each queue runs. A job of several GPUs is matched with its time multiplied by its GPUs.
    """
    from scipy.optimize import linear_sum_assignment

    n, types = active.speed.shape
    gpus_by_type = np.floor(active.capacity).astype(int)
    queues = np.minimum(gpus_by_type, n)
    depth = int(np.ceil(n / max(queues.sum(), 1)))
    kinds = np.repeat(np.arange(types), queues)
    with np.errstate(divide="ignore"):
        length = active.remaining_s[:, None] / np.where(active.speed > 0, active.speed, 0.0)
    length = np.where(np.isfinite(length), length, 1e15)[:, kinds] * np.maximum(active.gpus, 1.0)[:, None]
    cost = np.hstack([length * (k + 1) for k in range(depth)])
    jobs, positions = linear_sum_assignment(cost)
    shares = np.zeros((n, types))
    first: dict[int, tuple[int, int]] = {}
    for job, position in zip(jobs.tolist(), positions.tolist(), strict=True):
        queue, k = position % len(kinds), position // len(kinds)
        if queue not in first or k > first[queue][0]:
            first[queue] = (k, job)
    for queue, (_, job) in first.items():
        if cost[job, queue] < 1e15:
            shares[job, kinds[queue]] = 1.0
    return shares


def _limits(active: ActiveJobs, extra_columns: int) -> tuple[csr_array, Floats]:
    """Constraints: the shares of a job sum to at most 1; allocated GPUs are within capacity."""
    from scipy.sparse import coo_array

    n, types = active.speed.shape
    jobs, kinds = np.divmod(np.arange(n * types), types)
    rows = np.concatenate([jobs, n + kinds])
    columns = np.tile(np.arange(n * types), 2)
    values = np.concatenate([np.ones(n * types), active.gpus[jobs]])
    table = coo_array((values, (rows, columns)), shape=(n + types, n * types + extra_columns))
    return table.tocsr(), np.concatenate([np.ones(n), active.capacity])


def _solve(active: ActiveJobs, goal: Floats, gains: Floats, needed: Floats | None) -> Floats | None:
    """Shares that minimize `goal`, with gains of at least `needed` (or the last variable); None: infeasible."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, vstack

    n, types = active.speed.shape
    extra_columns = len(goal) - n * types
    table, capacity = _limits(active, extra_columns)
    jobs = np.repeat(np.arange(n), types)
    rows, columns, values = jobs, np.arange(n * types), -gains.ravel()
    if extra_columns:
        rows = np.concatenate([rows, np.arange(n)])
        columns = np.concatenate([columns, np.full(n, n * types)])
        values = np.concatenate([values, np.ones(n)])
    gains_table = coo_array((values, (rows, columns)), shape=(n, n * types + extra_columns)).tocsr()
    bounds = [(0.0, None if speed > 0 else 0.0) for speed in active.speed.ravel()] + [(None, None)] * extra_columns
    found = linprog(
        goal,
        A_ub=vstack([table, gains_table]).tocsr(),
        b_ub=np.concatenate([capacity, np.zeros(n) if needed is None else -needed]),
        bounds=bounds,
        method="highs",
    )
    return None if found.x is None else np.clip(found.x[: n * types].reshape(n, types), 0.0, 1.0) + 0.0


def _maximize_minimum(active: ActiveJobs, gains: Floats, count: npt.NDArray[np.int64]) -> Floats:
    """Shares that maximize the minimum gain, then distribute the remaining capacity.

    A row of `active` and `gains` stands for `count` identical jobs; its `gpus` are those of all of them.
    """
    n, types = active.speed.shape
    goal = np.zeros(n * types + 1)
    goal[-1] = -1.0
    # Among optima prefer higher total gain, so that no useful capacity stays idle.
    total = gains * count[:, None]
    goal[:-1] = -1e-4 * (total / max(float(gains.max(initial=0.0)), 1e-12)).ravel() / max(int(count.sum()), 1)
    found = _solve(active, goal, gains, None)
    assert found is not None, "zero shares are feasible"
    return found


def _shares_with_rate(active: ActiveJobs, needed: Floats) -> Floats | None:
    """Shares that give every job at least the needed rate; None: infeasible."""
    return _solve(active, np.zeros(active.speed.size), active.speed, needed)


ROUND_S = 360.0
PROGRESS_INTERVAL_S = 10.0
"""Seconds of real time between messages on the progress of a run."""


@dataclass(frozen=True)
class RoundBasedPolicy:
    """A round-based policy: target shares, enforced round by round."""

    name: str
    shares: Callable[[ActiveJobs], Floats]
    """(jobs, types): fraction of time each job should run on each type."""
    gpu_settings: tuple[tuple[str, Any], ...] = (
        ("round_interval_s", ROUND_S),
        ("rounds", True),
        ("placement", "consolidate"),
    )
    freedom: tuple[tuple[str, Any], ...] = (
        ("preempt", True),
        ("migrate", True),
        ("gpu_type_order", "given"),
        ("head_of_line_blocking", False),
    )
    """What its decisions do, whatever the settings say: it preempts jobs, moves them to other GPU types, chooses the
    types, and starts any job that fits. The log records it."""

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run on a node-level cluster, round by round."""
        settings = gpu_settings_of(inputs, self.name)
        from kilowait.engine.gpu.simulator import GpuSimulator

        simulator = GpuSimulator(
            inputs.jobs,
            inputs.cluster,
            settings,
            speeds=inputs.speeds,
            preference=inputs.preference,
            scheduler=self.name,
        )
        self.schedule(simulator)
        log = simulator.log(self.name)
        return replace(log, run={**log.run, **dict(self.freedom)})

    def schedule(self, simulator: GpuSimulator) -> None:
        """Run the simulation; at every round preempt, move and start jobs according to the shares."""
        received_s: dict[int, Floats] = {}
        known: tuple[int, ...] = ()
        target: Floats = np.zeros((0, 0))
        last_s = 0.0
        type_of_job: dict[int, int] = {}
        reported_s = time.monotonic()
        while (view := simulator.advance()) is not None:
            if not view.due:
                continue
            for job, kind in type_of_job.items():
                if job in received_s:
                    received_s[job][kind] += view.now_s - last_s
            last_s = view.now_s
            if time.monotonic() - reported_s >= PROGRESS_INTERVAL_S:
                reported_s = time.monotonic()
                self._report(simulator, view)
            active = _active_jobs(simulator, view)
            present = tuple(int(number) for number in active.number)
            for job in present:
                received_s.setdefault(job, np.zeros(len(view.types)))
            chosen: dict[int, int] = {}
            if present:
                if present != known:
                    target = self.shares(active)
                    known = present
                received = np.array([received_s[job] for job in present])
                chosen = _assign_types(active, target, received)
            _apply_assignment(simulator, view, chosen)
            running = simulator.view()
            type_of_job = dict(zip(running.running["number"].tolist(), running.running_type.tolist(), strict=True))

    def _report(self, simulator: GpuSimulator, view: GpuView) -> None:
        """Log the progress of the run."""
        logging.getLogger("kilowait").warning(
            "%s: %s of %s jobs have ended, %s run, %s wait, %s after the first submission",
            self.name,
            f"{simulator.ended_jobs:,}",
            f"{len(simulator.table):,}",
            f"{len(view.running):,}",
            f"{len(view.waiting):,}",
            format_duration(view.now_s - float(simulator.table["submit_s"][0])),
        )


def _active_jobs(simulator: GpuSimulator, view: GpuView) -> ActiveJobs:
    """All waiting and running jobs with GPUs, by number."""
    jobs = np.concatenate([view.waiting, view.running])
    jobs = jobs[jobs["gpus"] > 0]
    jobs = jobs[np.argsort(jobs["number"], kind="stable")]
    numbers = jobs["number"]
    return ActiveJobs(
        now_s=view.now_s,
        number=numbers,
        speed=simulator.speeds(numbers),
        gpus=jobs["gpu_share"],
        capacity=view.capacity / 1000,
        weight=np.maximum(jobs["priority"], 1.0),
        remaining_s=jobs["remaining_s"],
        waited_s=jobs["waited_s"],
        attained_s=jobs["attained_s"],
        done_s=jobs["done_s"],
    )


def _assign_types(active: ActiveJobs, target: Floats, received: Floats) -> dict[int, int]:
    """GPU type of each job in this round: jobs furthest behind their share first, while capacity lasts."""
    total = received.sum(0)
    fraction = received / np.where(total > 0, total, 1.0)
    behind = np.where(fraction > 0, target / np.where(fraction > 0, fraction, 1.0), target * 1e9)
    jobs, types = np.nonzero((target > 1e-6) & (active.speed > 0))
    order = np.lexsort((active.number[jobs], -active.speed[jobs, types], -behind[jobs, types]))
    left = active.capacity.copy()
    chosen: dict[int, int] = {}
    for i in order:
        job, kind = int(jobs[i]), int(types[i])
        number = int(active.number[job])
        if number not in chosen and left[kind] >= active.gpus[job]:
            chosen[number] = kind
            left[kind] -= active.gpus[job]
    # Unused GPUs go to the remaining jobs.
    for job in range(len(active.number)):
        number = int(active.number[job])
        if number not in chosen:
            kinds = np.flatnonzero((active.speed[job] > 0) & (left >= active.gpus[job]))
            if len(kinds):
                kind = int(kinds[np.argmax(active.speed[job, kinds])])
                chosen[number] = kind
                left[kind] -= active.gpus[job]
    return chosen


def _apply_assignment(simulator: GpuSimulator, view: GpuView, chosen: dict[int, int]) -> None:
    """Preempt and start jobs as assigned; a job that does not fit because of fragmentation waits for the next round."""
    on_gpus = view.running["gpus"] > 0
    running = dict(zip(view.running["number"][on_gpus].tolist(), view.running_type[on_gpus].tolist(), strict=True))
    moved = [job for job, kind in running.items() if job in chosen and chosen[job] != kind]
    for job in running:
        if job not in chosen or job in moved:
            simulator.preempt(job)
    waiting = set(simulator.view().waiting["number"].tolist())
    for job, kind in chosen.items():
        if job in waiting:
            simulator.start(job, kind)
    for job in view.waiting["number"][view.waiting["gpus"] == 0].tolist():
        simulator.start(job)


ROUND_BASED_POLICIES: dict[str, RoundBasedPolicy] = {
    "gavel": RoundBasedPolicy("gavel", max_min),
    "ftf": RoundBasedPolicy("ftf", finish_time_fair),
    "allox": RoundBasedPolicy("allox", allox),
}
"""Round-based policies by name."""


def round_based_policy(name: str) -> RoundBasedPolicy | None:
    """The round-based policy of that name; None: there is none."""
    return ROUND_BASED_POLICIES.get(name.strip().lower())
