"""Learned workload generators: fitted to a log, kept in a folder, asked for jobs; one interface for all kinds.

Whatever its kind, a generator keeps these laws (one test runs through all of them):

- the same seed gives the same jobs;
- sizes and requests are values the log has; a run time is above its request by no more than the log's worst;
- submissions are in order, on the log's own clock, so that hours and weekdays mean what they mean in the log;
- users and accounts have new numbers, unless the generator was fitted to keep names.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.checkpoint import CheckpointStore
from kilowait.synth.conditions import Conditions, Wanted
from kilowait.synth.gpu_workload import counts_gpus, gpus_of
from kilowait.synth.log_schema import (
    Columns,
    LogSchema,
    facts_of,
    rows_of,
)
from kilowait.synth.sampler import (
    Part,
    SampleProgress,
    SampleRequest,
    drawn,
    expected_jobs,
)
from kilowait.synth.what_if import Changes, Kinds, WhatIf

__all__ = [
    "Generator",
    "Part",
    "State",
    "SampleProgress",
    "joined",
    "settings_from",
]

State = dict[str, npt.NDArray[Any]]
"""What a fitted generator consists of, by name."""


CARD, STATE = "card.json", "state.npz"
CODE = (
    "the state holds a pickle: sampling from this folder runs what code is in it; do so only if you trust it"
)
VERSION = 2
"""Of the folder's form."""


