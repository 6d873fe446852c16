"""Learned workload generators: fitted to a log, kept in a folder, asked for jobs; one interface and a list of names.

Whatever its kind, a generator keeps these laws (one test runs through all of them):

- the same seed gives the same jobs;
- sizes and requests are values the log has; a run time is above its request by no more than the log's worst;
- submissions are in order, on the log's own clock, so that hours and weekdays mean what they mean in the log;
- users and accounts have new numbers, unless the generator was fitted to keep names.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.seeding import stream
from kilowait.synth.conditions import Conditions, Wanted
from kilowait.synth.facts import Columns, LogFacts, facts_of, rows_of

__all__ = [
    "GENERATORS",
    "OUTSIDE",
    "Generator",
    "State",
    "Told",
    "fit_generator",
    "load_generator",
    "settings_of",
]

GENERATORS: dict[str, tuple[str, str]] = {
    "bootstrap": (
        "kilowait.synth.bootstrap:Bootstrap",
        "whole weeks of the log, drawn again: copies, a baseline",
    ),
    "copula": ("kilowait.synth.copula:Copula", "each column as in the log, tied by a Gaussian copula"),
    "transformer": (
        "kilowait.synth.transformer:Transformer",
        "when people submit as in the log, what they submit from a network that knows their habits",
    ),
}
"""Name to where it lives, and what it is."""
OUTSIDE: dict[str, tuple[str, str]] = {
    "sdv:CTGAN": ("kilowait.synth.outside:CTGAN", "SDV's adversarial network"),
    "sdv:TVAE": ("kilowait.synth.outside:TVAE", "SDV's variational autoencoder"),
    "sdv:CopulaGAN": (
        "kilowait.synth.outside:CopulaGAN",
        "SDV's adversarial network on columns made normal",
    ),
    "sdv:GaussianCopula": ("kilowait.synth.outside:GaussianCopula", "SDV's copula"),
    "realtabformer": (
        "kilowait.synth.outside:RealTabFormer",
        "REaLTabFormer: a GPT-2 that writes jobs as lines of a table",
    ),
}
"""Those that need other people's libraries, in an environment of their own; see `kilowait.synth.outside`."""

State = dict[str, npt.NDArray[Any]]
"""What a fitted generator consists of, by name."""
Told = Callable[[str, float], None]
"""Progress: what is being done, and which share of it is done."""

CARD, STATE = "card.json", "state.npz"
CODE = (
    "the state holds a pickle: sampling from this folder runs what code is in it; do so only if you trust it"
)
VERSION = 1
"""Of the folder's form."""
MOST_DRAWN = 50
"""Jobs drawn for each one wanted, and two logs besides, before conditions are called impossible."""


