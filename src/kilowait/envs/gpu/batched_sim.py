"""The arrays of many copies of a run on placed nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.gpu.settings import PLACEMENTS, GpuSettings
from kilowait.engine.gpu.state import GpuState
from kilowait.engine.interface import PriorityPolicy
from kilowait.envs.batched_sim_base import BatchedSimulatorBase, Observation
from kilowait.envs.gpu.observation_spec import feature_names, summary_names, type_names
from kilowait.envs.gpu.reward_terms import TERMS
from kilowait.envs.kernels.state_stack_gpu import (
    COPY,
    source_of,
    stack_of,
    window_of,
)
from kilowait.envs.kernels.step_gpu import HOW, GpuStepBuffers, step_for
from kilowait.envs.observation_spec import ObservationSpec
from kilowait.envs.reward_terms import Reward
from kilowait.errors import InputError, UnknownNameError

__all__ = ["GpuDecisionSettings", "GpuBatchedSimulator", "asker"]

_TABLED = ("fgd", "capacity")
"""Placements that need a table of pieces, of which a state has one."""


def asker(name: str = "agent") -> PriorityPolicy:
    """Whoever is asked, as the engine sees it: somebody whose order may change at every pass."""
    return PriorityPolicy(name, _nothing, time_dependent=True)


def _nothing(job: Any, now: float, parameters: Any) -> float:
    return 0.0


@dataclass(frozen=True)
class GpuDecisionSettings:
    """What is asked and shown at a decision.

    Action ``slot * choices + choice``: of a waiting job, choice 0 is where placement and the settings' rule of types
    like, choice 1 + t on type t. With several `placements` choices come in as many rows, one after another. Then, with
    `preempt`, slots of running jobs (of which choice 0 puts the job out, and no other may be chosen); last, `hold`.
    """

    slots: int = 128
    """Waiting jobs shown at once."""
    by_type: bool = True
    """Whether the type can be chosen; else choice 0 is the only one."""
    placements: tuple[str, ...] = ()
    """Placements to choose from, for instance consolidate and worst; (): that of the settings."""
    hold: bool = False
    """Whether there is an action, the last, that chooses nobody until the next event; with `preempt` there is."""
    preempt: bool = False
    """Whether running jobs may be put out."""
    victims: int = 16
    """Running jobs shown at once, where they may be."""
    restarts: int = 4
    """How often a job may be put out or moved."""
    graph: bool = False
    """Whether the edges between jobs are shown."""
    max_wait_s: float = np.inf
    """Until a job that has waited longer than this, seconds, has started, nobody else does on types it may use."""

    def __post_init__(self) -> None:
        if self.slots < 1 or not self.max_wait_s > 0 or self.victims < 1 or self.restarts < 1:
            raise InputError(
                f"{self.slots} slots, {self.victims} victims, {self.restarts} restarts, waits of at most "
                f"{self.max_wait_s} s; give at least 1 of each and a wait above 0"
            )
        for name in self.placements:
            if name not in PLACEMENTS:
                raise UnknownNameError("placement rule", name, PLACEMENTS)
        if len(set(self.placements)) < len(self.placements) or set(self.placements) >= set(_TABLED):
            raise InputError(
                f"placements to choose from are {', '.join(self.placements)}; name each once, and of fgd and capacity "
                "only one"
            )

    def starts(self, placing: GpuSettings) -> int:
        """How often a job may start."""
        return 1 + self.restarts if self.preempt or placing.migrate else 1

    @property
    def rows(self) -> int:
        """Slots of waiting and running jobs together."""
        return self.slots + (self.victims if self.preempt else 0)

    def settings(self, placing: GpuSettings) -> GpuSettings:
        """How the run goes, with a placement among those that can be chosen."""
        tabled = [name for name in self.placements if name in _TABLED]
        changed = {"placement": (tabled or self.placements)[0]} if self.placements else {}
        return GpuSettings(**{**vars(placing), **changed})

    def codes(self, placing: GpuSettings) -> npt.NDArray[np.int64]:
        """Numbers of the placements that can be chosen."""
        return np.array([list(PLACEMENTS).index(name) for name in self.placements or (placing.placement,)])

    def seen(self, cluster: Cluster) -> ObservationSpec:
        """The shape of what is shown."""
        types = type_names(cluster)
        choices = max(len(self.placements), 1) * (1 + len(types) if self.by_type else 1)
        extra = int(self.hold or self.preempt)
        return ObservationSpec(
            feature_names(types), summary_names(types), self.rows, choices, extra, self.graph
        )


class GpuBatchedSimulator(BatchedSimulatorBase):
    """Copies of a run side by side, each on its own window of the log."""

    def __init__(
        self,
        whole: GpuState,
        cluster: Cluster,
        asking: GpuDecisionSettings,
        placing: GpuSettings,
        reward: Reward,
        *,
        copies: int,
        episode_jobs: int,
        autoreset: int,
        horizon_s: float = np.inf,
        threads: int | None = None,
        own: bool = False,
    ) -> None:
        """`whole`: the state of all jobs before the first event; with `own`, the one copy moves that very state."""
        seen, terms = asking.seen(cluster), len(TERMS)
        source = source_of(whole, asking.codes(placing))
        if own:
            views: list[Any] = [array[None] for array in whole]
            stack = GpuState(*views)
        else:
            stack = stack_of(window_of(whole, episode_jobs, asking.starts(placing), copies), copies)
        how = np.zeros(1, HOW).view(np.recarray)
        how["gpus"] = max(int(whole.nodes["gpus"].sum()), 1)
        how["widest"] = max(int(whole.nodes["gpus"].max()), 1)
        how["max_wait_s"], how["sla_s"], how["horizon_s"] = asking.max_wait_s, reward.sla_s, horizon_s
        how["choices"], how["by_type"], how["hold"] = seen.choices, asking.by_type, seen.extra
        how["victims"], how["starts"] = seen.slots - asking.slots, asking.starts(placing)
        how["autoreset"] = autoreset
        n = stack.job_state.shape[1]
        shape = (copies, seen.slots, len(seen.features))
        kept = copies if np.isfinite(horizon_s) else 0
        edges = seen.slots if seen.graph else 0
        scene = GpuStepBuffers(
            how=how,
            weights=reward.vector(),
            copies=np.zeros(copies, COPY).view(np.recarray),
            jobs=np.zeros(shape, np.float32),
            mask=np.zeros((copies, seen.actions), np.int8),
            summary=np.zeros((copies, len(seen.summary)), np.float32),
            slots=np.zeros((copies, seen.slots), np.int64),
            edges=np.zeros((copies, edges, edges), np.uint8),
            free=np.zeros((copies, whole.speed.shape[1] if edges else 0, 2), np.int64),
            found=np.full((copies, len(whole.failed), 2), -1),
            alive=np.zeros((copies, n), np.int64),
            owed=np.full((copies, n if asking.preempt else 0), -1),
            reward=np.zeros(copies),
            terms=np.zeros((copies, terms)),
            settled=np.zeros((copies, 7)),
            paid=np.zeros((copies, terms)),
            over=np.zeros(copies, np.bool_),
            cut=np.zeros(copies, np.bool_),
            last_jobs=np.zeros((kept, *shape[1:]), np.float32),
            last_mask=np.zeros((kept, seen.actions), np.int8),
            last_edges=np.zeros((kept, edges, edges), np.uint8),
            last_summary=np.zeros((copies, len(seen.summary)), np.float32),
            finished=np.zeros((copies, 3 + terms)),
        )
        scene.copies["pace"] = 1.0
        scene.copies["until_s"] = np.inf
        super().__init__(step_for(stack, scene, source), stack, scene, source, copies, threads)

    def observed(self, copy: bool = True) -> Observation:
        """What is shown now, as new arrays or as those that the next step overwrites."""
        shown = super().observed(copy)
        if self.scene.edges.size:
            shown["edges"] = self.scene.edges.copy() if copy else self.scene.edges
        return shown

    def final_observation(self) -> Observation:
        """What was seen last of episodes that ended in this step and began anew at once."""
        last = super().final_observation()
        if len(self.scene.last_jobs):
            last |= {"jobs": self.scene.last_jobs.copy(), "mask": self.scene.last_mask.copy()}
            last |= {"edges": self.scene.last_edges.copy()} if self.scene.edges.size else {}
        return last

    def truncated(self) -> npt.NDArray[np.bool_]:
        """Which of the episodes that are over were cut off at their horizon."""
        cut: npt.NDArray[np.bool_] = self.scene.cut.copy()
        return cut

    def _moving(self) -> dict[str, npt.NDArray[Any]]:
        return {name: array for name, array in super()._moving().items() if array.nbytes}
