"""Training of linear agents by CMA-ES: one search, which takes the objective of a kind of agent.

The search is noisy, as every generation is evaluated on other windows. So not its last point is validated, but the
mean of the second half of its path.

A checkpoint is written after every generation: a crash costs one generation at most. It contains the search
distribution, its random state and that of the windows, and all results so far, every number exactly: a resumed search
gives the same result as an uninterrupted one. The file is JSON.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.cma_es import EvolutionStrategy, check_population
from kilowait.checkpoint import Checkpoint, StateFormat
from kilowait.errors import InputError
from kilowait.files import locks_output
from kilowait.files.fields import Anything, Either, Items, Null, Number, Record, Values, check_fields
from kilowait.jobs import ExecutionLog, JobTable

Floats = npt.NDArray[np.float64]
A = TypeVar("A")
C = TypeVar("C")
W = TypeVar("W")

VALIDATIONS = 16
"""Largest number of validations of a search, evenly spaced over its generations."""
CHECKPOINT_FILE = "search.json"
FORMAT = StateFormat(
    "kilowait search",
    version=4,
    remedy="start again with --force",
    missing="start a search without --resume",
    max_header_bytes=2**27,
)
_NUMBER = Number(finite=False)
_COUNT = Number(0, 10**9, whole=True)
_STATE = Record(
    {
        "start_scores": Items(Either(_NUMBER, Items(_NUMBER))),
        "history": Items(
            Record(
                {"number": _COUNT, "of": _COUNT} | dict.fromkeys(("training", "validation", "best", "step"), _NUMBER)
            )
        ),
        "path": Items(Items(_NUMBER, minimum=1)),
        "best": Either(Null(), Items(Either(_NUMBER, Items(_NUMBER, minimum=1)), minimum=2, maximum=2)),
    },
    {"search": Values(Anything()), "windows": Values(Anything())},
)
"""Fields of the state of a checkpoint."""
STARTS_PER_CHECKPOINT = 4
"""Starting points that are evaluated between two checkpoints."""


@dataclass(frozen=True)
class Generation:
    """Result of one generation. Scores are relative to the start: below 1 is better."""

    number: int
    of: int
    training: float
    """Mean score of the candidates on this generation's windows."""
    validation: float
    """Score of the mean of the path on the validation windows; NaN where it was not evaluated."""
    best: float
    """Score of the best weights so far on the validation windows; 1 is the start."""
    step: float
    """Step size of the search."""


class CheckpointDir(NamedTuple):
    """Folder of the checkpoints of a search."""

    folder: Path
    resume: bool = False
    """Whether the search resumes from the checkpoint there."""
    on_start: Callable[[], None] = lambda: None
    """Called once the arguments of the search are checked, before anything is read or written."""


