"""Synthetic jobs for training agents, and a check for data leakage from validation or test jobs.

A generator records the log it was fitted to, and the period. If an agent is trained on the same log, the period should
end with the training jobs: otherwise there is data leakage from later jobs.
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
from kilowait.experiments.scenario import Console
from kilowait.experiments.scenario_inputs import Workload, read_log, rescale_to_load
from kilowait.experiments.settings import Scenario
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.synth import Generator, load_generator
from kilowait.synth.log_schema import LogSchema, unix_zero_s


@dataclass(frozen=True)
class SyntheticTraining:
    """Settings of the synthetic jobs of a training."""

    folders: tuple[str, ...]
    """Folders of generators, as written by kilowait synth fit."""
    share: float = 0.5
    """Share of training windows or episodes with synthetic jobs; 1: synthetic jobs only."""
    curriculum: str = "mixed"
    """One of `kilowait.agents.training_data.CURRICULA`."""
    jobs: int | None = None
    """Number of jobs from each generator; None: as many as the log has training jobs."""

    @classmethod
    def from_options(
        cls, folders: str | None, share: float | None, curriculum: str | None, jobs: int | None
    ) -> SyntheticTraining | None:
        """From the options of the command line, with comma-separated folders; None if no generator is given.

        >>> SyntheticTraining.from_options("models/a, models/b", None, None, None).folders
        ('models/a', 'models/b')
        """
        options: dict[str, Any] = {"share": share, "curriculum": curriculum, "jobs": jobs}
        named = {name: value for name, value in options.items() if value is not None}
        if folders is None:
            if named:
                first = next(iter(named))
                raise InputError(
                    f"--synthetic-{first} {named[first]} applies to synthetic jobs, but no generator is given; add "
                    "--synthetic DIR, a folder written by kilowait synth fit"
                )
            return None
        names = tuple(name.strip() for name in folders.split(",") if name.strip())
        if not names:
            raise InputError(f"--synthetic is {folders!r}; name folders written by kilowait synth fit")
        return cls(names, **named)


@dataclass(frozen=True)
class SyntheticJobs:
    """Sampled synthetic jobs with their provenance."""

    mixture: SyntheticMix
    record: dict[str, Any]
    """Entry of the manifest."""
    warnings: tuple[str, ...]
    """Warnings about data leakage."""


def check_synthetic_supported(cluster: Cluster, *, has_power: bool, has_predictions: bool = False) -> None:
    """Raise an error if the cluster or the settings do not support synthetic jobs."""
    if cluster.node_level:
        raise InputError(
            f"synthetic jobs need a cluster of whole nodes, but {cluster.name} is a node-level GPU cluster; leave "
            "--synthetic out"
        )
    if has_power or has_predictions:
        what = "their power is unknown" if has_power else "their run times are not predicted"
        name = "--power" if has_power else "--runtime-predictor"
        raise InputError(f"synthetic jobs cannot be combined with {name}: {what}; leave {name} or --synthetic out")


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
        trace: the log as given by the user.
        load: offered load that the log was scaled to; the synthetic jobs are scaled to it too.
        as_logged: the jobs of the log before scaling to `load`.
    """
    check_synthetic_supported(cluster, has_power=False)
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
            same=_fitted_to_this_log(folder, generator, log, trace),
        )
        records.append({"folder": folder, "generator": generator.name, "jobs": count, "seed": seed, **overlap})
        warnings += _overlap_warnings(folder, overlap, trace, len(split(log.jobs).train))
    record = {"share": options.share, "curriculum": options.curriculum, "generators": records}
    return SyntheticJobs(SyntheticMix(tuple(tables), options.share, options.curriculum), record, tuple(warnings))


def synthetic_jobs_of(
    options: SyntheticTraining | None, scenario: Scenario, log: Workload, cluster: Cluster, seed: int, console: Console
) -> SyntheticJobs | None:
    """The synthetic jobs for a training on the log of a scenario, or None; warns if a generator has seen test jobs."""
    if options is None:
        return None
    check_synthetic_supported(
        cluster, has_power=scenario.power is not None, has_predictions=scenario.runtime_predictor is not None
    )
    logged = None if scenario.load is None else read_log(scenario).jobs
    with console.busy(f"sampling jobs from {', '.join(options.folders)} ..."):
        sampled = sample_synthetic(
            options, log, cluster, seed=seed, trace=scenario.trace, load=scenario.load, as_logged=logged
        )
    for warning in sampled.warnings:
        console.info(f"warning: {warning}")
    return sampled


