"""Many copies at once as Gymnasium has them: one call into the engine a step, on as many threads as asked.

`CopiesVectorEnv` is the face of all our envs; each of them adds what it is made of.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kilowait.cluster import Cluster
from kilowait.envs.batched_sim import BatchedSimulator, DecisionSettings
from kilowait.envs.batched_sim_base import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    BatchedSimulatorBase,
    Observation,
)
from kilowait.envs.observation_spec import ObservationSpec, of_preferences
from kilowait.envs.preferences import EpisodePreferences, Preferences
from kilowait.envs.reward_terms import TERMS, Reward
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.rng import stream

__all__ = [
    "MODES",
    "BatchVectorEnv",
    "EngineVectorEnv",
    "check_sizes",
    "plain_jobs",
    "default_reward",
    "space_of",
]

MODES = {
    AutoresetMode.NEXT_STEP: NEXT_STEP,
    AutoresetMode.SAME_STEP: SAME_STEP,
    AutoresetMode.DISABLED: DISABLED,
}
"""Gymnasium's modes, as boards take them."""
Stepped = tuple[
    Observation, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]
]


class EngineVectorEnv(VectorEnv[Observation, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Copies of a run, each on its own window of the log, as a vector env."""

    term_names: tuple[str, ...] = ()
    """Of the reward; a step's infos have each by its name, one number a copy."""
    reward: Reward

    def __init__(
        self,
        board: BatchedSimulatorBase,
        seen: ObservationSpec,
        jobs: JobTable,
        *,
        episode_jobs: int,
        autoreset_mode: AutoresetMode,
        copy: bool,
        seed: int,
        preferences: Mapping[str, float] | None = None,
    ) -> None:
        """The face of this board, which shows what `seen` says; episodes are windows of `jobs`."""
        self.board, self.seen, self.jobs, self.episode_jobs = board, seen, jobs, episode_jobs
        self.autoreset_mode = autoreset_mode
        self.num_envs, self.copy = board.copies, copy
        self.drawn: EpisodePreferences | None = None
        self._parts = np.array([[0, len(jobs)]])
        self._weights: list[float] | None = None
        self.single_action_space = spaces.Discrete(seen.actions)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {"autoreset_mode": autoreset_mode, "render_modes": []}
        self._show(seen)
        self._seed_windows(seed)
        if preferences is not None:
            self.draw_preferences(preferences, seed=seed)

    def draw_preferences(self, units: Mapping[str, float], *, seed: int = 0) -> None:
        """From the next reset on, draw the weights of these terms for every episode, show them, and pay by them.

        Args:
            units: term to its unit; an episode costs the sum of weight x figure / unit.
            seed: of the weights, until `reset` is given one.
        """
        preferences = Preferences(units, tuple(self.reward.terms))
        if self.drawn is not None:
            raise InputError("this env draws preferences already; make another one for other terms")
        self.drawn = EpisodePreferences(preferences, self.num_envs, seed)
        self._show(replace(self.seen, summary=(*self.seen.summary, *of_preferences(preferences.terms))))

    def _show(self, seen: ObservationSpec) -> None:
        self.seen = seen
        self.single_observation_space = space_of(seen)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    @property
    def spec_of_observation(self) -> ObservationSpec:
        """The shape of what is shown: what a network is built for."""
        return self.seen

    def _seed_windows(self, seed: int) -> None:
        self._random = stream(seed, "envs.windows")
        self._draw(np.ones(self.num_envs, np.bool_))

    def _draw(self, which: npt.NDArray[np.bool_]) -> None:
        """Where the next episodes of these copies begin."""
        count = int(which.sum())
        low, high = self._parts[0]
        if self._weights is not None:
            low, high = self._parts[self._random.choice(len(self._parts), count, p=self._weights)].T
        first = self._random.integers(low, high - self.episode_jobs + 1, count)
        self.board.scene.copies["next_first"][which] = first

    def set_episode_ranges(self, parts: Sequence[tuple[int, int]], weights: Sequence[float]) -> None:
        """Let episodes that begin from now on lie in parts of the log; none reaches over the end of its part.

        Args:
            parts: first row of each part by submission, and the row after its last.
            weights: how often each is drawn from; they sum to 1.
        """
        for low, high in parts:
            if not 0 <= low <= high - self.episode_jobs <= len(self.jobs) - self.episode_jobs:
                raise InputError(
                    f"a part has rows {low:,} to {high:,} of {len(self.jobs):,}, and an episode {self.episode_jobs:,} "
                    "jobs; take shorter episodes, or more jobs"
                )
        if len(weights) != len(parts) or min(weights) < 0 or not np.isclose(sum(weights), 1.0):
            raise InputError(f"{len(parts)} parts have the weights {list(weights)}; give one each, sum 1")
        self._parts, self._weights = np.array(parts), list(weights)
        self._draw(np.ones(self.num_envs, np.bool_))

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin episodes: of all copies, or of those in ``options["reset_mask"]``.

        ``options["first"]``, one row of the log for all or one a copy, says where they begin; where preferences are
        drawn, ``options["preference"]``, a mapping from terms to weights or an array, one row a copy, is taken instead.
        """
        which = np.ones(self.num_envs, np.bool_)
        options = options or {}
        if "reset_mask" in options:
            which = np.ascontiguousarray(options["reset_mask"], np.bool_)
            if which.shape != (self.num_envs,) or not which.any():
                raise InputError(
                    f"reset_mask has shape {which.shape}; give {self.num_envs} booleans, at least one of them true"
                )
        if seed is not None:
            only = seed if isinstance(seed, int) else next((s for s in seed if s is not None), 0)
            self._seed_windows(only)
            if self.drawn is not None:
                self.drawn.seed(only)
        if "first" in options:
            first = np.asarray(options["first"], np.int64)
            last = len(self.jobs) - self.episode_jobs
            if first.shape not in ((), (self.num_envs,)) or (first < 0).any() or (first > last).any():
                raise InputError(
                    f"episodes are to begin at rows {first}; give rows from 0 to {last}, one a copy"
                )
            self.board.scene.copies["next_first"][which] = np.broadcast_to(first, self.num_envs)[which]
        if self.drawn is not None:
            self.drawn.begin(which, options.get("preference"))
        elif "preference" in options:
            raise InputError("this env draws no preferences; make it with preferences={term: unit, ...}")
        self.board.begin(which)
        self._draw(which)
        return self._observed(), {}

    def _observed(self) -> Observation:
        seen = self.board.observed(self.copy)
        return seen if self.drawn is None else self.drawn.shown(seen)

    def step(self, actions: npt.NDArray[np.int64]) -> Stepped:
        """One decision in each copy. An action the mask forbids is replaced by the first it allows, and counted."""
        choice = np.ascontiguousarray(actions, np.int64)
        if choice.shape != (self.num_envs,) or choice.min() < 0 or choice.max() >= self.seen.actions:
            raise InputError(
                f"actions {choice}; give {self.num_envs} whole numbers from 0 to {self.seen.actions - 1}"
            )
        a = self.board.scene
        if self.autoreset_mode is AutoresetMode.DISABLED and a.over.any():
            raise gym.error.ResetNeeded("some episodes are over; reset them with options={'reset_mask': ...}")
        before = None if self.drawn is None else a.over.copy()
        self.board.step(choice)
        terms = a.terms.copy()
        infos: dict[str, Any] = {"terms": terms, **dict(zip(self.term_names, terms.T, strict=False))}
        over = a.over.copy()
        cut = self.board.truncated()
        if over.any():
            self._draw(over)
            infos |= self._ended(over)
        reward = a.reward.copy()
        if self.drawn is not None and before is not None:
            reward = -self.drawn.cost(terms)
            self.drawn.begin(over if self.autoreset_mode is AutoresetMode.SAME_STEP else before)
        return self._observed(), reward, over & ~cut, over & cut, infos

    def _ended(self, over: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """What is told of episodes that ended."""
        a = self.board.scene
        done = a.finished.copy()
        told: dict[str, Any] = {
            "episode": {
                "r": done[:, 0],
                "l": done[:, 1].astype(np.int64),
                "invalid": done[:, 2].astype(np.int64),
                "metric": done[:, 3:] @ a.weights,
                "terms": done[:, 3:],
            },
            "_episode": over,
        }
        if self.drawn is not None:
            cost = self.drawn.cost(done[:, 3:])
            told["episode"] |= {"r": -cost, "metric": cost, "preference": self.drawn.weights.copy()}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            last = self.board.final_observation()
            told["final_obs"] = last if self.drawn is None else self.drawn.shown(last)
            told["_final_obs"] = over
        return told

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """(copies, actions): which actions may be taken."""
        masks: npt.NDArray[np.bool_] = self.board.scene.mask.astype(np.bool_)
        return masks

    def set_arrival_rate(self, factor: float) -> None:
        """Let the arrivals of episodes that begin from now on come `factor` times as fast as in the log."""
        if not (np.isfinite(factor) and factor > 0):
            raise InputError(f"arrivals are to come {factor} times as fast; give a number above 0")
        self.board.scene.copies["pace"] = factor

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that the next steps depend on, as plain arrays, for `restore`."""
        state = repr(self._random.bit_generator.state).encode()
        drawn = {} if self.drawn is None else self.drawn.snapshot()
        return {**self.board.snapshot(), "random": np.frombuffer(state, np.uint8).copy(), **drawn}

    def restore(self, kept: Mapping[str, npt.NDArray[Any]]) -> Observation:
        """Go on exactly where `snapshot` was taken; the env must be made with the same arguments."""
        kept = kept if self.drawn is None else self.drawn.restore(kept)
        self.board.restore({name: array for name, array in kept.items() if name != "random"})
        self._random.bit_generator.state = ast.literal_eval(kept["random"].tobytes().decode())
        return self._observed()

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self.board.close()


class BatchVectorEnv(EngineVectorEnv):
    """Copies of a batch system, each on its own window of the log, all asked "who is next?".

    >>> import gymnasium, kilowait as kw
    >>> jobs = kw.lublin(jobs=300, nodes=64, seed=1)
    >>> vec = gymnasium.make_vec(
    ...     "kilowait/Batch-v0",
    ...     num_envs=4,
    ...     vectorization_mode="vector_entry_point",
    ...     jobs=jobs,
    ...     cluster=kw.Cluster.from_nodes(64),
    ... )
    >>> seen, _ = vec.reset(seed=0)
    >>> seen["jobs"].shape, bool(seen["mask"].any())
    ((4, 128, 10), True)
    """

    term_names = tuple(TERMS)

    def __init__(
        self,
        num_envs: int = 1,
        *,
        jobs: JobTable,
        cluster: Cluster,
        episode_jobs: int = 256,
        reward: Mapping[str, float] | None = None,
        preferences: Mapping[str, float] | None = None,
        sla_s: float = 4 * 3600.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        copy: bool = True,
        seed: int = 0,
        **asking: Any,
    ) -> None:
        """`num_envs` copies.

        Args:
            num_envs: copies.
            jobs: the log; episodes are windows of it. None is withdrawn in an episode, and none waits for another.
            cluster: the machine, without outages and reservations.
            episode_jobs: jobs in an episode.
            reward: weights of rewards.TERMS; None: {"slowdown": 1}.
            preferences: instead of a reward, terms whose weights are drawn anew for every episode, and the unit of
                each (`envs.preferences`).
            sla_s: wait beyond which the agreement is violated, seconds.
            autoreset_mode: as Gymnasium defines them.
            threads: of the engine; None: one a core.
            copy: whether observations are new arrays every step, or the same ones, overwritten.
            seed: of the windows, until `reset` is given one.
            asking: fields of `board.Asking`: slots, backfill, backfill_order, max_wait_s, hold, graph ...
        """
        check_sizes(num_envs, jobs, episode_jobs, threads)
        if cluster.node_level or cluster.outages or cluster.reservations:
            raise InputError(
                f"cluster {cluster.name!r} has placed nodes, outages or reservations; episodes of kilowait/Batch-v0 "
                "know none: take kilowait/Gpu-v0 for placed nodes, or a cluster without outages and reservations"
            )
        self.cluster, self.asking = cluster, DecisionSettings(**asking)
        self.reward = Reward(default_reward(reward, preferences, {"slowdown": 1.0}), sla_s)
        mode, table = AutoresetMode(autoreset_mode), plain_jobs(jobs)
        board = BatchedSimulator(
            table,
            cluster,
            self.asking,
            self.reward,
            copies=num_envs,
            episode_jobs=episode_jobs,
            autoreset=MODES[mode],
            threads=threads,
        )
        super().__init__(
            board,
            self.asking.seen,
            table,
            episode_jobs=episode_jobs,
            autoreset_mode=mode,
            copy=copy,
            seed=seed,
            preferences=preferences,
        )


def default_reward(
    reward: Mapping[str, float] | None, preferences: Mapping[str, float] | None, usual: Mapping[str, float]
) -> Mapping[str, float]:
    """The weights that are fixed; where preferences are drawn, the usual ones stand in and are not paid."""
    if reward is not None and preferences is not None:
        raise InputError("an env has a reward or draws preferences; leave one of the two out")
    return usual if reward is None else reward


def check_sizes(num_envs: int, jobs: JobTable, episode_jobs: int, threads: int | None) -> None:
    """An error unless such an env can be made of that log."""
    if num_envs < 1 or episode_jobs < 1 or (threads is not None and threads < 1):
        raise InputError(
            f"{num_envs} copies of {episode_jobs} jobs on {threads} threads; there must be at least 1 of each"
        )
    if len(jobs) < episode_jobs:
        raise InputError(
            f"an episode has {episode_jobs:,} jobs, the log {len(jobs):,}; take shorter episodes or a longer log"
        )


def plain_jobs(jobs: JobTable) -> JobTable:
    """The jobs as episodes know them: none is withdrawn or waits for another; begin_s is the submission."""
    return drop_dependencies(jobs).sorted()


def drop_dependencies(jobs: JobTable) -> JobTable:
    """The same in the order of the table."""
    if "begin_s" in jobs:
        jobs = jobs.with_columns(submit_s=np.maximum(jobs["submit_s"], jobs["begin_s"]))
    gone = [name for name in ("cancel_s", "after_id", "think_s", "begin_s") if name in jobs]
    return jobs.with_columns(**dict.fromkeys(gone))


def space_of(seen: ObservationSpec) -> spaces.Dict:
    """The space of observations of that shape."""
    shown: dict[str, spaces.Space[Any]] = {
        "jobs": spaces.Box(-np.inf, np.inf, (seen.slots, len(seen.features)), np.float32),
        "mask": spaces.Box(0, 1, (seen.actions,), np.int8),
        "summary": spaces.Box(-np.inf, np.inf, (len(seen.summary),), np.float32),
    }
    if seen.graph:
        shown["edges"] = spaces.Box(0, 7, (seen.slots, seen.slots), np.uint8)
    return spaces.Dict(shown)
