"""Vector environments: all copies are stepped by one call into the engine, on several threads.

`EngineVectorEnv` is the base class of the three environments, which add a batched simulator and its settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kilowait.cluster import Cluster
from kilowait.envs.batched_sim import (
    BatchedSimulator,
    CopySettings,
    Observation,
    checked_actions,
    random_state_bytes,
    restore_random_state,
)
from kilowait.envs.custom_functions import CustomFunctions, Feature, check_features
from kilowait.envs.kernels.state_stack import DISABLED, NEXT_STEP, SAME_STEP
from kilowait.envs.observation_spec import ObservationSpec, preference_summary
from kilowait.envs.preferences import EpisodePreferences, Preferences
from kilowait.envs.reward_terms import TERMS, Reward, RewardWeights, default_reward
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.rng import stream

MODES = {AutoresetMode.NEXT_STEP: NEXT_STEP, AutoresetMode.SAME_STEP: SAME_STEP, AutoresetMode.DISABLED: DISABLED}
"""Gymnasium's autoreset modes, as the kernels number them."""
StepResult = tuple[Observation, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]

_GYMNASIUM_FIELDS = ("spec", "render_mode", "closed", "_np_random", "_np_random_seed")
"""Attributes that Gymnasium sets on an environment."""


@dataclass(frozen=True, kw_only=True)
class EnvSettings:
    """Settings that all environments have; the constructors take them as keyword arguments."""

    episode_jobs: int = 256
    """Jobs in an episode."""
    reward: RewardWeights | None = None
    """Reward term to weight; None: `default_weights` of the environment. A term is a name in its terms
    (`kilowait.envs.reward_terms`), a `kilowait.envs.RewardTerm`, or a function of the jobs that started in the step."""
    features: Sequence[Feature] = ()
    """Custom features of the shown jobs (`kilowait.envs.Feature`), after the built-in ones."""
    preferences: Mapping[str, float] | None = None
    """Instead of a reward: reward terms whose weights are sampled for every episode, and the unit of each (see
    `kilowait.envs.preferences`)."""
    sla_s: float = 4 * 3600.0
    """Wait (on GPU clusters: time without allocated GPUs) that violates the service level, seconds."""
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    """As Gymnasium defines it."""
    threads: int | None = None
    """Threads of the engine; None: one per core."""
    copy: bool = True
    """Whether every step returns new arrays, or the same ones, overwritten."""
    seed: int = 0
    """Seed of the windows, until `reset` is given one."""
    job_info: bool = False
    """Whether `infos` has ids and users of the shown jobs."""


