"""A rule as a teacher on placed nodes: what it would choose where copies of `kilowait/Gpu-v0` stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.engine.gpu.state import RUNNING
from kilowait.engine.interface import PriorityPolicy
from kilowait.envs.gpu.vector_env import GpuVectorEnv
from kilowait.errors import InputError

__all__ = ["GpuRuleExpert"]


class GpuRuleExpert:
    """The first job by a rule of those that may start, where placement likes.

    Where nobody is put out a job that waits has never run: of srtf, srsf, las and tiresias it is the order among such
    jobs that is taught, in which the remaining time is the estimate and nothing has been attained. Where jobs may be
    put out, the rule must be one that does so (srtf, srsf, las), and jobs are scored as they stand: the first that
    waits starts; or, of those that run behind it in the order and leave room enough by themselves, the last is put out;
    or the next is tried.
    """

    def __init__(self, rule: PriorityPolicy, vec: GpuVectorEnv) -> None:
        """`rule`: one of the job alone; one whose order changes while jobs wait is an error."""
        self.vec = vec
        if vec.asking.preempt:
            if not dict(rule.gpu_settings).get("preempt") or len(rule.parameters):
                raise InputError(
                    f"the teacher is {rule.name!r}, and in this environment jobs may be put out; take a rule that does "
                    "so: srtf, srsf or las"
                )
            self._score = getattr(rule.score, "py_func", rule.score)
        else:
            self._rank = static_rank(rule, vec)

    def choose(self) -> npt.NDArray[np.int64]:
        """(copies,) an action of each copy; of equals the job that came first."""
        if self.vec.asking.preempt:
            return self._choose_with_preemption()
        a, slots, choices = self.vec.board.scene, self.vec.asking.slots, self.vec.seen.choices
        there = np.arange(slots) < a.copies["shown"][:, None]
        may = a.mask[:, : slots * choices].reshape(-1, slots, choices) == 1
        numbers = np.where(there, a.slots[:, :slots], 0)
        rank = np.where(there & may.any(axis=2), self._rank[a.copies["first"][:, None] + numbers], np.inf)
        slot = rank.argmin(axis=1)
        copies = np.arange(len(slot))
        way = may[copies, slot].argmax(axis=1)  # the first that is allowed: where placement likes, if it may
        actions: npt.NDArray[np.int64] = np.where(
            np.isinf(rank[copies, slot]), a.mask.argmax(axis=1), slot * choices + way
        )
        return actions

    def _choose_with_preemption(self) -> npt.NDArray[np.int64]:
        a, s, slots = self.vec.board.scene, self.vec.board.stack, self.vec.asking.slots
        choices, rows = self.vec.seen.choices, self.vec.asking.rows
        numbers = a.slots[:, :rows]
        copies = np.arange(len(numbers))[:, None]
        job_state = s.job_state[copies, numbers]
        seen: Any = self._seen(job_state, s.seen[copies, numbers], s.clock["now"])
        keys: npt.NDArray[np.float64] = np.asarray(self._score(seen, 0.0, np.zeros(0)))
        kinds = s.nodes[
            copies, s.places[copies, np.minimum(job_state["place_lo"], s.places.shape[1] - 1), 0]
        ]["type"]
        actions = np.where(a.mask[:, -1] == 1, a.mask.shape[1] - 1, a.mask.argmax(axis=1))
        for b in range(len(numbers)):
            shown, victims = int(a.copies["shown"][b]), slots + np.arange(int(a.copies["victims"][b]))
            for slot in np.argsort(keys[b, :shown], kind="stable"):
                may = a.mask[b, slot * choices : (slot + 1) * choices]
                if may.any():
                    actions[b] = slot * choices + may.argmax()
                    break
                mine, others = job_state[b, slot], job_state[b, victims]
                enough = keys[b, victims] > keys[b, slot]
                enough &= s.speed[0, mine["kind"], kinds[b, victims]] > 0
                for need in ("pieces", "gpus", "gpu_milli", "cpu", "memory"):
                    enough &= others[need] >= mine[need]
                if enough.any():
                    last = victims[np.where(enough, keys[b, victims], -np.inf).argmax()]
                    actions[b] = last * choices
                    break
        return actions.astype(np.int64)

    def _seen(
        self, job_state: npt.NDArray[Any], seen: npt.NDArray[Any], now: npt.NDArray[np.float64]
    ) -> npt.NDArray[Any]:
        """The records a rule looks at, as of now."""
        runs = job_state["status"] == RUNNING
        found = seen.copy()
        found["attained_s"] = job_state["attained_s"] + np.where(runs, now - job_state["start_s"], 0.0)
        work = np.where(
            runs & (now > job_state["since"]), (now - job_state["since"]) * job_state["rate"], 0.0
        )
        found["remaining_s"] = np.maximum(job_state["estimate_s"] - job_state["done"] - work, 1.0)
        return found.view(np.recarray)

    def close(self) -> None:
        """Let go of the copies."""
        self.vec.close()


def static_rank(rule: PriorityPolicy, vec: GpuVectorEnv) -> npt.NDArray[np.float64]:
    """(jobs,) the place of every job of the log in the order of a rule, if none of them has run yet."""
    if rule.half_life_s > 0:
        raise InputError(
            f"{rule.name!r} looks at what users have used, which no order of jobs alone can teach; "
            "take srtf, sjf, qssf or another rule of the job"
        )
    values = rule.parameters if rule.prepare is None else rule.prepare(vec.jobs, vec.cluster)
    score, parameters = getattr(rule.score, "py_func", rule.score), np.ascontiguousarray(values, np.float64)
    jobs = vec.board.source.seen.copy().view(np.recarray)
    jobs["submit_s"] = vec.jobs["submit_s"]
    jobs["since_first_s"] = jobs["submit_s"] - jobs["submit_s"].min(initial=np.inf)
    jobs["remaining_s"] = np.maximum(jobs["estimate_s"], 1.0)
    orders = []
    last_s = float(jobs["submit_s"].max(initial=0.0))
    for overrun_planned_s in (0.0, 3600.0, 10 * 86400.0):
        jobs["waited_s"] = last_s + overrun_planned_s - jobs["submit_s"]
        scores = np.array([score(job, last_s + overrun_planned_s, parameters) for job in jobs], np.float64)
        orders.append(np.argsort(scores, kind="stable"))
    if any(not np.array_equal(orders[0], order) for order in orders[1:]):
        raise InputError(
            f"the order of {rule.name!r} changes while jobs wait; a teacher on placed nodes must be a rule whose order "
            "stays, such as srtf, sjf or qssf"
        )
    rank = np.empty(len(jobs))
    rank[orders[0]] = np.arange(len(jobs))
    return rank
