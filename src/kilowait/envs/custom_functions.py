"""Reward terms and observation features written by the user, as Python functions.

They are evaluated outside the compiled step, once a step for all environment copies together. A step with a custom
function takes some tens of microseconds more; environments without any run at full speed. Functions take and return
arrays with one element per job, or per environment copy; avoid loops over copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.envs.batched_sim import BatchedSimulator, Observation
from kilowait.errors import InputError
from kilowait.jobs import JobTable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class _Jobs:
    """Jobs of all environment copies together; ``jobs[column]`` is a column of the `JobTable` for these jobs."""

    env: Ints
    """Number of the environment copy."""
    row: Ints
    """Row of the job in `jobs`."""
    submit_s: Floats
    """Submission in simulated time, after any scaling of arrivals, seconds."""
    jobs: JobTable
    """The log, sorted by submission."""

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        return self.submit_s if column == "submit_s" else self.jobs.column(column)[self.row]


@dataclass(frozen=True, kw_only=True)
class StartedJobs(_Jobs):
    """Jobs that started in one step, of all environment copies together: the argument of a `RewardTerm`.

    All arrays but the three per copy have one element per start, ordered by copy, then by time.
    ``started["estimate_s"]`` is a column of the `JobTable` for these jobs (nodes, user, queue, estimate_s, ...).
    In `kilowait/Gpu-v0` a job that was preempted or moved starts again, and is listed again.
    """

    start_s: Floats
    """Start in simulated time, seconds."""
    before_s: Floats
    """Per copy: simulated time before the step, seconds; in an episode's first step, when the episode began."""
    after_s: Floats
    """Per copy: simulated time after the step, seconds."""
    episode_jobs: Ints
    """Per copy: jobs of the episode that fit the machine."""

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        return self.start_s if column == "start_s" else super().__getitem__(column)

    @property
    def num_envs(self) -> int:
        """Environment copies."""
        return len(self.after_s)

    @property
    def wait_s(self) -> Floats:
        """From submission to start, seconds."""
        return self.start_s - self.submit_s

    def sum_per_env(self, values: npt.ArrayLike) -> Floats:
        """(num_envs,) the sum of `values`, one per start, over the starts of each copy."""
        sums: Floats = np.bincount(self.env, np.asarray(values, np.float64), self.num_envs).astype(np.float64)
        return sums


@dataclass(frozen=True, kw_only=True)
class ShownJobs(_Jobs):
    """Jobs shown in an observation, of all environment copies together: the argument of a `Feature`.

    Arrays have one element per shown job, ordered by copy, then by slot. ``shown["nodes"]`` is a column of the
    `JobTable` for these jobs. A scheduler does not know ``shown["runtime_s"]`` in advance: a policy that is given it
    cannot be used on a real machine.
    """

    slot: Ints
    """Row of the job in the observation."""
    now_s: Floats
    """Simulated time in the job's copy, seconds."""
    num_envs: int
    """Environment copies."""

    @property
    def wait_s(self) -> Floats:
        """Time since submission, seconds."""
        return self.now_s - self.submit_s


@dataclass(frozen=True)
class RewardTerm:
    """A cost per step, added to the reward as minus weight x cost.

    >>> import kilowait as kw
    >>> from kilowait.envs.batch_env import BatchVectorEnv
    >>> wide = RewardTerm(
    ...     "wide_wait_h", lambda started: started.sum_per_env(started.wait_s * (started["nodes"] > 8)) / 3600
    ... )
    >>> vec = BatchVectorEnv(
    ...     2,
    ...     jobs=kw.lublin(jobs=300, nodes=64, seed=1),
    ...     cluster=kw.Cluster.from_nodes(64),
    ...     reward={"slowdown": 1.0, wide: 0.1},
    ... )
    >>> observation, _ = vec.reset(seed=0)
    >>> vec.step(observation["mask"].argmax(axis=1))[4]["wide_wait_h"].shape
    (2,)
    """

    name: str
    """Key of the term in `info`."""
    function: Callable[[StartedJobs], npt.ArrayLike]
    """From the jobs that started in the step to the cost of each environment copy, (num_envs,)."""
    description: str = "custom reward term"

    def __post_init__(self) -> None:
        _check_definition("reward term", self.name, self.function)


