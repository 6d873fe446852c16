"""Fitting of workload generators with checkpoints, and writing of the workloads they generate."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.checkpoint import Checkpoint, StateFormat
from kilowait.cluster import Cluster
from kilowait.errors import InputError, KilowaitError
from kilowait.evaluation.storage import save_folder
from kilowait.evaluation.storage.folder import check_writable
from kilowait.experiments.scenario_inputs import named_cluster
from kilowait.experiments.training.resume_checks import check_identity, jobs_digest
from kilowait.experiments.workload_settings import GeneratorSettings, SampleSettings
from kilowait.files import locks_output
from kilowait.jobs import JobTable
from kilowait.synth import Generator, fit_generator, load_generator
from kilowait.synth.fidelity.distances import column_distances
from kilowait.synth.generator import concatenate_tables
from kilowait.synth.gpu_workload import counts_gpus, gpus_of
from kilowait.synth.log_schema import LogSchema
from kilowait.synth.sampler import SampleProgress
from kilowait.traces import write_parts, write_trace, written_format

FILE = "last.safetensors"
FORMAT = StateFormat("state of a generator's training", version=2, remedy="start again with --force")
MEASURED_JOBS = 60_000
"""Maximum number of jobs of a log for which the fit also measures a sample's distances to the log; for longer logs use
`kilowait synth score`."""


@locks_output("out")
@locks_output("state", inside=True)
def fit_folder(
    jobs: JobTable,
    settings: GeneratorSettings,
    out: str | PathLike[str],
    *,
    manifest: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: SampleProgress | None = None,
    state: Path | None = None,
    resume: bool = False,
) -> Generator:
    """Fit a generator and write its folder atomically.

    Args:
        jobs: the log.
        settings: the generator and its training.
        out: its folder.
        manifest: origin of the jobs.
        force: replace an existing folder.
        progress: progress callback.
        state: folder of the checkpoint; removed when the fit is complete.
        resume: resume from the checkpoint.
    """
    check_writable(out, force=force or resume)
    hyperparameters = {} if settings.settings is None else parse_settings(settings.settings)
    checkpoint = None
    if state is not None:
        identity = {
            "model": settings.model,
            "jobs": f"{len(jobs):,} (digest {jobs_digest(jobs)})",
            "seed": settings.seed,
            "names": settings.keep_names,
            "device": settings.device,
            **{f"setting {name}": value for name, value in sorted(hyperparameters.items())},
        }
        check_identity(state, identity, resume=resume)
        checkpoint = Checkpoint(state / FILE, FORMAT, identity)
    try:
        generator = fit_generator(
            jobs,
            settings.model,
            seed=settings.seed,
            keep_names=settings.keep_names,
            progress=progress,
            device=settings.device,
            checkpoints=checkpoint,
            **hyperparameters,
        )
    except KilowaitError:
        if checkpoint is not None and not checkpoint.path.exists():  # the fit failed before its first checkpoint
            shutil.rmtree(checkpoint.path.parent, ignore_errors=True)
        raise
    if generator.privacy is None:
        _measure(generator, jobs)
    elif manifest is not None:
        # A digest of the log would let others verify a guess of its content.
        manifest = {name: value for name, value in manifest.items() if name not in ("inputs", "seeds")}
    save_folder(out, generator.save, kind="generator", manifest=manifest, force=force or resume)
    if checkpoint is not None:
        shutil.rmtree(checkpoint.path.parent, ignore_errors=True)
    return generator


def _measure(generator: Generator, jobs: JobTable) -> None:
    """Measure the distances of a sample's columns to the log's, if the log is small enough."""
    if len(jobs) <= MEASURED_JOBS:
        distances = column_distances(jobs, generator.sample(len(jobs), seed=generator.seed))
        generator.ks_distances = {distance.column: round(distance.ks, 4) for distance in distances}


def parse_settings(text: str) -> dict[str, Any]:
    """Parse settings of a generator: ``passes=10,draws=2``. Non-numeric values are strings.

    >>> parse_settings("passes=10,session_s=900.5,python=/opt/sdv/bin/python")
    {'passes': 10, 'session_s': 900.5, 'python': '/opt/sdv/bin/python'}
    """
    settings: dict[str, Any] = {}
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
        size = gpus_of(self.machine) if counts_gpus(self.machine) else self.machine.size
        return self.work / size / self.span_s if self.span_s > 0 else 0.0

    def count_while_writing(self, tables: Iterable[JobTable]) -> Iterator[JobTable]:
        """Yield each table to the writer, and add it to the statistics."""
        for table in tables:
            submit = table["submit_s"]
            size = table.column("gpus") if counts_gpus(self.machine) else table.size
            self.jobs += len(table)
            self.first_s, self.last_s = min(self.first_s, submit.min()), max(self.last_s, submit.max())
            self.work += float(np.dot(size.astype(np.float64), table["runtime_s"]))
            yield table


def _machine_of(schema: LogSchema, size: int) -> Cluster:
    """The machine of the log that a generator was fitted to, at another size in the unit of the log."""
    if schema.unit == "node":
        return Cluster.from_nodes(size)
    nodes = schema.meta.get("max_nodes") if schema.unit == "core" else None
    return Cluster.from_processors(size, nodes=None if nodes is None else max(1, round(nodes * size / schema.machine)))


@locks_output("out")
def sample_file(
    settings: SampleSettings,
    out: str | PathLike[str],
    *,
    format: str | None = None,
    progress: SampleProgress | None = None,
) -> WrittenSample:
    """Write a file of generated jobs. Parquet is written in parts with bounded memory, other formats from one table."""
    conditions, what_if = settings.conditions, settings.what_if
    generator = load_generator(settings.folder, allow_pickle_with=settings.allow_pickle_with)
    file_format = written_format(out, format)
    requested_cluster = None if settings.cluster.strip().lower() == "auto" else named_cluster(settings.cluster, 0.0)
    size = generator.schema.machine if what_if.nodes is None else what_if.nodes
    sample = WrittenSample(requested_cluster or _machine_of(generator.schema, int(size)))
    tables = sample.count_while_writing(
        generator.tables(
            settings.jobs,
            days=settings.days,
            seed=settings.seed,
            conditions=conditions,
            what_if=what_if,
            cluster=requested_cluster,
            progress=progress,
        )
    )
    if file_format == "parquet":
        write_parts(tables, out)
    else:
        write_trace(concatenate_tables(tables), out, format=file_format, cluster=sample.machine)
    return sample
