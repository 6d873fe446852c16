"""Round-based policies for heterogeneous GPU clusters: target shares per GPU type, then allocation by deficit.

Gavel (Narayanan et al., OSDI 2020): a linear program computes the fraction of time each job should run on each type;
in every round the jobs furthest behind their share go first. Shares are recomputed when the set of jobs changes.

A job gets only types on which it can be placed: some nodes have the GPUs, cores and memory that it requests. CPU-only
jobs take no part in the shares: in every round they start, in the order of submission, on any nodes that have room
after the GPU jobs, and are not preempted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.engine.gpu.simulator import GpuSimulator, GpuView
from kilowait.engine.policy import RunInputs, gpu_settings_of
from kilowait.jobs import ExecutionLog
from kilowait.policies.gpu_type_allocation import ActiveJobs, allox, finish_time_fair, max_min

__all__ = ["ROUND_BASED_POLICIES", "RoundBasedPolicy", "round_based_policy"]

Floats = npt.NDArray[np.float64]
ROUND_S = 360.0


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

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run on a node-level cluster, round by round."""
        settings = gpu_settings_of(inputs, self.name)
        simulator = GpuSimulator(
            inputs.jobs,
            inputs.cluster,
            settings,
            speeds=inputs.speeds,
            preference=inputs.preference,
            scheduler=self.name,
        )
        self.schedule(simulator)
        return simulator.log(self.name)

    def schedule(self, simulator: GpuSimulator) -> None:
        """Run the simulation; at every round preempt, move and start jobs according to the shares."""
        received_s: dict[int, Floats] = {}
        known: tuple[int, ...] = ()
        target: Floats = np.zeros((0, 0))
        last_s = 0.0
        type_of_job: dict[int, int] = {}
        while (view := simulator.advance()) is not None:
            if not view.due:
                continue
            for job, kind in type_of_job.items():
                if job in received_s:
                    received_s[job][kind] += view.now_s - last_s
            last_s = view.now_s
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