class Generator(ABC):
    """A workload learned from a log."""

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]
    """A frozen dataclass: what one can set, with defaults."""
    holds: ClassVar[str] = "what it was made of; see the page on synthetic workloads"
    """What a folder of this kind holds of people, in words, for the card."""
    holds_code: ClassVar[bool] = False
    """Whether what it keeps in its folder runs code when it is opened, as pickles do."""

    def __init__(self, facts: LogSchema, settings: Any, seed: int) -> None:
        self.facts, self.settings, self.seed = facts, settings, seed
        self.device = "cpu"
        self.keep: CheckpointStore | None = None
        self.privacy: dict[str, Any] | None = None
        """What is promised of the people in the log, where anything is: epsilon, delta, of whom, and what is not."""
        self.likeness: dict[str, float] | None = None
        """Of each column how far a sample was from the log (Kolmogorov-Smirnov), where that was measured."""

    # -- what each kind brings ---------------------------------------------------------------------

    @abstractmethod
    def _learn(self, rows: Columns, told: SampleProgress) -> None:
        """Learn from the log's rows."""

    @abstractmethod
    def _stream(self, jobs: int, seed: int, layer: int, told: SampleProgress) -> Iterator[Part]:
        """The workload without end, part after part, with the columns of the log and from its first submission on.

        Each part comes with a moment before which no later part submits anything; within it rows need no order. About
        `jobs` will be wanted. Another layer is another draw of the same workload at the same time. `told` is told the
        share of each part.
        """

    @abstractmethod
    def _state(self) -> State:
        """All that was learned."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Take over what was learned."""

    # -- what all share ----------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        jobs: JobTable,
        *,
        seed: int = 0,
        names: bool = False,
        told: SampleProgress | None = None,
        device: str = "cpu",
        keep: CheckpointStore | None = None,
        **settings: Any,
    ) -> Self:
        """A generator of workloads like `jobs`.

        Args:
            jobs: the log.
            seed: same seed, same generator.
            names: keep the numbers and names of users and accounts, in the folder and in samples.
            told: called with what is being done and the share that is done.
            device: where a network learns: cpu, cuda, or auto for a GPU where there is one.
            keep: where a training is kept while it goes on; what is there is gone on with.
            settings: of this kind of generator.
        """
        facts = facts_of(jobs, names=names)
        made = cls(facts, settings_from(cls, settings), seed)
        made.device, made.keep = device, keep
        made._learn(rows_of(jobs, facts), told or _nobody)
        return made

    def sample(
        self,
        jobs: int | None = None,
        *,
        days: float | None = None,
        seed: int = 0,
        conditions: Mapping[str, Wanted] | None = None,
        load: float | None = None,
        mix: Kinds | None = None,
        grow: Kinds | None = None,
        nodes: int | None = None,
        cluster: Cluster | None = None,
        told: SampleProgress | None = None,
    ) -> JobTable:
        """Generated jobs, from about the log's first submission on; what-ifs can be combined.

        Args:
            jobs: how many.
            days: for how long instead, which may be longer than the log.
            seed: same seed, same jobs.
            conditions: which jobs are wanted, see `kilowait.synth.conditions`: ``{"queue": "long", "nodes": (1, 16)}``.
            load: offered load; there are more or fewer jobs a day.
            mix: kinds of job that come more or less often, ``{"nodes": {(1, 4): 0.5, (64, 128): 2}}``, or that are a
                share of all, ``{"nodes": {(1, 4): "30%"}}``.
            grow: queues, users or accounts that submit more or less: ``{"queue": {"long": 3}}``.
            nodes: of another machine, on which jobs have other sizes and the load is the same.
            cluster: the machine that the load is offered to; None: the log's, or that of `nodes`.
            told: called with what is being done and the share that is done.
        """
        what_if = WhatIf(load, mix or {}, grow or {}, nodes)
        return joined(
            self.tables(
                jobs,
                days=days,
                seed=seed,
                conditions=conditions,
                what_if=what_if,
                cluster=cluster,
                told=told,
            )
        )

    def tables(
        self,
        jobs: int | None = None,
        *,
        days: float | None = None,
        seed: int = 0,
        conditions: Mapping[str, Wanted] | None = None,
        what_if: WhatIf | None = None,
        cluster: Cluster | None = None,
        told: SampleProgress | None = None,
    ) -> Iterator[JobTable]:
        """The jobs of `sample`, part after part, for samples that should not be in memory as a whole."""
        facts = self.facts
        what = what_if or WhatIf()
        gpus = cluster is not None and counts_gpus(cluster)
        if cluster is not None and what.nodes is not None:
            raise InputError(
                "a cluster and another number of nodes are given; name the machine by one of them"
            )
        asked = SampleRequest(
            jobs,
            days,
            seed,
            Conditions(conditions or {}, facts),
            Changes(what, facts),
            work="gpus" if gpus else "nodes",
            capacity=None if cluster is None else gpus_of(cluster) if gpus else cluster.nodes,
        )
        asked.check()
        expected = expected_jobs(facts, asked)
        new = {
            name: facts.seen[name]
            if name in facts.seen
            else stream(seed, f"synth.{name}").permutation(count) + 1
            for name, count in facts.numbered.items()
        }
        meta = {
            **facts.meta,
            **asked.changes.meta(),
            "workload": "synthetic",
            "model": self.name,
            "source": facts.source,
            "seed": int(seed),
        }
        parts = drawn(
            lambda layer, heard: self._stream(expected, seed, layer, heard), facts, asked, told or _nobody
        )
        done = 0
        for rows in parts:
            columns: dict[str, Any] = {name: rows[name] for name in ("submit_s", *facts.columns)}
            columns |= {name: numbers[rows[name]] for name, numbers in new.items()}
            count = len(columns["submit_s"])
            yield JobTable(
                job_id=np.arange(done + 1, done + count + 1), labels=facts.labels, meta=meta, **columns
            )
            done += count

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
            "holds": self._holds(),
            "privacy": self.privacy,
            "likeness_ks": self.likeness,
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

    def _holds(self) -> str:
        """What the folder holds of people."""
        names = "; the numbers and names of users and accounts" if "user" in self.facts.seen else ""
        return self.holds + names


def joined(tables: Iterable[JobTable]) -> JobTable:
    """The parts of a sample as one table."""
    parts = list(tables)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns}
    return JobTable(labels=parts[0].labels, meta=parts[0].meta, **columns)


def settings_from(kind: type[Generator], given: Mapping[str, Any]) -> Any:
    """Settings of a kind of generator, those that are not given as they are otherwise."""
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
