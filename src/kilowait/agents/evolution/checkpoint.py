"""Checkpoints of an evolution strategy, written after every generation: a crash costs one generation at most.

A checkpoint contains the search distribution, its random state and that of the windows, and all results so far, every
number exactly: a resumed search gives the same result as an uninterrupted one. The file is JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.checkpoint import Checkpoint, StateFormat
from kilowait.errors import InputError
from kilowait.files.fields import Anything, Either, Items, Null, Number, Record, Values, check_fields

Floats = npt.NDArray[np.float64]

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
