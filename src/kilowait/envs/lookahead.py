"""Look-ahead policy: at every decision it simulates some candidates and chooses the one with the lowest cost.

It is a policy for whole runs, and an expert for imitation learning (see `envs.expert`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.jit_entry import PARAMETERS_TYPE, SCORE_FUNCTION_TYPE
from kilowait.engine.kernels.event_loop import advance
from kilowait.engine.kernels.jit import compile_entry
from kilowait.engine.kernels.queue import end_pass
from kilowait.engine.kernels.reservations import begin_pass
from kilowait.engine.kernels.scheduling_pass import backfill
from kilowait.engine.kernels.state import State
from kilowait.engine.policy import RunInputs, refuse_max_wait, settings_of
from kilowait.engine.settings import UNLIMITED
from kilowait.engine.simulator import Simulator
from kilowait.envs.batch_env import external_policy
from kilowait.envs.kernels.decision_batch import HEAD, any_fits, apply_choice, eligible, zero_score
from kilowait.envs.kernels.lookahead import LookaheadState, best_choice, copy_state, score_of, work_arrays_for
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import resolve
from kilowait.settings import named_parameters

OBJECTIVES = ("bsld", "wait")
"""Cost of a waiting job in a simulated future: bounded slowdown, with the estimate as run time, or wait."""
MAX_WIDTH, MAX_DEPTH = 1024, 1_000_000
LOOKAHEAD = "lookahead"


@dataclass(frozen=True)
class LookAhead:
    """Look-ahead (rollout) policy: choose the next job by simulating each candidate; backfill by the base policy.

    Candidates are the first `width` - 1 jobs by the base policy and the oldest job (with a width of 1 only the first,
    which is the base policy itself). For each candidate the engine simulates the future: the candidate starts, or gets
    the earliest reservation, then the base policy decides. No job arrives, and jobs end after their estimates.

    >>> import kilowait as kw
    >>> jobs = kw.lublin(200, 64, load=1.0, seed=2)
    >>> log = kw.simulate(jobs, kw.Cluster.from_nodes(64), LookAhead("saf", width=8), "easy")
    >>> log.run["policy"]
    'lookahead:base=saf:width=8:depth=64'
    """

    base: str | PriorityPolicy = "saf"
    """Policy that decides in simulated futures: a name, or a compiled priority policy."""
    width: int = 32
    """Maximum candidates of a decision."""
    depth: int = 64
    """Starts in a simulated future; jobs that still wait then count as starting at its end."""
    objective: str = "bsld"
    """One of OBJECTIVES, summed over the waiting jobs."""

    def __post_init__(self) -> None:
        for parameter, value, maximum in (("width", self.width, MAX_WIDTH), ("depth", self.depth, MAX_DEPTH)):
            if not 1 <= value <= maximum:
                raise InputError(f"the {parameter} of look-ahead is {value}; give a whole number from 1 to {maximum:,}")
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective of look-ahead", self.objective, OBJECTIVES)
        base = self._base_policy
        if not base.compiled or base.node_level or base.half_life_s > 0 or base.predicts:
            raise InputError(
                f"look-ahead cannot simulate {base.name!r}, which is not compiled, is for GPU clusters, "
                "predicts run times or depends on the usage of users; use saf, sjf, f1 or another "
                "policy of the job and the time alone"
            )

    @classmethod
    def from_text(cls, text: str) -> LookAhead:
        """The policy that a text of the command line names.

        >>> LookAhead.from_text("lookahead:base=sjf:width=4")
        LookAhead(base='sjf', width=4, depth=64, objective='bsld')
        """
        prefix = text.strip().partition(":")[0]
        if prefix != LOOKAHEAD:
            raise InputError(f"{text!r} is not a look-ahead policy; write {LOOKAHEAD}:base=saf:width=8")
        known = [field.name for field in fields(cls)]
        parameters: dict[str, Any] = {}
        for key, value in named_parameters("policy", text, known).items():
            if key in ("width", "depth"):
                if not (value.isascii() and value.isdigit()):
                    raise InputError(f"policy {text!r}: {key} is {value!r}, which is not a whole number")
                parameters[key] = int(value)
            else:
                parameters[key] = value
        return cls(**parameters)

    @property
    def _base_policy(self) -> PriorityPolicy:
        return resolve(self.base)

    @property
    def name(self) -> str:
        """Name in logs; `from_text` reads it if the base policy has a plain name."""
        objective_text = "" if self.objective == OBJECTIVES[0] else f":objective={self.objective}"
        return f"{LOOKAHEAD}:base={self._base_policy.name}:width={self.width}:depth={self.depth}{objective_text}"

    def work_arrays(self, state: State) -> LookaheadState:
        """Work arrays to simulate decisions in this state."""
        return work_arrays_for(
            state, self.width, self.depth, self.objective == "wait", self._base_policy.time_dependent
        )

    def scoring(self, jobs: JobTable, cluster: Cluster) -> tuple[Any, npt.NDArray[np.float64]]:
        """Score function and parameters of the base policy for these jobs, for the kernels."""
        policy = self._base_policy
        values = policy.parameters if policy.prepare is None else policy.prepare(jobs, cluster)
        return policy.score, np.ascontiguousarray(values, np.float64)

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Run the jobs with this policy."""
        jobs, cluster, settings = inputs.jobs, inputs.cluster, settings_of(inputs, self.name)
        if cluster.node_level or cluster.outages or cluster.reservations:
            raise InputError(
                f"cluster {cluster.name!r} has node-level (GPU) groups, outages or reservations, which look-ahead "
                "does not simulate; use a cluster without them, or another policy"
            )
        refuse_max_wait(settings, self.name)
        if settings.depth == UNLIMITED or settings.schedule_per == "event":
            raise InputError(
                f"backfill is {settings.backfill!r} and schedule_per {settings.schedule_per!r}; look-ahead needs "
                "schedule_per='instant' and backfill none, easy or a number of reservations"
            )
        if self._base_policy.placement is not None:
            settings = replace(settings, placement=self._base_policy.placement)
        simulator = Simulator(
            jobs,
            cluster,
            settings,
            policy=replace(external_policy(), name=self.name),
            power_controls=inputs.power_controls,
        )
        if simulator.power_controls is not None:
            raise InputError(
                "look-ahead does not simulate power controls or load shifting; leave power controls and "
                "hold_until_s out, or use another policy"
            )
        state: State = simulator.state
        state = state._replace(need=state.need.copy())  # of the same type as in the work arrays
        work_arrays = self.work_arrays(state)
        run_for(state, work_arrays)(state, work_arrays, *self.scoring(simulator.table, cluster))
        self.raise_on_nan(state, simulator.table)
        return simulator.log()

    def raise_on_nan(self, state: State, jobs: JobTable) -> None:
        """Raise an error if the base policy gave some job the score NaN."""
        bad = int(np.max(state.clock["bad_score"]))
        if bad:
            raise InputError(
                f"the base policy {self._base_policy.name!r} of look-ahead gave a job (number {bad - 1} of "
                f"{len(jobs):,}) the score NaN; a score must be a number (inf is one)"
            )