class SearchCheckpoint:
    """State of one search, and its file unless it is only in memory.

    Args:
        identity: settings that define this search; it is resumed only with the same ones.
        generations: number of generations.
        directory: where checkpoints are written; None: nowhere.

    >>> checkpoint, search = (SearchCheckpoint({"seed": 0}, 3, None), EvolutionStrategy([1.0, 1.0], step=1.0, seed=0))
    >>> for number in checkpoint.remaining_generations(search, np.random.default_rng(0)):
    ...     points = search.ask()
    ...     search.tell(points, (points**2).sum(axis=1))
    ...     checkpoint.path.append(search.mean)
    ...     checkpoint.close(Generation(number, 3, 1.0, 1.0, 1.0, search.step))
    >>> len(checkpoint.path), checkpoint.history[-1].number
    (3, 3)
    """

    def __init__(self, identity: Mapping[str, Any], generations: int, directory: CheckpointDir | None) -> None:
        self.path: list[Floats] = []
        """Mean of the search distribution after each generation."""
        self.history: list[Generation] = []
        self.best: tuple[float, Floats] | None = None
        """Weights that validated better than the start, with their score."""
        self.generations = generations
        self._start_scores: list[Any] = []
        self._search: EvolutionStrategy | None = None
        self._random: np.random.Generator | None = None
        self._loaded: dict[str, Any] = {}
        self._file: Checkpoint | None = None
        if directory is None:
            return
        self._file = Checkpoint(directory.folder / CHECKPOINT_FILE, FORMAT, identity)
        directory.on_start()
        if directory.resume:
            self._load(self._file)
        else:
            self._write()

    def start_scores(self, candidates: Sequence[Any], evaluate: Callable[[Sequence[Any]], Floats]) -> Floats:
        """Scores of these starting points, one row each; scores in the checkpoint are not computed again."""
        while len(self._start_scores) < len(candidates):
            batch = candidates[len(self._start_scores) : len(self._start_scores) + STARTS_PER_CHECKPOINT]
            self._start_scores += evaluate(batch).tolist()
            self._write()
        return np.array(self._start_scores)

    def remaining_generations(self, search: EvolutionStrategy, random: np.random.Generator) -> Iterator[int]:
        """Numbers of the remaining generations; search and random state are restored from the checkpoint."""
        self._search, self._random = search, random
        if self.history:
            try:
                if len(self.path[0]) != len(search.mean):
                    raise ValueError(f"path has points of {len(self.path[0])} numbers, not {len(search.mean)}")
                search.load_state_dict(self._loaded["search"])
                random.bit_generator.state = self._loaded["windows"]
            except (ValueError, TypeError, KeyError, OverflowError) as problem:
                raise self._damaged(f"search and windows cannot be restored ({problem})") from None
        yield from range(len(self.history) + 1, self.generations + 1)

    def close(self, generation: Generation) -> None:
        """Record a finished generation and write the checkpoint."""
        self.history.append(generation)
        self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        state: dict[str, Any] = {"start_scores": self._start_scores}
        state["history"] = [asdict(generation) for generation in self.history]
        state["path"] = [point.tolist() for point in self.path]
        state["best"] = None if self.best is None else [self.best[0], self.best[1].tolist()]
        if self.history:
            assert self._search is not None and self._random is not None
            state["search"] = self._search.state_dict()
            state["windows"] = self._random.bit_generator.state
        self._file.write(state)

    def _load(self, file: Checkpoint) -> None:
        state = file.read()
        check_fields(state, _STATE, file.path, remedy=FORMAT.remedy)
        self._start_scores, self._loaded = state["start_scores"], state
        self.path = [np.array(point) for point in state["path"]]
        self.history = [_generation(generation, self.generations) for generation in state["history"]]
        if state["best"] is not None:
            if isinstance(state["best"][0], list) or not isinstance(state["best"][1], list):
                raise self._damaged("best is not a score with its weights")
            self.best = (state["best"][0], np.array(state["best"][1]))
        self._check_relations()

    def _check_relations(self) -> None:
        """Raise an InputError if parts of the loaded state contradict one another."""
        widths = {len(score) if isinstance(score, list) else None for score in self._start_scores}
        numbers = [generation.number for generation in self.history]
        lengths = {len(point) for point in self.path} | (set() if self.best is None else {len(self.best[1])})
        points = [*self.path, *([] if self.best is None else [self.best[1]])]
        for name, wrong in (
            ("start_scores", len(widths) > 1),
            ("history", numbers != list(range(1, len(numbers) + 1))),
            ("path", len(self.path) != len(self.history) or len(lengths) > 1),
            ("search", bool(self.history) and not {"search", "windows"} <= set(self._loaded)),
            ("path or best", not all(np.isfinite(point).all() for point in points)),
        ):
            if wrong:
                raise self._damaged(f"{name} contradicts the rest")

    def _damaged(self, problem: str) -> InputError:
        assert self._file is not None
        return InputError(f"{self._file.path} is damaged: {problem}; {FORMAT.remedy}")