class Generator(ABC):
    """A workload learned from a log."""

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]
    """A frozen dataclass: what one can set, with defaults."""
    holds_code: ClassVar[bool] = False
    """Whether what it keeps in its folder runs code when it is opened, as pickles do."""

    def __init__(self, facts: LogFacts, settings: Any, seed: int) -> None:
        self.facts, self.settings, self.seed = facts, settings, seed

    # -- what each kind brings ---------------------------------------------------------------------

    @abstractmethod
    def _learn(self, rows: Columns, told: Told) -> None:
        """Learn from the log's rows."""

    @abstractmethod
    def _draw(self, jobs: int, seed: int, told: Told) -> Columns:
        """At least `jobs` rows in order of submission, with the columns of the log."""

    @abstractmethod
    def _state(self) -> State:
        """All that was learned."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Take over what was learned."""

    # -- what all share ----------------------------------------------------------------------------

    @classmethod
    def fit(
        cls, jobs: JobTable, *, seed: int = 0, names: bool = False, told: Told | None = None, **settings: Any
    ) -> Self:
        """A generator of workloads like `jobs`.

        Args:
            jobs: the log.
            seed: same seed, same generator.
            names: keep the numbers and names of users and accounts, in the folder and in samples.
            told: called with what is being done and the share that is done.
            settings: of this kind of generator.
        """
        facts = facts_of(jobs, names=names)
        made = cls(facts, _settings(cls, settings), seed)
        made._learn(rows_of(jobs, facts), told or _nobody)
        return made

    def sample(
        self,
        jobs: int,
        *,
        seed: int = 0,
        conditions: Mapping[str, Wanted] | None = None,
        told: Told | None = None,
    ) -> JobTable:
        """`jobs` generated jobs, from about the log's first submission on.

        Args:
            jobs: how many.
            seed: same seed, same jobs.
            conditions: which jobs are wanted, see `kilowait.synth.conditions`: ``{"queue": "long", "nodes": (1, 16)}``.
            told: called with what is being done and the share that is done.
        """
        if isinstance(jobs, bool) or jobs != int(jobs) or jobs < 1:
            raise InputError(f"the number of jobs is {jobs}; it must be a whole number, at least 1")
        wanted = Conditions(conditions or {}, self.facts)
        rows = self._wanted(int(jobs), seed, wanted, told or _nobody)
        return self._table(rows, seed)

    def _wanted(self, jobs: int, seed: int, wanted: Conditions, told: Told) -> Columns:
        """Rows that meet the conditions; the workload is drawn ever longer until there are enough."""
        asked, most = jobs, MOST_DRAWN * jobs + 2 * self.facts.jobs
        while True:
            rows = self._draw(asked, seed, told)
            if not wanted.names:
                break
            fine = wanted.met(rows)
            found = int(fine.sum())
            if found >= jobs:
                rows = {name: column[fine] for name, column in rows.items()}
                break
            if asked >= most:
                raise InputError(
                    f"conditions {wanted}: {found:,} of {len(fine):,} drawn jobs meet them all, and {jobs:,} are "
                    "asked for; the workload hardly has such jobs: widen the conditions"
                )
            asked = min(most, int(len(fine) * min(10.0, 1.2 * jobs / max(found, 1)) + 1))
        return {name: column[:jobs] for name, column in rows.items()}

    def _table(self, rows: Columns, seed: int) -> JobTable:
        facts = self.facts
        rows = dict(rows)
        request = rows["estimate_s"]
        rows["runtime_s"] = np.minimum(rows["runtime_s"], request + facts.most_over_s)
        if facts.exact_requests:
            rows["estimate_s"] = rows["runtime_s"]
        for name, count in facts.numbered.items():
            known = facts.seen.get(name)
            new = stream(seed, f"synth.{name}").permutation(count) + 1 if known is None else known
            rows[name] = new[rows[name]]
        meta = {
            **facts.meta,
            "workload": "synthetic",
            "model": self.name,
            "source": facts.source,
            "seed": int(seed),
        }
        columns: dict[str, Any] = {name: rows[name] for name in ("submit_s", *facts.columns)}
        return JobTable(job_id=np.arange(1, len(request) + 1), labels=facts.labels, meta=meta, **columns)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write `card.json` (what this is) and `state.npz` (what was learned) into a folder.

        No code is in them, unless the generator is one that `holds_code`; the card says so.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        facts = self.facts
        card = {
            "generator": self.name,
            "version": VERSION,
            "seed": int(self.seed),
            "settings": asdict(self.settings),
            **({"warning": CODE} if self.holds_code else {}),
            "log": {
                item.name: getattr(facts, item.name)
                for item in fields(facts)
                if item.name not in ("seen", "meta")
            }
            | {"meta": dict(facts.meta)},
        }
        (place / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
        seen = {f"seen.{name}": values for name, values in facts.seen.items()}
        np.savez_compressed(place / STATE, allow_pickle=False, **self._state(), **seen)


def fit_generator(
    jobs: JobTable,
    model: str = "bootstrap",
    *,
    seed: int = 0,
    names: bool = False,
    told: Told | None = None,
    **settings: Any,
) -> Generator:
    """A generator by name, fitted to a log; see `Generator.fit`.

    >>> from kilowait.synth import lublin
    >>> generator = fit_generator(lublin(500, 64, seed=1), "bootstrap")
    >>> len(generator.sample(2000, seed=7))
    2000
    """
    return _kind(model).fit(jobs, seed=seed, names=names, told=told, **settings)


def load_generator(folder: str | PathLike[str], *, trust: str | None = None) -> Generator:
    """The generator that `Generator.save` wrote into a folder.

    Args:
        folder: what was saved.
        trust: path of the Python that may run code which the folder holds. Only generators of other people's
            libraries hold any; without this they are not opened.
    """
    place = Path(folder)
    if not (place / CARD).is_file():
        raise InputError(f"{place} has no {CARD}; name a folder written by kilowait synth fit")
    try:
        card = json.loads((place / CARD).read_text(encoding="utf-8"))
        version, name = card["version"], card["generator"]
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{place / CARD} is damaged ({problem}); fit the generator again") from None
    if version != VERSION:
        raise InputError(
            f"{place} is of version {version} and this kilowait reads version {VERSION}; fit the generator again"
        )
    kind = _kind(name)
    if kind.holds_code and trust is None:
        raise InputError(
            f"{place} holds a pickle of {name}, and opening it runs what code is in it; if you trust who made it, "
            "name the Python that has the library: --trust PYTHON, or trust= in Python"
        )
    try:
        with (place / STATE).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            state = {key: file[key] for key in file.files}
        seen = {key.removeprefix("seen."): state.pop(key) for key in list(state) if key.startswith("seen.")}
        log = {
            **card["log"],
            "columns": tuple(card["log"]["columns"]),
            "labels": {column: tuple(words) for column, words in card["log"]["labels"].items()},
        }
        settings = card["settings"] | ({"python": trust} if kind.holds_code else {})
        made = kind(LogFacts(**log, seen=seen), _settings(kind, settings), int(card["seed"]))
        made._restore(state)
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as problem:
        raise InputError(
            f"{place / STATE} is damaged or missing ({problem}); fit the generator again"
        ) from None
    return made


def _kind(name: str) -> type[Generator]:
    known = GENERATORS | OUTSIDE
    if name not in known:
        raise UnknownNameError("generator", name, known)
    module, _, found = known[name][0].partition(":")
    kind: type[Generator] = getattr(import_module(module), found)
    return kind


def settings_of(name: str) -> dict[str, Any]:
    """What can be set of a generator, and what it is otherwise.

    >>> settings_of("bootstrap")
    {'days': 7}
    """
    return asdict(_kind(name).settings_type())


def _settings(kind: type[Generator], given: Mapping[str, Any]) -> Any:
    known = {item.name: item.default for item in fields(kind.settings_type)}
    for name, value in given.items():
        if name not in known:
            raise UnknownNameError(f"setting of the generator {kind.name}", name, known)
        if isinstance(value, str) != isinstance(known[name], str):
            wanted = "words" if isinstance(known[name], str) else "a number"
            raise InputError(f"{name} of the generator {kind.name} is {value!r}; it must be {wanted}")
    return kind.settings_type(**given)


def _nobody(what: str, share: float) -> None:
    """Nobody is told."""
