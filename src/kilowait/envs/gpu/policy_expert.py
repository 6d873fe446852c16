"""Expert for `kilowait/Gpu-v0`: the actions that a priority policy would choose, for imitation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.engine.gpu.state import RUNNING
from kilowait.engine.interface import PriorityPolicy
from kilowait.envs.gpu.vector_env import GpuVectorEnv
from kilowait.errors import InputError

__all__ = ["GpuPolicyExpert"]


class GpuPolicyExpert:
    """Starts the first eligible job in the order of a priority policy, where placement puts it.

    Without preemption a waiting job has never run: srtf, srsf, las and tiresias order jobs with the estimate as
    remaining time and no attained service. With preemption the policy must be a preemptive one (srtf, srsf, las), and
    jobs are scored by their current state. The first waiting job starts; if it does not fit, the expert preempts the
    last running job that is behind it in the order and frees enough by itself; if there is none, it tries the next
    waiting job.
    """

    def __init__(self, policy: PriorityPolicy, vec: GpuVectorEnv) -> None:
        """`policy`: a policy whose order does not change while jobs wait, unless the environment has preemption."""
        self.vec = vec
        if vec.decision_settings.preempt:
            if not dict(policy.gpu_settings).get("preempt") or len(policy.parameters):
                raise InputError(
                    f"the expert {policy.name!r} does not preempt, but this environment does; use a preemptive "
                    "policy: srtf, srsf or las"
                )
            self._score = getattr(policy.score, "py_func", policy.score)
        else:
            self._rank = static_rank(policy, vec)

    def choose(self) -> npt.NDArray[np.int64]:
        """(copies,) an action for each copy; ties go to the job submitted first."""
        if self.vec.decision_settings.preempt:
            return self._choose_with_preemption()
        buffers, slots, choices = (
            self.vec.simulator.buffers,
            self.vec.decision_settings.queue_window,
            self.vec.observation_spec.choices,
        )
        shown = np.arange(slots) < buffers.copies["shown"][:, None]
        allowed = buffers.mask[:, : slots * choices].reshape(-1, slots, choices) == 1
        numbers = np.where(shown, buffers.slots[:, :slots], 0)
        rank = np.where(shown & allowed.any(axis=2), self._rank[buffers.copies["first"][:, None] + numbers], np.inf)
        slot = rank.argmin(axis=1)
        copies = np.arange(len(slot))
        choice = allowed[copies, slot].argmax(axis=1)  # the first allowed choice: that of placement, if it is allowed
        actions: npt.NDArray[np.int64] = np.where(
            np.isinf(rank[copies, slot]), buffers.mask.argmax(axis=1), slot * choices + choice
        )
        return actions

    def _choose_with_preemption(self) -> npt.NDArray[np.int64]:
        buffers, s, slots = (
            self.vec.simulator.buffers,
            self.vec.simulator.states,
            self.vec.decision_settings.queue_window,
        )
        choices, rows = self.vec.observation_spec.choices, self.vec.decision_settings.rows
        numbers = buffers.slots[:, :rows]
        copies = np.arange(len(numbers))[:, None]
        job_state = s.job_state[copies, numbers]
        seen: Any = self._job_records(job_state, s.jobs[copies, numbers], s.clock["now"])
        keys: npt.NDArray[np.float64] = np.asarray(self._score(seen, 0.0, np.zeros(0)))
        types = s.nodes[copies, s.places[copies, np.minimum(job_state["place_lo"], s.places.shape[1] - 1), 0]]["type"]
        actions = np.where(buffers.mask[:, -1] == 1, buffers.mask.shape[1] - 1, buffers.mask.argmax(axis=1))
        for b in range(len(numbers)):
            shown, victims = (int(buffers.copies["shown"][b]), slots + np.arange(int(buffers.copies["victims"][b])))
            for slot in np.argsort(keys[b, :shown], kind="stable"):
                allowed = buffers.mask[b, slot * choices : (slot + 1) * choices]
                if allowed.any():
                    actions[b] = slot * choices + allowed.argmax()
                    break
                waiting_job, running_jobs = job_state[b, slot], job_state[b, victims]
                eligible = keys[b, victims] > keys[b, slot]
                eligible &= s.speed[0, waiting_job["speed_class"], types[b, victims]] > 0
                for need in ("pieces", "gpus", "gpu_milli", "cpu", "memory"):
                    eligible &= running_jobs[need] >= waiting_job[need]
                if eligible.any():
                    last = victims[np.where(eligible, keys[b, victims], -np.inf).argmax()]
                    actions[b] = last * choices
                    break
        return actions.astype(np.int64)

    def _job_records(
        self, job_state: npt.NDArray[Any], seen: npt.NDArray[Any], now: npt.NDArray[np.float64]
    ) -> npt.NDArray[Any]:
        """The job records that a policy scores, at the current time."""
        runs = job_state["status"] == RUNNING
        records = seen.copy()
        records["attained_s"] = job_state["attained_s"] + np.where(runs, now - job_state["start_s"], 0.0)
        progress = np.where(runs & (now > job_state["since"]), (now - job_state["since"]) * job_state["rate"], 0.0)
        records["remaining_s"] = np.maximum(job_state["estimate_s"] - job_state["done"] - progress, 1.0)
        return records.view(np.recarray)

    def close(self) -> None:
        """Close the environment."""
        self.vec.close()


def static_rank(policy: PriorityPolicy, vec: GpuVectorEnv) -> npt.NDArray[np.float64]:
    """(jobs,) rank of every job of the log in the order of a policy, assuming that none has run yet."""
    if policy.half_life_s > 0:
        raise InputError(
            f"{policy.name!r} depends on the usage of users, so it has no static order to imitate; "
            "use srtf, sjf, qssf or another policy of the job alone"
        )
    values = policy.parameters if policy.prepare is None else policy.prepare(vec.jobs, vec.cluster)
    score, parameters = (getattr(policy.score, "py_func", policy.score), np.ascontiguousarray(values, np.float64))
    jobs = vec.simulator.log_arrays.jobs.copy().view(np.recarray)
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
            f"the order of {policy.name!r} changes while jobs wait; an expert on a GPU cluster must be a policy with a "
            "static order, such as srtf, sjf or qssf"
        )
    rank = np.empty(len(jobs))
    rank[orders[0]] = np.arange(len(jobs))
    return rank
