"""Policies that give out GPU types in rounds: shares of each type first, then who has had least of its share.

Gavel (Narayanan et al., OSDI 2020): a linear program says for which part of the time each job should run on each type;
in every round the jobs furthest behind their share go first. The shares are made anew when jobs came or went.
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
from kilowait.policies.allocation import ActiveJobs, allox, finish_time_fair, max_min

__all__ = ["ROUNDS", "Rounds", "round_based_policy"]

Floats = npt.NDArray[np.float64]
ROUND_S = 360.0


@dataclass(frozen=True)
class Rounds:
    """Shares by a policy, kept round by round."""

    name: str
    shares: Callable[[ActiveJobs], Floats]
    """(jobs, types): for which part of the time each job should run on each type."""
    gpu_settings: tuple[tuple[str, Any], ...] = (
        ("round_interval_s", ROUND_S),
        ("rounds", True),
        ("placement", "consolidate"),
    )

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run on a node-level cluster, round by round."""
        settings = gpu_settings_of(inputs, self.name)
        simulator = GpuSimulator(
            inputs.jobs, inputs.cluster, settings, speeds=inputs.speeds, preference=inputs.preference
        )
        self.schedule(simulator)
        return simulator.log(self.name)

    def schedule(self, simulator: GpuSimulator) -> None:
        """At every round: preempt who has to go, move who changes type, start who comes."""
        had: dict[int, Floats] = {}
        known: tuple[int, ...] = ()
        wanted: Floats = np.zeros((0, 0))
        last_s = 0.0
        where: dict[int, int] = {}
        while (view := simulator.advance()) is not None:
            if not view.due:
                continue
            for job, kind in where.items():
                had[job][kind] += view.now_s - last_s
            last_s = view.now_s
            crowd = _crowd(simulator, view)
            present = tuple(int(number) for number in crowd.number)
            for job in present:
                had.setdefault(job, np.zeros(len(view.types)))
            if present != known:
                wanted = self.shares(crowd)
                known = present
            received = np.array([had[job] for job in present])
            chosen = _chosen(crowd, wanted, received)
            _carry_out(simulator, view, chosen)
            running = simulator.view()
            where = dict(zip(running.running["number"].tolist(), running.running_type.tolist(), strict=True))


def _crowd(simulator: GpuSimulator, view: GpuView) -> ActiveJobs:
    """Everyone who waits or runs, by number."""
    jobs = np.concatenate([view.waiting, view.running])
    jobs = jobs[np.argsort(jobs["number"], kind="stable")]
    numbers = jobs["number"]
    return ActiveJobs(
        now_s=view.now_s,
        number=numbers,
        speed=simulator.speeds(numbers),
        gpus=np.maximum(jobs["gpu_share"], 1e-3),
        capacity=view.capacity / 1000,
        weight=np.maximum(jobs["priority"], 1.0),
        remaining_s=jobs["remaining_s"],
        waited_s=jobs["waited_s"],
        attained_s=jobs["attained_s"],
        done_s=jobs["done_s"],
    )


def _chosen(crowd: ActiveJobs, wanted: Floats, received: Floats) -> dict[int, int]:
    """The type each job gets in this round: those furthest behind their share first, while there is room."""
    total = received.sum(0)
    part = received / np.where(total > 0, total, 1.0)
    behind = np.where(part > 0, wanted / np.where(part > 0, part, 1.0), wanted * 1e9)
    jobs, types = np.nonzero((wanted > 1e-6) & (crowd.speed > 0))
    order = np.lexsort((crowd.number[jobs], -crowd.speed[jobs, types], -behind[jobs, types]))
    left = crowd.capacity.copy()
    chosen: dict[int, int] = {}
    for place in order:
        job, kind = int(jobs[place]), int(types[place])
        number = int(crowd.number[job])
        if number not in chosen and left[kind] >= crowd.gpus[job]:
            chosen[number] = kind
            left[kind] -= crowd.gpus[job]
    # GPUs that nobody's share asks for in this round go to whoever is left.
    for job in range(len(crowd.number)):
        number = int(crowd.number[job])
        if number not in chosen:
            kinds = np.flatnonzero((crowd.speed[job] > 0) & (left >= crowd.gpus[job]))
            if len(kinds):
                kind = int(kinds[np.argmax(crowd.speed[job, kinds])])
                chosen[number] = kind
                left[kind] -= crowd.gpus[job]
    return chosen


def _carry_out(simulator: GpuSimulator, view: GpuView, chosen: dict[int, int]) -> None:
    """Bring what runs in line with what was chosen; where fragments leave no room a job waits for the next round."""
    running = dict(zip(view.running["number"].tolist(), view.running_type.tolist(), strict=True))
    time_dependent = [job for job, kind in running.items() if job in chosen and chosen[job] != kind]
    for job in running:
        if job not in chosen or job in time_dependent:
            simulator.preempt(job)
    waiting = set(simulator.view().waiting["number"].tolist())
    for job, kind in chosen.items():
        if job in waiting:
            simulator.start(job, kind)


ROUNDS: dict[str, Rounds] = {
    "gavel": Rounds("gavel", max_min),
    "ftf": Rounds("ftf", finish_time_fair),
    "allox": Rounds("allox", allox),
}
"""Names of the policies that play in rounds."""


def round_based_policy(name: str) -> Rounds | None:
    """The round-based policy of that name; None: there is none."""
    return ROUNDS.get(name.strip().lower())