def _run(s: Any, a: Any, score: Any, parameters: Any) -> None:
    """The whole run: as `decision_batch.advance_to_decision`, with look-ahead at every decision."""
    no_parameters = s.timeline_s  # placeholder for policy parameters
    k = s.clock[0]
    while k.bad_score == 0 and advance(s, zero_score, no_parameters, zero_score, no_parameters):
        if k.queue_hi == k.queue_lo:
            continue
        if not any_fits(s):
            k.new_arrivals = 0
            continue
        begin_pass(s, True)
        for i in range(k.queue_lo, k.queue_hi):
            s.queue[i].key = 0.0
        while k.open_groups != 0 and any_fits(s):
            for i in range(k.queue_lo, k.queue_hi):
                a.slot[i - k.queue_lo] = 0 if eligible(s, HEAD, i) else -1
            copy_state(s, a, score, parameters)
            chosen = best_choice(a, score, parameters)
            if chosen < 0:
                break
            apply_choice(s, s, s.queue[k.queue_lo + chosen].job)
        if k.depth > 0 and any_fits(s):
            for i in range(k.queue_lo, k.queue_hi):
                s.queue[i].key = score_of(s, s.queue[i].job, a.plan[0].time_dependent, score, parameters)
            backfill(s, k.queue_lo, False, -1, 0, zero_score, no_parameters)
        end_pass(s)


@cache
def _compiled(state: Any, work_arrays: Any) -> Callable[..., Any]:
    signature = types.void(state, work_arrays, SCORE_FUNCTION_TYPE, PARAMETERS_TYPE)
    return compile_entry(_run, signature, "envs", announced=("look-ahead", "30 s"))


def run_for(state: State, work_arrays: LookaheadState) -> Callable[..., Any]:
    """Kernel (state, stage, score, parameters) of a whole run, compiled for the types of these arrays."""
    if numba.config.DISABLE_JIT:
        return _compiled(types.int64, types.int64)
    return _compiled(numba.typeof(state), numba.typeof(work_arrays))