class EngineVectorEnv(VectorEnv[Observation, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Base class: environment copies, each on its own window of the log.

    `infos` of a step has

    - each reward term by its name, (copies,): its cost in this step, not weighted; custom ones too;
    - ``terms`` (copies, terms): the built-in ones in the order of `term_names`; ``custom_terms`` where there are any;
    - ``episode`` and ``_episode``, where episodes ended: return ``r``, length ``l``, replaced actions ``invalid``,
      weighted ``metric``, ``terms`` and ``custom_terms`` of the episode;
    - ``final_obs`` and ``_final_obs`` with `AutoresetMode.SAME_STEP`.

    With ``job_info=True``, `infos` of `reset` and `step` also has ``job_id`` and ``user`` (copies, slots) of the jobs
    in the observation, -1 in empty slots.
    """

    reward_terms: ClassVar[Mapping[str, str]] = TERMS
    """Built-in reward terms and their descriptions, in order."""
    default_weights: ClassVar[Mapping[str, float]] = {}
    """Weights of the reward terms unless others are given."""
    decision_settings: Any
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    """Positional and named arguments of the constructor, by which the environment is pickled."""

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Keep the arguments, for pickling."""
        env = super().__new__(cls)
        env.arguments = (arguments, named)
        return env

    def __init__(self, num_envs: int = 1, *, jobs: JobTable, cluster: Cluster, **settings: Any) -> None:
        """A vector environment.

        Args:
            num_envs: number of environment copies.
            jobs: the log; episodes are windows of it. Cancellations and dependencies of jobs are ignored.
            cluster: the machine, without outages and reservations.
            settings: fields of `EnvSettings`, and those that the class of the environment names.
        """
        common = EnvSettings(**take_fields(EnvSettings, settings))
        _check_sizes(num_envs, jobs, common)
        self.num_envs, self.cluster, self.episode_jobs = num_envs, cluster, common.episode_jobs
        self.copy, self.autoreset_mode = common.copy, AutoresetMode(common.autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        weights = default_reward(common.reward, common.preferences, self.default_weights)
        self.reward = Reward(weights, common.sla_s, self.reward_terms)
        terms, features = self.reward.custom_terms(), common.features
        # With custom functions episodes that ended are begun from Python, after the functions have read the ended ones.
        begun_from_python = (terms or features) and self.autoreset_mode is AutoresetMode.SAME_STEP
        autoreset = NEXT_STEP if begun_from_python else MODES[self.autoreset_mode]
        copies = CopySettings(num_envs, common.episode_jobs, autoreset, common.threads)
        self.jobs, self.simulator, observation_spec = self._make_simulator(cluster.sized(jobs), copies, settings)
        self.episode_preferences: EpisodePreferences | None = None
        self._ranges = np.array([[0, len(self.jobs)]])
        self._range_weights: list[float] | None = None
        self.custom: CustomFunctions | None = None
        """Custom reward terms and features, if there are any."""
        if terms or features:
            features = check_features(features, observation_spec.features)
            self.custom = CustomFunctions(self.simulator, self.jobs, terms, features)
            names = (*observation_spec.features, *(feature.name for feature in features))
            observation_spec = replace(observation_spec, features=names)
        self._job_ids = np.append(self.jobs["job_id"], -1) if common.job_info else None
        self._users = np.append(self.jobs.column("user"), np.int32(-1)) if common.job_info else None
        self.single_action_space = spaces.Discrete(observation_spec.actions)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._set_observation_spec(observation_spec)
        self._seed_windows(common.seed)
        if common.preferences is not None:
            self.draw_preferences(common.preferences, seed=common.seed)

    def _make_simulator(
        self, jobs: JobTable, copies: CopySettings, settings: dict[str, Any]
    ) -> tuple[JobTable, BatchedSimulator, ObservationSpec]:
        """The jobs as episodes have them, the simulator of the copies, and the shape of its observations.

        `settings` are the arguments that only this environment has.
        """
        raise NotImplementedError

    @property
    def term_names(self) -> tuple[str, ...]:
        """Names of the built-in reward terms."""
        return tuple(self.reward_terms)

    def draw_preferences(self, units: Mapping[str, float], *, seed: int = 0) -> None:
        """From the next reset on, sample weights of these terms for every episode; observe them and weight the reward
        by them.

        Args:
            units: reward term to its unit; an episode costs the sum of weight x metric / unit.
            seed: seed of the weights, until `reset` is given one.
        """
        preferences = Preferences(units, tuple(self.reward.terms))
        if self.episode_preferences is not None:
            raise InputError("this environment samples preferences already; create another environment for other terms")
        self.episode_preferences = EpisodePreferences(preferences, self.num_envs, seed)
        self._set_observation_spec(
            replace(
                self.observation_spec, summary=(*self.observation_spec.summary, *preference_summary(preferences.terms))
            )
        )

    def _set_observation_spec(self, spec: ObservationSpec) -> None:
        self.observation_spec = spec
        self.single_observation_space = observation_space_of(spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    @property
    def spec_of_observation(self) -> ObservationSpec:
        """The shape of observations: what a network is built for."""
        return self.observation_spec

    def _seed_windows(self, seed: int) -> None:
        self._random = stream(seed, "envs.windows")
        self._draw_windows(np.ones(self.num_envs, np.bool_))

    def _draw_windows(self, which: npt.NDArray[np.bool_]) -> None:
        """Sample the first rows of the next episodes of these copies."""
        count = int(which.sum())
        low, high = self._ranges[0]
        if self._range_weights is not None:
            low, high = self._ranges[self._random.choice(len(self._ranges), count, p=self._range_weights)].T
        first = self._random.integers(low, high - self.episode_jobs + 1, count)
        self.simulator.buffers.copies["next_first"][which] = first

    def set_episode_ranges(self, ranges: Sequence[tuple[int, int]], weights: Sequence[float]) -> None:
        """Sample the windows of later episodes from these ranges of the log only; a window lies within one range.

        Args:
            ranges: first row of each range, in order of submission, and the row after its last.
            weights: probability of each range; they sum to 1.
        """
        for low, high in ranges:
            if not 0 <= low <= high - self.episode_jobs <= len(self.jobs) - self.episode_jobs:
                raise InputError(
                    f"a range has rows {low:,} to {high:,} of {len(self.jobs):,}, and an episode {self.episode_jobs:,} "
                    "jobs; use shorter episodes, or more jobs"
                )
        if len(weights) != len(ranges) or min(weights) < 0 or not np.isclose(sum(weights), 1.0):
            raise InputError(
                f"{len(ranges)} ranges have the weights {list(weights)}; give one weight per range, with a sum of 1"
            )
        self._ranges, self._range_weights = np.array(ranges), list(weights)
        self._draw_windows(np.ones(self.num_envs, np.bool_))

    @property
    def episode_ranges(self) -> tuple[npt.NDArray[np.int64], list[float] | None]:
        """Ranges of the log that windows are sampled from (first row, last + 1), and their weights; None: one range."""
        return self._ranges, self._range_weights

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin episodes: of all copies, or of those in ``options["reset_mask"]``.

        ``options["first"]``, one row of the log for all copies or one per copy, sets where they begin. Where
        preferences are sampled, ``options["preference"]`` replaces them: a mapping from terms to weights, or an array
        with one row per copy.
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
            first_seed = seed if isinstance(seed, int) else next((s for s in seed if s is not None), 0)
            self._seed_windows(first_seed)
            if self.episode_preferences is not None:
                self.episode_preferences.seed(first_seed)
        if "first" in options:
            first = np.asarray(options["first"], np.int64)
            last = len(self.jobs) - self.episode_jobs
            if first.shape not in ((), (self.num_envs,)) or (first < 0).any() or (first > last).any():
                raise InputError(
                    f"episodes cannot begin at rows {first}; give rows from 0 to {last}, one for all or one per copy"
                )
            self.simulator.buffers.copies["next_first"][which] = np.broadcast_to(first, self.num_envs)[which]
        if self.episode_preferences is not None:
            self.episode_preferences.begin(which, options.get("preference"))
        elif "preference" in options:
            raise InputError("this environment samples no preferences; create it with preferences={term: unit, ...}")
        self._begin_episodes(which)
        self._draw_windows(which)
        return self._observe(self.copy), self._job_info()

    def _begin_episodes(self, which: npt.NDArray[np.bool_]) -> None:
        self.simulator.begin(which)
        if self.custom is not None:
            self.custom.begin_episodes(which)

    def _observe(self, copy: bool) -> Observation:
        observation = self.simulator.observed(copy)
        if self.custom is not None:
            observation = self.custom.add_features(observation)
        return (
            observation if self.episode_preferences is None else self.episode_preferences.with_preferences(observation)
        )

    def _job_info(self) -> dict[str, Any]:
        if self._job_ids is None or self._users is None:
            return {}
        rows = self.simulator.shown_rows()
        return {"job_id": self._job_ids[rows], "user": self._users[rows]}

    def step(self, actions: npt.ArrayLike) -> StepResult:
        """One decision in each copy. An action the mask forbids is replaced by the first it allows, and counted."""
        whole_actions = checked_actions(actions, self.num_envs, self.observation_spec.actions)
        buffers = self.simulator.buffers
        if self.autoreset_mode is AutoresetMode.DISABLED and buffers.over.any():
            raise gym.error.ResetNeeded("some episodes are over; reset them with options={'reset_mask': ...}")
        resets_at_once = self.autoreset_mode is AutoresetMode.SAME_STEP
        before = None if self.episode_preferences is None and self.custom is None else buffers.over.copy()
        self.simulator.step(whole_actions)
        terms = buffers.terms.copy()
        infos: dict[str, Any] = {"terms": terms, **dict(zip(self.term_names, terms.T, strict=False))}
        reward = buffers.reward.copy()
        ended = buffers.over.copy()
        truncated = self.simulator.truncated()
        if self.custom is not None and before is not None:
            if not resets_at_once:
                self.custom.begin_episodes(before)
            costs = self.custom.step_costs(before)
            if self.custom.terms:
                reward -= costs @ self.custom.weights
                infos |= {"custom_terms": costs}
                infos |= {term.name: costs[:, i] for i, term in enumerate(self.custom.terms)}
        if ended.any():
            infos |= self._episode_infos(ended)
            if self.custom is not None and resets_at_once:  # the kernel does not begin them: see __init__
                self._begin_episodes(ended)
            self._draw_windows(ended)
        if self.episode_preferences is not None and before is not None:
            reward = -self.episode_preferences.cost(terms)
            self.episode_preferences.begin(ended if resets_at_once else before)
        return (self._observe(self.copy), reward, ended & ~truncated, ended & truncated, infos | self._job_info())

    def _episode_infos(self, ended: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """The part of `infos` about episodes that ended in this step."""
        buffers = self.simulator.buffers
        finished = buffers.finished.copy()
        episode = {
            "r": finished[:, 0],
            "l": finished[:, 1].astype(np.int64),
            "invalid": finished[:, 2].astype(np.int64),
            "metric": finished[:, 3:] @ buffers.weights,
            "terms": finished[:, 3:],
        }
        if self.custom is not None and self.custom.terms:
            cost = self.custom.totals @ self.custom.weights
            episode["custom_terms"] = self.custom.totals.copy()
            episode |= {"r": episode["r"] - cost, "metric": episode["metric"] + cost}
        if self.episode_preferences is not None:
            cost = self.episode_preferences.cost(finished[:, 3:])
            episode |= {"r": -cost, "metric": cost, "preference": self.episode_preferences.weights.copy()}
        infos: dict[str, Any] = {"episode": episode, "_episode": ended}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            if self.custom is not None:  # the copies have not begun their next episodes yet
                final = self._observe(True)
            else:
                final = self.simulator.final_observation()
                final = final if self.episode_preferences is None else self.episode_preferences.with_preferences(final)
            infos |= {"final_obs": final, "_final_obs": ended}
        return infos

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """(copies, actions) which actions are allowed."""
        masks: npt.NDArray[np.bool_] = self.simulator.buffers.mask.astype(np.bool_)
        return masks

    def set_arrival_rate(self, factor: float) -> None:
        """Scale the arrivals of episodes that begin from now on to `factor` times the rate of the log."""
        if not (np.isfinite(factor) and factor > 0):
            raise InputError(f"the arrival rate is scaled by {factor}; give a number above 0")
        self.simulator.buffers.copies["arrival_rate"] = factor

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that the next steps depend on, as plain arrays, for `restore`."""
        preferences = {} if self.episode_preferences is None else self.episode_preferences.snapshot()
        custom = {} if self.custom is None else self.custom.snapshot()
        random = {"random": random_state_bytes(self._random)}
        return {**self.simulator.snapshot(), **random, **preferences, **custom}

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> Observation:
        """Restore a snapshot; the environment must be created with the same arguments."""
        saved = saved if self.episode_preferences is None else self.episode_preferences.restore(saved)
        saved = saved if self.custom is None else self.custom.restore(saved)
        self.simulator.restore({name: array for name, array in saved.items() if name != "random"})
        restore_random_state(self._random, saved["random"])
        return self._observe(self.copy)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and `copy.deepcopy`: an unpickled environment continues in the middle of the episode.

        Custom reward terms and features must be functions of a module, not lambdas, as pickle needs it; files named in
        the arguments are read again.
        """
        preferences = self.episode_preferences
        return {
            "arguments": self.arguments,
            "ranges": self.episode_ranges,
            "preferences": None if preferences is None else dict(preferences.preferences.units),
            "snapshot": self.snapshot(),
            "gymnasium": {name: vars(self)[name] for name in _GYMNASIUM_FIELDS if name in vars(self)},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Create the environment again, as compiled kernels and threads cannot be pickled, in the saved state."""
        positional, named = self.arguments = state["arguments"]
        constructor: Any = type(self).__init__
        constructor(self, *positional, **named)
        if self.episode_preferences is None and state["preferences"] is not None:
            self.draw_preferences(state["preferences"])
        ranges, weights = state["ranges"]
        if weights is not None:
            self.set_episode_ranges([tuple(row) for row in ranges.tolist()], weights)
        self.restore(state["snapshot"])
        vars(self).update(state["gymnasium"])

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads."""
        self.simulator.close()


def take_fields(settings_type: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of a settings dataclass from the arguments, and return them."""
    return {field.name: arguments.pop(field.name) for field in fields(settings_type) if field.name in arguments}


def _check_sizes(num_envs: int, jobs: JobTable, settings: EnvSettings) -> None:
    """Raise an error unless an environment of these sizes can be created from this log."""
    episode_jobs, threads = settings.episode_jobs, settings.threads
    if num_envs < 1 or episode_jobs < 1 or (threads is not None and threads < 1):
        raise InputError(f"{num_envs} copies of {episode_jobs} jobs on {threads} threads; give at least 1 of each")
    if len(jobs) < episode_jobs:
        raise InputError(
            f"an episode has {episode_jobs:,} jobs, the log {len(jobs):,}; use shorter episodes or a longer log"
        )


def plain_jobs(jobs: JobTable) -> JobTable:
    """The jobs without cancellations and dependencies, sorted by submission; begin_s becomes the submission."""
    return drop_dependencies(jobs).sorted()


def drop_dependencies(jobs: JobTable) -> JobTable:
    """The same, in the order of the table."""
    if "begin_s" in jobs:
        jobs = jobs.with_columns(submit_s=np.maximum(jobs["submit_s"], jobs["begin_s"]))
    dropped = [name for name in ("cancel_s", "after_id", "think_s", "begin_s") if name in jobs]
    return jobs.with_columns(**dict.fromkeys(dropped))


def observation_space_of(spec: ObservationSpec) -> spaces.Dict:
    """The Gymnasium space of these observations."""
    ranges: dict[str, spaces.Space[Any]] = {
        "jobs": spaces.Box(-np.inf, np.inf, (spec.slots, len(spec.features)), np.float32),
        "mask": spaces.Box(0, 1, (spec.actions,), np.int8),
        "summary": spaces.Box(-np.inf, np.inf, (len(spec.summary),), np.float32),
    }
    if spec.graph:
        ranges["edges"] = spaces.Box(0, 7, (spec.slots, spec.slots), np.uint8)
    return spaces.Dict(ranges)
