"""Policies that give out GPU types in rounds: shares of each type first, then who has had least of its share.

Gavel (Narayanan et al., OSDI 2020): a linear program says for which part of the time each job should run on each type;
in every round the jobs furthest behind their share go first. The shares are made anew when jobs came or went.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kilowait.engine.gpu.simulator import GpuSimulator, GpuView
from kilowait.policies.allocation import ActiveJobs, allox, finish_time_fair, max_min

__all__ = ["ROUNDS", "Rounds", "StepPolicy", "step_decider"]

Floats = npt.NDArray[np.float64]
ROUND_S = 360.0


@runtime_checkable
class StepPolicy(Protocol):
    """Whoever decides a run on placed nodes step by step."""

    @property
    def name(self) -> str:
        """What logs call it."""

    @property
    def placing(self) -> tuple[tuple[str, Any], ...]:
        """How it is meant to run, as settings that differ from the usual."""

    def play(self, simulator: GpuSimulator) -> None:
        """Take the run to its end."""


@dataclass(frozen=True)
class Rounds:
    """Shares by a policy, kept round by round."""

    name: str
    shares: Callable[[ActiveJobs], Floats]
    """(jobs, types): for which part of the time each job should run on each type."""
    placing: tuple[tuple[str, Any], ...] = (
        ("round_interval_s", ROUND_S),
        ("rounds", True),
        ("placement", "consolidate"),
    )

    def play(self, simulator: GpuSimulator) -> None:
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
            active = _active_jobs(simulator, view)
            present = tuple(int(number) for number in active.number)
            for job in present:
                had.setdefault(job, np.zeros(len(view.types)))
            if present != known:
                wanted = self.shares(active)
                known = present
            received = np.array([had[job] for job in present])
            chosen = _assign_types(active, wanted, received)
            _apply_assignment(simulator, view, chosen)
            running = simulator.view()
            where = dict(zip(running.running["number"].tolist(), running.running_type.tolist(), strict=True))


def _active_jobs(simulator: GpuSimulator, view: GpuView) -> ActiveJobs:
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


def _assign_types(active: ActiveJobs, wanted: Floats, received: Floats) -> dict[int, int]:
    """The type each job gets in this round: those furthest behind their share first, while there is room."""
    total = received.sum(0)
    part = received / np.where(total > 0, total, 1.0)
    behind = np.where(part > 0, wanted / np.where(part > 0, part, 1.0), wanted * 1e9)
    jobs, types = np.nonzero((wanted > 1e-6) & (active.speed > 0))
    order = np.lexsort((active.number[jobs], -active.speed[jobs, types], -behind[jobs, types]))
    left = active.capacity.copy()
    chosen: dict[int, int] = {}
    for place in order:
        job, kind = int(jobs[place]), int(types[place])
        number = int(active.number[job])
        if number not in chosen and left[kind] >= active.gpus[job]:
            chosen[number] = kind
            left[kind] -= active.gpus[job]
    # GPUs that nobody's share asks for in this round go to whoever is left.
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


def step_decider(policy: object) -> StepPolicy | None:
    """The policy if it decides step by step; None: it is a rule."""
    if isinstance(policy, str):
        return ROUNDS.get(policy.strip().lower())
    return policy if isinstance(policy, StepPolicy) else None