@dataclass(frozen=True)
class Feature:
    """A column of the observation's `jobs`, after the built-in ones.

    >>> Feature("user_is_7", lambda shown: shown["user"] == 7).name
    'user_is_7'
    """

    name: str
    """Name of the column in `ObservationSpec.features`."""
    function: Callable[[ShownJobs], npt.ArrayLike]
    """From the shown jobs to one number for each, (len(shown),)."""
    scale: float = 1.0
    """The observation has the number divided by this; choose it so that values are about 1."""
    description: str = "custom feature"

    def __post_init__(self) -> None:
        _check_definition("feature", self.name, self.function)
        if not (np.isfinite(self.scale) and self.scale != 0):
            raise InputError(f"the scale of feature {self.name!r} is {self.scale}; give a finite number other than 0")


def _check_definition(kind: str, name: Any, function: Any) -> None:
    if not isinstance(name, str) or not name:
        raise InputError(f"the name of a {kind} is {name!r}; give a text of at least one character")
    if not callable(function):
        raise InputError(f"the function of {kind} {name!r} is {function!r}; give something that can be called")


def as_reward_term(key: Any) -> RewardTerm:
    """The reward term that a key of the reward mapping stands for, where it is not a name."""
    if isinstance(key, RewardTerm):
        return key
    if isinstance(key, type):
        raise InputError(f"reward term {key.__name__} is a class; give RewardTerm(name, function), or a function")
    if not callable(key):
        raise InputError(
            f"reward term {key!r} is an {type(key).__name__}; give the name of a built-in term, "
            "a function or a RewardTerm"
        )
    name = getattr(key, "__name__", "<lambda>")
    if not name.isidentifier():
        raise InputError(f"the function {key!r} has no name for a reward term; give RewardTerm(name, function)")
    return RewardTerm(name, key)


def check_features(features: Sequence[Feature], built_in: Sequence[str]) -> tuple[Feature, ...]:
    """The features; an error unless each is a `Feature` with a name of its own."""
    names = set(built_in)
    for feature in features:
        if not isinstance(feature, Feature):
            raise InputError(f"features are given as kilowait.envs.Feature(name, function); this is {feature!r}")
        if feature.name in names:
            raise InputError(f"two features are named {feature.name!r}; give the custom one another name")
        names.add(feature.name)
    return tuple(features)


