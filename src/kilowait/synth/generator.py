"""Interface of learned workload generators: fit to a log, sample jobs, save and load.

Every generator satisfies these properties (one parametrized test checks all of them):

- the same seed gives the same jobs;
- sizes and requests are values the log has; a run time exceeds its request by at most the maximum of the log;
- submissions are in order, in log time, so that hours and weekdays have the same meaning as in the log;
- users and accounts have new numbers, unless the generator was fitted to keep names.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.files import locks_output
from kilowait.files.array_file import StoredArrays
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.conditions import Conditions, ConditionValue
from kilowait.synth.gpu_workload import counts_gpus, gpus_of
from kilowait.synth.log_schema import Columns, LogSchema, log_schema, prefixed, rows_of
from kilowait.synth.sampler import SamplePart, SampleProgress, SampleRequest, expected_job_count, sample_parts
from kilowait.synth.trainer import CheckpointStore
from kilowait.synth.what_if import WhatIf, WorkloadChanges

State = dict[str, npt.NDArray[Any]]
"""Fitted parameters of a generator, by name."""


CARD, STATE = "card.json", "state.npz"
PICKLE_WARNING = (
    "the state contains a pickle: sampling from this folder runs any code in it; do so only if you trust it"
)
MAX_SETTING = 1e12
"""Largest absolute value of a setting."""
VERSION = 2
"""Version of the folder format."""


def setting(default: Any, *, least: float | None = None, most: float | None = None, above: float | None = None) -> Any:
    """Field of a settings dataclass: its default, and the limits that `check_settings` checks."""
    return field(default=default, metadata={"least": least, "most": most, "above": above})


def check_settings(settings: Any) -> None:
    """Raise an InputError that names the first setting outside its limits; settings that are None have none."""
    for item in fields(settings):
        value, limits = getattr(settings, item.name), item.metadata
        if value is None:
            continue
        if limits.get("least") is not None and not value >= limits["least"]:
            raise InputError(f"{item.name} is {value}; it must be at least {limits['least']:g}")
        if limits.get("most") is not None and not value <= limits["most"]:
            raise InputError(f"{item.name} is {value}; it must be at most {limits['most']:,}")
        if limits.get("above") is not None and not value > limits["above"]:
            raise InputError(f"{item.name} is {value}; it must be above {limits['above']:g}")


class Generator(ABC):
    """A workload learned from a log."""

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]
    """A frozen dataclass of settings with defaults."""
    personal_data: ClassVar[str] = "what it was fitted to; see the page on synthetic workloads"
    """Personal data in a saved generator, as text for the card."""
    contains_code: ClassVar[bool] = False
    """Whether loading its folder can run code, as pickles do."""

    def __init__(self, schema: LogSchema, settings: Any, seed: int) -> None:
        self.schema, self.settings, self.seed = schema, settings, seed
        self.device = "cpu"
        self.checkpoints: CheckpointStore | None = None
        self.privacy: dict[str, Any] | None = None
        """Privacy guarantee of the fit, if any: epsilon, delta, unit, and what is not covered."""
        self.ks_distances: dict[str, float] | None = None
        """Kolmogorov-Smirnov distance of a sample to the log by column; None if not measured."""

    # -- implemented by each kind -------------------------------------------------------------------

    @abstractmethod
    def _learn(self, rows: Columns, progress: SampleProgress) -> None:
        """Learn from the log's rows."""

    @abstractmethod
    def _stream(self, jobs: int, seed: int, layer: int, progress: SampleProgress) -> Iterator[SamplePart]:
        """Stream the endless workload in parts, with the columns of the log, from its first submission on.

        Each part comes with a time before which no later part has submissions; rows within it need no order. About
        `jobs` jobs will be needed. Another layer is another sample of the same workload at the same time. `progress`
        gets the completed share of each part.
        """

    @abstractmethod
    def _state(self) -> State:
        """All fitted parameters."""

    @abstractmethod
    def _restore(self, state: StoredArrays) -> None:
        """Restore the fitted parameters."""

    # -- shared by all kinds --------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        jobs: JobTable,
        *,
        seed: int = 0,
        keep_names: bool = False,
        progress: SampleProgress | None = None,
        device: str = "cpu",
        checkpoints: CheckpointStore | None = None,
        **settings: Any,
    ) -> Self:
        """Fit a generator to the log `jobs`.

        Args:
            jobs: the log.
            seed: the same seed gives the same generator.
            keep_names: keep the numbers and names of users and accounts, in the folder and in samples.
            progress: called with the current activity and the completed share.
            device: where a network is trained: cpu, cuda, or auto for a GPU where there is one.
            checkpoints: checkpoint store of the training; a stored state is resumed.
            settings: hyperparameters of this generator.
        """
        jobs = jobs if jobs.unit == "node" else jobs.with_unit(jobs.unit, nodes=jobs.size)
        schema = log_schema(jobs, keep_names=keep_names)
        generator = cls(schema, settings_from(cls, settings), seed)
        generator.device, generator.checkpoints = device, checkpoints
        generator._learn(rows_of(jobs, schema), progress or _no_progress)
        return generator

    def sample(
        self,
        jobs: int | None = None,
        *,
        days: float | None = None,
        seed: int = 0,
        conditions: Mapping[str, ConditionValue] | None = None,
        what_if: WhatIf | None = None,
        cluster: Cluster | None = None,
        progress: SampleProgress | None = None,
    ) -> JobTable:
        """Sample jobs, from about the log's first submission on.

        Args:
            jobs: number of jobs.
            days: number of days instead, which may be more than those of the log.
            seed: the same seed gives the same jobs.
            conditions: conditions on the jobs (see `kilowait.synth.conditions`), such as
                ``{"queue": "long", "nodes": (1, 16)}``.
            what_if: changes of the load, the job mix, groups or the machine; they can be combined.
            cluster: machine for the offered load; None: the log's, or that of the changes.
            progress: called with the current activity and the completed share.
        """
        return concatenate_tables(
            self.tables(
                jobs, days=days, seed=seed, conditions=conditions, what_if=what_if, cluster=cluster, progress=progress
            )
        )

    def tables(
        self,
        jobs: int | None = None,
        *,
        days: float | None = None,
        seed: int = 0,
        conditions: Mapping[str, ConditionValue] | None = None,
        what_if: WhatIf | None = None,
        cluster: Cluster | None = None,
        progress: SampleProgress | None = None,
    ) -> Iterator[JobTable]:
        """The jobs of `sample`, in parts, for samples that do not fit into memory."""
        schema = self.schema
        changes = what_if or WhatIf()
        gpus = cluster is not None and counts_gpus(cluster)
        if cluster is not None and changes.nodes is not None:
            raise InputError("a cluster and a number of nodes are given; use only one of them")
        request = SampleRequest(
            jobs,
            days,
            seed,
            Conditions(conditions or {}, schema),
            WorkloadChanges(changes, schema),
            work="gpus" if gpus else "nodes",
            capacity=None if cluster is None else gpus_of(cluster) if gpus else cluster.size,
        )
        request.check()
        expected = expected_job_count(schema, request)
        person_numbers = {
            name: schema.seen[name] if name in schema.seen else stream(seed, f"synth.{name}").permutation(count) + 1
            for name, count in schema.numbered.items()
        }
        meta = {
            **schema.meta,
            **request.changes.meta(),
            "workload": "synthetic",
            "model": self.name,
            "source": schema.source,
            "seed": int(seed),
        }
        sampled = sample_parts(
            lambda layer, part_progress: self._stream(expected, seed, layer, part_progress),
            schema,
            request,
            progress or _no_progress,
        )
        count_before = 0
        for rows in sampled:
            for name, numbers in person_numbers.items():
                if rows[name].max(initial=-1) >= len(numbers):
                    raise InputError(
                        f"{name} {rows[name].max()} is sampled, but the generator knows {len(numbers)}; fit it again"
                    )
            columns: dict[str, Any] = {name: rows[name] for name in ("submit_s", *schema.columns)}
            columns |= {name: numbers[rows[name]] for name, numbers in person_numbers.items()}
            columns |= _cores_and_nodes(columns["nodes"], meta)
            count = len(columns["submit_s"])
            yield JobTable(
                job_id=np.arange(count_before + 1, count_before + count + 1), labels=schema.labels, meta=meta, **columns
            )
            count_before += count

    @locks_output("folder", inside=True)
    def save(self, folder: str | PathLike[str]) -> None:
        """Write `card.json` (description) and `state.npz` (fitted parameters) into a folder.

        They contain no executable code unless the generator `contains_code`; the card says so.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        schema = self.schema
        card = {
            "generator": self.name,
            "version": VERSION,
            "seed": int(self.seed),
            "settings": asdict(self.settings),
            "personal_data": self._personal_data_text(),
            "privacy": self.privacy,
            "ks_distances": self.ks_distances,
            **({"warning": PICKLE_WARNING} if self.contains_code else {}),
            "log": {
                item.name: getattr(schema, item.name) for item in fields(schema) if item.name not in ("seen", "meta")
            }
            | {"meta": dict(schema.meta)},
        }
        (path / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
        np.savez_compressed(path / STATE, allow_pickle=False, **self._state(), **prefixed("seen", schema.seen))

    def _personal_data_text(self) -> str:
        """Personal data that the folder contains, as text."""
        names = "; the numbers and names of users and accounts" if "user" in self.schema.seen else ""
        return self.personal_data + names


def _cores_and_nodes(size: npt.NDArray[np.int64], meta: Mapping[str, Any]) -> dict[str, npt.NDArray[np.int64]]:
    """The columns of job sizes of a log that counts cores or processors; empty if it counts nodes."""
    unit, processors, nodes = (meta.get(name) for name in ("unit", "max_procs", "max_nodes"))
    if unit not in ("core", "processor"):
        return {}
    if unit == "processor" or not processors or not nodes:
        return {"cores": size}
    return {"cores": size, "nodes": np.ceil(size * nodes / processors).astype(np.int64)}


def concatenate_tables(tables: Iterable[JobTable]) -> JobTable:
    """The parts of a sample as one table."""
    parts = list(tables)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns}
    return JobTable(labels=parts[0].labels, meta=parts[0].meta, **columns)


def settings_from(kind: type[Generator], values: Mapping[str, Any]) -> Any:
    """Settings of a kind of generator, with defaults for those that are not given."""
    defaults = {item.name: item.default for item in fields(kind.settings_type)}
    for name, value in values.items():
        if name not in defaults:
            raise UnknownNameError(f"setting of the generator {kind.name}", name, defaults)
        if isinstance(value, str) != isinstance(defaults[name], str):
            expected = "text" if isinstance(defaults[name], str) else "a number"
            raise InputError(f"{name} of the generator {kind.name} is {value!r}; it must be {expected}")
        _check_number(kind, name, value, defaults[name])
    whole = {name for name, default in defaults.items() if isinstance(default, int) and not isinstance(default, bool)}
    return kind.settings_type(**{name: int(value) if name in whole else value for name, value in values.items()})


def _check_number(kind: type[Generator], name: str, value: Any, default: Any) -> None:
    """Raise unless a setting that is not text is a number, whole where its default is whole, or null as its default."""
    if isinstance(value, str) or (value is None and default is None):
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -MAX_SETTING <= value <= MAX_SETTING:
        raise InputError(f"{name} of the generator {kind.name} is {value!r}; it must be a number of usual size")
    if isinstance(default, int) and value != int(value):
        raise InputError(f"{name} of the generator {kind.name} is {value!r}; it must be a whole number")


def _no_progress(what: str, share: float) -> None:
    """Progress callback that does nothing."""


# -- rows in groups -------------------------------------------------------------------------------


GROUP_JOBS = 50_000
"""Maximum jobs of a group. A change alters the jobs of a seed."""


class RowGenerator(Generator):
    """A generator that samples groups of rows."""

    @abstractmethod
    def _group(self, jobs: int, first_s: float, rng: np.random.Generator, progress: SampleProgress) -> Columns:
        """`jobs` rows in order of submission, the first of them at `first_s` in log time."""

    def _stream(self, jobs: int, seed: int, layer: int, progress: SampleProgress) -> Iterator[SamplePart]:
        last_s, number = self.schema.first_s, 0
        while True:
            rng = stream(seed, f"synth.{self.name}.draw.{layer}.{number}")
            repeated = int(number > 0)  # its first row repeats the last one of the previous group
            rows = self._group(min(jobs, GROUP_JOBS) + repeated, last_s, rng, progress)
            rows = {name: column[repeated:] for name, column in rows.items()}
            last_s = float(rows["submit_s"][-1])
            number += 1
            yield rows, last_s
