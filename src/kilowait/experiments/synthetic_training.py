"""Synthetic jobs for training agents, and the check that their generator has not seen validation or test jobs.

A generator's card names the log it was fitted to, and the period. If that is the log an agent is trained on, the period
should end with the training jobs: otherwise there is data leakage from later jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.agents.training_data import SyntheticMix
from kilowait.cluster import Cluster
from kilowait.errors import InputError, TableError
from kilowait.evaluation.comparison import split
from kilowait.evaluation.storage.folder import read_json
from kilowait.experiments.inputs import Workload, rescale_to_load
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.synth import Generator, load_generator
from kilowait.synth.log_schema import LogSchema, unix_zero_s

__all__ = [
    "SyntheticJobs",
    "SyntheticTraining",
    "check_synthetic_supported",
    "sample_synthetic",
    "data_overlap",
]


@dataclass(frozen=True)
class SyntheticTraining:
    """Synthetic jobs of a training, and their share of its windows."""

    folders: tuple[str, ...]
    """Folders of generators, written by kilowait synth fit."""
    share: float = 0.5
    """Share of synthetic windows, or episodes; 1: synthetic jobs only."""
    curriculum: str = "mixed"
    """A name of `kilowait.agents.training_data.CURRICULA`."""
    jobs: int | None = None
    """Jobs of each generator; None: as many as the training jobs of the log."""

    @classmethod
    def from_options(
        cls, folders: str | None, share: float | None, curriculum: str | None, jobs: int | None
    ) -> SyntheticTraining | None:
        """From the options of the command line, with commas between folders; None where no generator is named.

        >>> SyntheticTraining.asked("models/a, models/b", None, None, None).folders
        ('models/a', 'models/b')
        """
        options: dict[str, Any] = {"share": share, "curriculum": curriculum, "jobs": jobs}
        given = {name: value for name, value in options.items() if value is not None}
        if folders is None:
            if given:
                first = next(iter(given))
                raise InputError(
                    f"--synthetic-{first} {given[first]} applies to synthetic jobs, and no generator is named; add "
                    "--synthetic DIR, a folder written by kilowait synth fit"
                )
            return None
        names = tuple(name.strip() for name in folders.split(",") if name.strip())
        if not names:
            raise InputError(f"--synthetic is {folders!r}; name folders written by kilowait synth fit")
        return cls(names, **given)


@dataclass(frozen=True)
class SyntheticJobs:
    """Synthetic jobs with their origin."""

    mixture: SyntheticMix
    record: dict[str, Any]
    """Entry of the manifest."""
    warnings: tuple[str, ...]
    """Warnings about data leakage."""


def check_synthetic_supported(cluster: Cluster, *, powered: bool, predicted: bool = False) -> None:
    """Raise an error where synthetic jobs are not supported."""
    if cluster.node_level:
        raise InputError(
            f"synthetic jobs are for clusters of whole nodes, and {cluster.name} is a node-level GPU cluster; leave "
            "--synthetic out"
        )
    if powered or predicted:
        what = "their power is unknown" if powered else "their run times are not predicted"
        name = "--power" if powered else "--runtime-predictor"
        raise InputError(
            f"synthetic jobs cannot be mixed in with {name}: {what}; leave {name} or --synthetic out"
        )


def sample_synthetic(
    options: SyntheticTraining,
    log: Workload,
    cluster: Cluster,
    *,
    seed: int,
    trace: str,
    load: float | None = None,
    as_logged: JobTable | None = None,
) -> SyntheticJobs:
    """Sample jobs of every generator, for a training on the first 60 % of a log.

    Args:
        options: generators and number of jobs.
        log: all jobs of the log.
        cluster: the machine, which must be large enough for all synthetic jobs.
        seed: of the samples.
        trace: the log as it was named.
        load: the load that the log was scaled to; the synthetic jobs are scaled to it too.
        as_logged: the log's jobs before scaling, where `load` changed them.
    """
    check_synthetic_supported(cluster, powered=False)
    count = len(split(log.jobs).train) if options.jobs is None else options.jobs
    generators = [load_generator(folder) for folder in options.folders]
    SyntheticMix((log.jobs,), options.share, options.curriculum)  # raises errors before jobs are sampled
    tables, records, warnings = [], [], []
    for folder, generator in zip(options.folders, generators, strict=True):
        sampled = generator.sample(count, seed=seed)
        _check_fits(sampled, cluster, folder)
        tables.append(rescale_to_load(sampled, cluster, load))
        overlap = data_overlap(
            generator.schema,
            log.jobs if as_logged is None else as_logged,
            same=_same(folder, generator, log, trace),
        )
        records.append(
            {"folder": folder, "generator": generator.name, "jobs": count, "seed": seed, **overlap}
        )
        warnings += _overlap_warnings(folder, overlap, trace, len(split(log.jobs).train))
    record = {"share": options.share, "curriculum": options.curriculum, "generators": records}
    return SyntheticJobs(
        SyntheticMix(tuple(tables), options.share, options.curriculum), record, tuple(warnings)
    )


def data_overlap(facts: LogSchema, jobs: JobTable, *, same: bool) -> dict[str, Any]:
    """Period of the log a generator was fitted to; and, for this log (`same`), which later part it overlaps.

    >>> from kilowait.synth import lublin
    >>> from kilowait.synth.log_schema import log_schema
    >>> jobs = lublin(1000, 64, seed=1)
    >>> [data_overlap(log_schema(jobs[:some]), jobs, same=True)["saw"] for some in (600, 700, 900)]
    ['training jobs only', 'validation jobs', 'judged jobs']
    """
    zero_s = facts.meta.get("unix_start_s")
    first_s, last_s = facts.first_s, facts.first_s + facts.span_s
    fitted: dict[str, Any] = {
        "fitted_to": facts.source,
        "fitted_jobs": facts.jobs,
        "fitted_from": _moment(first_s, zero_s),
        "fitted_until": _moment(last_s, zero_s),
    }
    if not same:
        return {**fitted, "saw": "another log"}
    parts = split(jobs)
    moved_s = facts.zero_s - unix_zero_s(jobs)
    begins = {
        "validation": float(parts.validation["submit_s"][0]),
        "judged": float(parts.test["submit_s"][0]),
    }
    saw = "training jobs only"
    for name, begin_s in begins.items():
        if last_s + moved_s > begin_s or (last_s + moved_s == begin_s and facts.jobs > len(parts.train)):
            saw = f"{name} jobs"
    zero = jobs.meta.get("unix_start_s")
    return {**fitted, "saw": saw, **{f"{name}_from": _moment(at, zero) for name, at in begins.items()}}


def _same(folder: str | PathLike[str], generator: Generator, log: Workload, trace: str) -> bool:
    """Whether a generator was fitted to the same log: by the inputs in its manifest, or else by the file's name.

    A synthetic workload has no file, and all workloads of a model have the same name: there only the input texts count.
    """
    manifest = Path(folder) / "manifest.json"
    inputs = read_json(manifest, Path(folder)).get("inputs", {}) if manifest.exists() else {}
    if trace in inputs or (log.sha256 is not None and log.sha256 in inputs.values()):
        return True
    named = generator.schema.source == str(
        log.jobs.meta.get("source") or log.jobs.meta.get("model") or "jobs"
    )
    return named and (log.sha256 is not None or not inputs)


def _overlap_warnings(folder: str, overlap: dict[str, Any], trace: str, training: int) -> list[str]:
    used = {"validation jobs": ("selected", "validation_from"), "judged jobs": ("evaluated", "judged_from")}
    if overlap["saw"] not in used:
        return []
    verb, begin = used[overlap["saw"]]
    return [
        f"{folder} was fitted to {overlap['fitted_to']} until {overlap['fitted_until']}, and the agent is {verb} "
        f"on its jobs from {overlap[begin]} on (data leakage); fit a generator to the training jobs alone: kilowait "
        f"synth fit {trace} --jobs {training}"
    ]


def _check_fits(jobs: JobTable, cluster: Cluster, folder: str) -> None:
    """Raise an error if a synthetic job cannot run on the machine of the log."""
    try:
        simulate(jobs, cluster, "fcfs", "none")
    except TableError:
        raise InputError(
            f"{folder} generates jobs of up to {int(jobs['nodes'].max()):,} nodes, and the machine has "
            f"{cluster.nodes:,}; take a generator fitted to a log of this machine, or a larger --cluster"
        ) from None


def _moment(at_s: float, zero_s: float | None) -> str:
    """A time of a log: the date, or the day of the log where its start date is unknown."""
    if zero_s is None:
        return f"day {at_s / 86400.0:.1f} of the log"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=float(zero_s) + at_s)).strftime("%Y-%m-%d")