class CustomFunctions:
    """Evaluates the custom reward terms and features of a batched simulator, and keeps their episode sums."""

    def __init__(
        self,
        simulator: BatchedSimulator,
        jobs: JobTable,
        terms: Mapping[RewardTerm, float] | None = None,
        features: Sequence[Feature] = (),
    ) -> None:
        """`terms`: weight of each custom reward term; `jobs`: the table whose rows episodes are windows of."""
        self.simulator, self.jobs = simulator, jobs
        self.terms, self.features = tuple(terms or ()), tuple(features)
        self.weights = np.array([float(weight) for weight in (terms or {}).values()])
        copies = simulator.copies
        self.totals = np.zeros((copies, len(self.terms)))
        """Sums of the terms over the episode so far."""
        self._starts = np.zeros(copies, np.int64)
        self._before_s = np.zeros(copies)

    def begin_episodes(self, which: Bools) -> None:
        """Reset the sums of these copies, which have just begun an episode."""
        self.totals[which] = 0.0
        self._starts[which] = 0
        self._before_s = np.where(which, self.simulator.episode_start_s(), self._before_s)

    def step_costs(self, began: Bools) -> Floats:
        """(copies, terms) costs of the step, not weighted; 0 for copies where the step only began an episode."""
        if not self.terms:
            return np.zeros_like(self.totals)
        simulator, copies = self.simulator, self.simulator.buffers.copies
        last = np.where(began, 0, simulator.start_count())
        after_s = np.where(began, self._before_s, simulator.now_s())
        count = last - self._starts
        env = np.repeat(np.arange(len(count)), count)
        number = np.arange(len(env)) + np.repeat(self._starts + count - np.cumsum(count), count)
        job, start_s = simulator.starts(env, number)
        started = StartedJobs(
            env=env,
            row=copies["first"][env] + job,
            submit_s=simulator.submit_s(env, job),
            start_s=start_s,
            before_s=self._before_s,
            after_s=after_s,
            episode_jobs=np.maximum(copies["jobs"], 1),
            jobs=self.jobs,
        )
        costs = np.stack([self._cost(term, started, began) for term in self.terms], axis=1)
        self.totals += costs
        self._starts, self._before_s = last, after_s
        return costs

    @staticmethod
    def _cost(term: RewardTerm, started: StartedJobs, began: Bools) -> Floats:
        cost = _numbers(f"reward term {term.name!r}", term.function(started))
        if cost.shape != (started.num_envs,):
            raise InputError(
                f"reward term {term.name!r} returned shape {cost.shape}; return one cost per environment copy, "
                f"shape ({started.num_envs},), for instance with started.sum_per_env(...)"
            )
        cost = np.where(began, 0.0, cost)
        if not np.isfinite(cost).all():
            env = int(np.flatnonzero(~np.isfinite(cost))[0])
            raise InputError(
                f"reward term {term.name!r} returned {cost[env]} for environment copy {env}; return finite numbers"
            )
        return cost

    def add_features(self, observation: Observation) -> Observation:
        """The observation with one more column in `jobs` for every custom feature."""
        if not self.features:
            return observation
        env, slot, job = self.simulator.shown_jobs()
        shown = ShownJobs(
            env=env,
            slot=slot,
            row=self.simulator.buffers.copies["first"][env] + job,
            submit_s=self.simulator.submit_s(env, job),
            now_s=self.simulator.now_s()[env],
            num_envs=self.simulator.copies,
            jobs=self.jobs,
        )
        jobs = observation["jobs"]
        columns = np.zeros((*jobs.shape[:2], len(self.features)), np.float32)
        for place, feature in enumerate(self.features):
            values = _numbers(f"feature {feature.name!r}", feature.function(shown))
            if values.shape != (len(shown),):
                raise InputError(
                    f"feature {feature.name!r} returned shape {values.shape}; return one number per shown job, "
                    f"shape ({len(shown)},)"
                )
            if not np.isfinite(values).all():
                bad = int(np.flatnonzero(~np.isfinite(values))[0])
                raise InputError(
                    f"feature {feature.name!r} returned {values[bad]} for job {self.jobs['job_id'][shown.row[bad]]}; "
                    "return finite numbers"
                )
            columns[env, slot, place] = values / feature.scale
        return {**observation, "jobs": np.concatenate([jobs, columns], axis=2)}

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """The sums of the running episodes, for `restore`."""
        return {
            "custom.totals": self.totals.copy(),
            "custom.starts": self._starts.copy(),
            "custom.before_s": self._before_s.copy(),
        }

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Restore a snapshot; returns the entries that are not of custom functions."""
        if "custom.totals" not in saved or np.shape(saved["custom.totals"]) != self.totals.shape:
            raise InputError(
                "the snapshot has no sums of these custom reward terms; create the environment with the same "
                "reward terms"
            )
        self.totals = np.array(saved["custom.totals"])
        self._starts = np.array(saved["custom.starts"])
        self._before_s = np.array(saved["custom.before_s"])
        return {name: array for name, array in saved.items() if not name.startswith("custom.")}


def _numbers(what: str, result: Any) -> Floats:
    try:
        if result is None:
            raise TypeError
        return np.asarray(result, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} returned {result!r}, which is not numbers; return an array of numbers") from None