def data_overlap(schema: LogSchema, jobs: JobTable, *, same: bool) -> dict[str, Any]:
    """Period that a generator was fitted to and, if that is this log (`same`), the latest split it overlaps.

    >>> from kilowait.synth import lublin
    >>> from kilowait.synth.log_schema import log_schema
    >>> jobs = lublin(1000, 64, seed=1)
    >>> [data_overlap(log_schema(jobs[:count]), jobs, same=True)["overlap"] for count in (600, 700, 900)]
    ['training jobs only', 'validation jobs', 'test jobs']
    """
    zero_s = schema.meta.get("unix_start_s")
    first_s, last_s = schema.first_s, schema.first_s + schema.span_s
    fitted: dict[str, Any] = {
        "fitted_to": schema.source,
        "fitted_jobs": schema.jobs,
        "fitted_from": _date_text(first_s, zero_s),
        "fitted_until": _date_text(last_s, zero_s),
    }
    if not same:
        return {**fitted, "overlap": "another log"}
    splits = split(jobs)
    offset_s = schema.zero_s - unix_zero_s(jobs)
    first_s_of = {"validation": float(splits.validation["submit_s"][0]), "test": float(splits.test["submit_s"][0])}
    overlap = "training jobs only"
    for name, begin_s in first_s_of.items():
        if last_s + offset_s > begin_s or (last_s + offset_s == begin_s and schema.jobs > len(splits.train)):
            overlap = f"{name} jobs"
    zero = jobs.meta.get("unix_start_s")
    return {
        **fitted,
        "overlap": overlap,
        **{f"{name}_from": _date_text(begin_s, zero) for name, begin_s in first_s_of.items()},
    }


def _fitted_to_this_log(folder: str | PathLike[str], generator: Generator, log: Workload, trace: str) -> bool:
    """Whether a generator was fitted to this log, by the inputs in its manifest or else by the file name.

    A synthetic workload has no file, and all workloads of a model have the same name: only its input text is compared.
    """
    manifest = Path(folder) / "manifest.json"
    inputs = read_json(manifest, Path(folder)).get("inputs", {}) if manifest.exists() else {}
    if trace in inputs or (log.sha256 is not None and log.sha256 in inputs.values()):
        return True
    named = generator.schema.source == str(log.jobs.meta.get("source") or log.jobs.meta.get("model") or "jobs")
    return named and (log.sha256 is not None or not inputs)


def _overlap_warnings(folder: str, overlap: dict[str, Any], trace: str, training_jobs: int) -> list[str]:
    uses = {"validation jobs": ("selected", "validation_from"), "test jobs": ("evaluated", "test_from")}
    if overlap["overlap"] not in uses:
        return []
    verb, first_job = uses[overlap["overlap"]]
    return [
        f"{folder} was fitted to {overlap['fitted_to']} until {overlap['fitted_until']}, and the agent is {verb} "
        f"on its jobs from {overlap[first_job]} on (data leakage); fit a generator to the training jobs only: kilowait "
        f"synth fit {trace} --jobs {training_jobs}"
    ]


def _check_fits(jobs: JobTable, cluster: Cluster, folder: str) -> None:
    """Raise an error if a synthetic job cannot run on the machine of the log."""
    try:
        simulate(jobs, cluster, "fcfs", "none")
    except TableError:
        raise InputError(
            f"{folder} generates jobs of up to {int(jobs['nodes'].max()):,} nodes, but the machine has "
            f"{cluster.size:,}; use a generator fitted to a log of this machine, or a larger --cluster"
        ) from None


def _date_text(time_s: float, zero_s: float | None) -> str:
    """A time of a log as text: the date, or the day of the log if its start date is unknown."""
    if zero_s is None:
        return f"day {time_s / 86400.0:.1f} of the log"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=float(zero_s) + time_s)).strftime("%Y-%m-%d")