def _generation(saved: Mapping[str, Any], generations: int) -> Generation:
    """The record of a generation in a file, of a search of so many generations."""
    names = [item.name for item in fields(Generation)]
    return replace(Generation(**{name: saved[name] for name in names}), of=generations)


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Settings that the searches for all kinds of linear agents have."""

    seed: int
    """Of the search and of the windows."""
    generations: int
    population: int
    """Candidates a generation."""
    windows: int
    """Windows each candidate is evaluated on, the same for all of a generation."""
    window_jobs: int
    """Jobs in a window."""
    trace: str | None = None
    """Name of the log, for the provenance."""
    threads: int = 1
    """Number of parallel simulations; the result does not depend on it."""

    def __post_init__(self) -> None:
        if self.generations < 1 or self.threads < 1:
            raise InputError(
                f"{self.generations} generations on {self.threads} threads; there must be at least 1 of each"
            )
        check_population(self.population)


class Objective(ABC, Generic[A]):
    """What a search minimizes: the starting points of one kind of agent, their evaluation and their validation.

    Arguments are checked when it is created: afterwards the search writes its first checkpoint.
    """

    kind: ClassVar[str]
    """The kind of agent, in the identity of checkpoints."""
    settings: SearchSettings
    identity: dict[str, Any]
    """Settings of this kind of agent; a search is resumed only with the same ones."""
    random: np.random.Generator
    """Random numbers of the windows; their state is restored when the search is resumed."""
    step: float
    """First step size of the search."""
    scale_free: ClassVar[bool] = False
    """Whether only the direction of a point counts; points are scaled to length 1."""
    validates: ClassVar[bool] = True
    """Whether points of the path are validated; otherwise `agent` validates the result."""

    @abstractmethod
    def start(self, checkpoint: SearchCheckpoint) -> Floats:
        """The first point: the best starting point, by the scores in the checkpoint."""

    @abstractmethod
    def evaluate(self, points: Floats, number: int) -> tuple[npt.ArrayLike, float]:
        """The values of points (one a row) in the generation of this number, smaller is better, and their mean score
        relative to the start of the search.
        """

    def validate(self, point: Floats) -> float:
        """The score of a point relative to the start, on validation windows."""
        raise NotImplementedError

    def size(self, checkpoint: SearchCheckpoint) -> dict[str, int]:
        """Generations, candidates and windows of a finished search, for the provenance of the agent."""
        settings = self.settings
        return {
            "generations": len(checkpoint.history),
            "population": settings.population,
            "windows": settings.windows,
            "window_jobs": settings.window_jobs,
        }

    @abstractmethod
    def agent(self, checkpoint: SearchCheckpoint) -> A:
        """The agent of a finished search."""


@locks_output("checkpoint_dir", inside=True)
def train_linear_agent(
    objective: Objective[A],
    *,
    progress: Callable[[Generation], None] | None = None,
    checkpoint_dir: CheckpointDir | None = None,
) -> tuple[A, list[Generation]]:
    """The agent with the best weights that CMA-ES finds, and the generations of the search.

    The same objective gives bit-identical weights, on any number of threads, also after a resume.

    Args:
        objective: the kind of agent, its jobs and the settings of the search.
        progress: called with every generation.
        checkpoint_dir: folder of the checkpoint, and whether to resume from it; None: no checkpoint.

    >>> class Parabola(Objective[list[float]]):
    ...     kind, step, identity = "parabola", 1.0, {}
    ...     settings = SearchSettings(seed=0, generations=60, population=6, windows=1, window_jobs=1)
    ...     random = np.random.default_rng(0)
    ...     start = lambda self, checkpoint: np.array([3.0, -2.0])
    ...     evaluate = lambda self, points, number: ((points**2).sum(axis=1), 1.0)
    ...     validate = lambda self, point: float((point**2).sum()) / 13.0
    ...     agent = lambda self, checkpoint: np.abs(checkpoint.best[1]).round(1).tolist()
    >>> agent, history = train_linear_agent(Parabola())
    >>> agent, len(history)
    ([0.0, 0.0], 60)
    """
    settings = objective.settings
    identity = {
        "search": objective.kind,
        "seed": settings.seed,
        **objective.identity,
        "population": settings.population,
        "windows": settings.windows,
        "window_jobs": settings.window_jobs,
    }
    checkpoint = SearchCheckpoint(identity, settings.generations, checkpoint_dir)
    start = objective.start(checkpoint)
    search = EvolutionStrategy(start, step=objective.step, seed=settings.seed, population=settings.population)
    _run_generations(search, checkpoint, objective, progress)
    agent = objective.agent(checkpoint)
    if progress is not None and not objective.validates:
        progress(checkpoint.history[-1])  # its validation is known only now
    return agent, checkpoint.history


def _run_generations(
    search: EvolutionStrategy,
    checkpoint: SearchCheckpoint,
    objective: Objective[A],
    progress: Callable[[Generation], None] | None,
) -> None:
    """Run the remaining generations; the results are in the checkpoint, which is written after each of them."""
    generations, scale_free = checkpoint.generations, objective.scale_free
    validate_every = max(1, generations // VALIDATIONS)
    for number in checkpoint.remaining_generations(search, objective.random):
        points = search.ask()
        values, score = objective.evaluate(points, number)
        search.tell(points, values)
        checkpoint.path.append(unit_length(search.mean) if scale_free else search.mean)
        validation, best = float("nan"), 1.0 if checkpoint.best is None else checkpoint.best[0]
        if objective.validates and (number % validate_every == 0 or number == generations):
            point = unit_length(averaged_point(checkpoint)) if scale_free else averaged_point(checkpoint)
            validation = objective.validate(point)
            if validation < best:
                best = validation
                checkpoint.best = (validation, point)
        step = search.step / _length(search.mean) if scale_free else search.step
        checkpoint.close(Generation(number, generations, score, validation, best, step))
        if progress is not None and (objective.validates or number < generations):
            progress(checkpoint.history[-1])


def averaged_point(checkpoint: SearchCheckpoint) -> Floats:
    """Mean of the second half of the path of a search."""
    return np.asarray(np.mean(checkpoint.path[len(checkpoint.path) // 2 :], axis=0))


def evaluate_windows(
    threads: int, value: Callable[[C, W], float], candidates: Sequence[C], windows: Sequence[W]
) -> Floats:
    """Values (candidates, windows); gathered in order, so the result does not depend on the number of threads."""
    pairs = [(candidate, window) for candidate in candidates for window in windows]
    with ThreadPoolExecutor(threads) as pool:
        values = list(pool.map(lambda pair: value(*pair), pairs))
    return np.array(values).reshape(len(candidates), len(windows))


def unit_length(weights: Floats) -> Floats:
    """The weights scaled to length 1, which does not change an order by their score.

    >>> unit_length(np.array([3.0, 4.0])).tolist()
    [0.6, 0.8]
    """
    return np.asarray(weights / max(_length(weights), 1e-300))


def _length(weights: Floats) -> float:
    return float(np.sqrt((weights**2).sum()))


def mean_bsld(log: ExecutionLog) -> float:
    """Mean bounded slowdown: (wait + run) / run, run times below 10 s counting as 10 s, at least 1."""
    records = log.jobs()
    started = ~np.isnan(records["start_s"])
    turnaround_s, run_s = records["turnaround_s"][started], records["run_s"][started]
    return float(np.maximum(1.0, turnaround_s / np.maximum(run_s, 10.0)).mean()) if len(run_s) else 1.0


def even_starts(jobs: JobTable, windows: int, window_jobs: int) -> list[int]:
    """First jobs of `windows` equally spaced windows, the first at the beginning and the last at the end.

    They overlap if there are more of them than fit side by side.

    >>> jobs = JobTable(job_id=range(10), submit_s=range(10), runtime_s=[1] * 10, nodes=[1] * 10)
    >>> even_starts(jobs, 3, 4)
    [0, 3, 6]
    """
    starts: list[int] = np.linspace(0, last_start(jobs, windows, window_jobs), windows).astype(np.int64).tolist()
    return starts


def random_starts(jobs: JobTable, windows: int, window_jobs: int, random: np.random.Generator) -> list[int]:
    """First jobs of `windows` windows at random places."""
    starts: list[int] = random.integers(0, last_start(jobs, windows, window_jobs) + 1, windows).tolist()
    return starts


def last_start(jobs: JobTable, windows: int, window_jobs: int) -> int:
    """Largest number of a window's first job; InputError if the windows are longer than the log."""
    if windows < 1 or window_jobs < 1:
        raise InputError(f"{windows} windows of {window_jobs} jobs; ask for at least one of at least one job")
    if window_jobs > len(jobs):
        raise InputError(
            f"a window of {window_jobs:,} jobs is longer than the {len(jobs):,} jobs available; "
            "take shorter windows or a longer log"
        )
    return len(jobs) - window_jobs
