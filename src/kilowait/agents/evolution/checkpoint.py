"""How far a search has come, kept in a file after every generation: a crash costs one generation at most.

What is kept is the distribution the search draws from, its random numbers and those of the windows, and all that was
found so far, every number to its last bit: a search that was killed and gone on with finds what it would have found.
The file is JSON, so nothing in it can run; it is written beside its place and moved there when it is whole, and carries
a digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.errors import InputError

__all__ = ["FILE", "SearchCheckpoint", "Generation", "CheckpointDir"]

Floats = npt.NDArray[np.float64]

FILE = "search.json"
FORMAT = "kilowait search"
VERSION = 1
AT_ONCE = 4
"""Starts that are tried before their values are kept."""


@dataclass(frozen=True)
class Generation:
    """What one generation found. Scores are relative to the start: below 1 is better."""

    number: int
    of: int
    training: float
    """Mean of the candidates on this generation's windows."""
    validation: float
    """Of the mean of the path on the validation windows; NaN where it was not tried."""
    best: float
    """Of what is taken, on the validation windows; 1 is the start."""
    step: float
    """Step of the search."""


class CheckpointDir(NamedTuple):
    """Where a search is kept."""

    folder: Path
    resume: bool = False
    """Whether it goes on from what is kept there."""
    begin: Callable[[], None] = lambda: None
    """Called when the search is known to be possible, before anything is read or written."""


class SearchCheckpoint:
    """The course of one search, and its file if it is kept.

    Args:
        identity: what makes it this search and no other, in numbers and words; it is gone on with by the same only.
        generations: how many there will be.
        keeping: where it is kept; None: nowhere.

    >>> course, search = (
    ...     SearchCheckpoint({"seed": 0}, 3, None),
    ...     EvolutionStrategy([1.0, 1.0], step=1.0, seed=0),
    ... )
    >>> for number in course.rest(search, np.random.default_rng(0)):
    ...     points = search.ask()
    ...     search.tell(points, (points**2).sum(axis=1))
    ...     course.path.append(search.mean)
    ...     course.close(Generation(number, 3, 1.0, 1.0, 1.0, search.step))
    >>> len(course.path), course.history[-1].number
    (3, 3)
    """

    def __init__(self, identity: Mapping[str, Any], generations: int, keeping: CheckpointDir | None) -> None:
        self.path: list[Floats] = []
        """Where the mean of the search was after each generation."""
        self.history: list[Generation] = []
        self.best: tuple[float, Floats] | None = None
        """What validated better than the start, with its value."""
        self._identity, self._generations = dict(identity), generations
        self._tried: list[Any] = []
        self._search: EvolutionStrategy | None = None
        self._random: np.random.Generator | None = None
        self._kept: dict[str, Any] = {}
        self._file = None if keeping is None else keeping.folder / FILE
        if keeping is None or self._file is None:
            return
        keeping.begin()
        if keeping.resume:
            self._load(self._file)
        else:
            self._keep()

    def starts(self, candidates: Sequence[Any], valued: Callable[[Sequence[Any]], Floats]) -> Floats:
        """What these places to begin at are worth, one row each; those that were valued before are not tried again."""
        while len(self._tried) < len(candidates):
            some = candidates[len(self._tried) : len(self._tried) + AT_ONCE]
            self._tried += valued(some).tolist()
            self._keep()
        return np.array(self._tried)

    def rest(self, search: EvolutionStrategy, random: np.random.Generator) -> Iterator[int]:
        """Numbers of the generations that are to be done, the search and the random numbers being where they were."""
        self._search, self._random = search, random
        if self.history:
            search.load_state_dict(self._kept["search"])
            random.bit_generator.state = self._kept["windows"]
        yield from range(len(self.history) + 1, self._generations + 1)

    def close(self, generation: Generation) -> None:
        """A generation is done."""
        self.history.append(generation)
        self._keep()

    def _keep(self) -> None:
        if self._file is None:
            return
        state: dict[str, Any] = {"identity": self._identity, "tried": self._tried}
        state["history"] = [asdict(one) for one in self.history]
        state["path"] = [point.tolist() for point in self.path]
        state["best"] = None if self.best is None else [self.best[0], self.best[1].tolist()]
        if self.history:
            assert self._search is not None and self._random is not None
            state["search"] = self._search.state_dict()
            state["windows"] = self._random.bit_generator.state
        write_document(self._file, _spelt(state))

    def _load(self, path: Path) -> None:
        state = _numbers(read_document(path))
        for name, value in self._identity.items():
            was = state["identity"].get(name)
            if was != value:
                raise InputError(
                    f"{path} was begun with {name} {was!r}, and this is {value!r}; resume with the same, or begin anew"
                )
        self._tried, self._kept = state["tried"], state
        self.path = [np.array(point) for point in state["path"]]
        self.history = [replace(Generation(**one), of=self._generations) for one in state["history"]]
        if state["best"] is not None:
            self.best = (state["best"][0], np.array(state["best"][1]))


def write_document(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state; what was there stays until all of it is on the disk."""
    beside = path.with_name(path.name + ".part")
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "digest": _digest(state), "state": state}, allow_nan=False
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as problem:
        raise InputError(
            f"cannot write {path}: {problem.strerror or problem}; the file that was there is as it was"
        ) from None


def read_document(path: Path) -> dict[str, Any]:
    """The state a file holds; a file that is damaged, or something else, is an InputError that says so."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path.parent} holds no search to resume; begin one without --resume") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(
            f"{path} is no {FORMAT}, or is cut off ({problem}); begin anew with --force"
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path} is no {FORMAT}: kilowait did not write it")
    if document.get("version") != VERSION:
        raise InputError(
            f"{path} is a {FORMAT} of version {document.get('version')!r}; this kilowait reads version {VERSION}: "
            "begin anew with --force"
        )
    state: dict[str, Any] = document.get("state", {})
    if document.get("digest") != _digest(state):
        raise InputError(f"{path} is damaged: it is not what was written; begin anew with --force")
    return state


def _digest(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, allow_nan=False).encode()).hexdigest()


def _spelt(value: Any) -> Any:
    """The same for JSON, which has no numbers for what is none."""
    if isinstance(value, dict):
        return {name: _spelt(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_spelt(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Any:
    """What `_spelt` was given."""
    if isinstance(value, dict):
        return {name: _numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return float(value) if value in ("nan", "inf", "-inf") else value
