"""Writing of synthetic workloads from saved generators, and parsing of generator settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.experiments.scenario_inputs import named_cluster
from kilowait.experiments.synthetic_score import score_synthetic
from kilowait.files import locks_output
from kilowait.jobs import JobTable
from kilowait.synth import WhatIf, load_generator
from kilowait.synth.conditions import ConditionValue
from kilowait.synth.generator import SampleProgress, concatenate_tables
from kilowait.synth.gpu_workload import counts_gpus, gpus_of
from kilowait.traces import write_parts, write_trace, written_format

__all__ = ["parse_settings", "sample_file", "score_synthetic"]


def parse_settings(text: str) -> dict[str, float | str]:
    """Parse settings of a generator: ``passes=10,draws=2``. Non-numeric values are strings.

    >>> parse_settings("passes=10,session_s=900.5,python=/opt/sdv/bin/python")
    {'passes': 10, 'session_s': 900.5, 'python': '/opt/sdv/bin/python'}
    """
    settings: dict[str, float | str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InputError(f"the settings contain {part!r}; write name=value, separated by commas: passes=10,draws=2")
        try:
            number = float(value)
        except ValueError:
            settings[name] = value
            continue
        if not math.isfinite(number):
            raise InputError(f"the settings contain {part!r}; numbers must be finite")
        settings[name] = int(number) if number == int(number) else number
    return settings


@dataclass
class WrittenSample:
    """Number of jobs, time span and offered load of a written sample."""

    machine: Cluster
    jobs: int = 0
    first_s: float = math.inf
    last_s: float = -math.inf
    work: float = 0.0
    """Node-seconds, or GPU-seconds where the offered load counts GPUs."""

    @property
    def span_s(self) -> float:
        """From the first submission to the last."""
        return self.last_s - self.first_s

    @property
    def load(self) -> float:
        """The offered load; 0 if it is undefined."""
        size = gpus_of(self.machine) if counts_gpus(self.machine) else self.machine.nodes
        return self.work / size / self.span_s if self.span_s > 0 else 0.0

    def count_while_writing(self, tables: Iterable[JobTable]) -> Iterator[JobTable]:
        """Yield each table to the writer, and add it to the statistics."""
        for table in tables:
            submit, column = table["submit_s"], "gpus" if counts_gpus(self.machine) else "nodes"
            self.jobs += len(table)
            self.first_s, self.last_s = min(self.first_s, submit.min()), max(self.last_s, submit.max())
            self.work += float(np.dot(table.column(column).astype(np.float64), table["runtime_s"]))
            yield table


@locks_output("out")
def sample_file(
    folder: str | PathLike[str],
    out: str | PathLike[str],
    *,
    jobs: int | None = None,
    days: float | None = None,
    seed: int = 0,
    conditions: Mapping[str, ConditionValue] | None = None,
    what_if: WhatIf | None = None,
    cluster: str = "auto",
    format: str | None = None,
    trust: str | None = None,
    progress: SampleProgress | None = None,
) -> WrittenSample:
    """Write a file of generated jobs. Parquet is written in parts with bounded memory, other formats from one table."""
    generator, file_format = load_generator(folder, allow_pickle_with=trust), written_format(out, format)
    requested_cluster = None if cluster.strip().lower() == "auto" else named_cluster(cluster)
    size = generator.schema.machine if what_if is None or what_if.nodes is None else what_if.nodes
    sample = WrittenSample(requested_cluster or Cluster.from_nodes(size))
    tables = sample.count_while_writing(
        generator.tables(
            jobs,
            days=days,
            seed=seed,
            conditions=conditions,
            what_if=what_if,
            cluster=requested_cluster,
            progress=progress,
        )
    )
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    if file_format == "parquet":
        write_parts(tables, out)
    else:
        write_trace(concatenate_tables(tables), out, format=file_format, cluster=sample.machine)
    return sample
