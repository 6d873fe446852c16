"""Jobs of learned generators, to train on; and whether a generator has seen jobs that an agent is judged on.

A generator's card says which log it was fitted to, and from when to when. Where that is the log an agent is trained
on, it should end with the training jobs: otherwise what is judged is not what comes after all that was learned from.
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
from kilowait.experiments.inputs import Workload, brought_to_load
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.synth import Generator, load_generator
from kilowait.synth.log_schema import LogSchema, clock_zero_s

__all__ = ["GeneratedJobs", "SyntheticTraining", "check_mixed", "drawn_for", "data_overlap"]


@dataclass(frozen=True)
class SyntheticTraining:
    """Which generated jobs an agent is trained on, and how many of its windows they are."""

    folders: tuple[str, ...]
    """Of generators, as kilowait synth fit writes them."""
    share: float = 0.5
    """Of the windows, or episodes, of the training; 1: generated jobs only."""
    curriculum: str = "mixed"
    """When: a name of `kilowait.agents.training_data.CURRICULA`."""
    jobs: int | None = None
    """From each generator; None: as many as the training jobs of the log."""

    @classmethod
    def asked(
        cls, folders: str | None, share: float | None, curriculum: str | None, jobs: int | None
    ) -> SyntheticTraining | None:
        """As people write it, with commas between folders; None where no generator is named.

        >>> SyntheticTraining.asked("models/a, models/b", None, None, None).folders
        ('models/a', 'models/b')
        """
        named: dict[str, Any] = {"share": share, "curriculum": curriculum, "jobs": jobs}
        given = {name: value for name, value in named.items() if value is not None}
        if folders is None:
            if given:
                first = next(iter(given))
                raise InputError(
                    f"--synthetic-{first} {given[first]} is of generated jobs, and no generator is named; add "
                    "--synthetic DIR, a folder written by kilowait synth fit"
                )
            return None
        found = tuple(name.strip() for name in folders.split(",") if name.strip())
        if not found:
            raise InputError(f"--synthetic is {folders!r}; name folders written by kilowait synth fit")
        return cls(found, **given)


@dataclass(frozen=True)
class GeneratedJobs:
    """Generated jobs, and where they come from."""

    mixture: SyntheticMix
    record: dict[str, Any]
    """For the manifest."""
    warnings: tuple[str, ...]
    """What people should know."""


def check_mixed(cluster: Cluster, *, powered: bool, predicted: bool = False) -> None:
    """An error where no generated jobs can be mixed in."""
    if cluster.node_level:
        raise InputError(
            f"generated jobs are for queues of whole nodes, and {cluster.name} gives out single nodes and GPUs; leave "
            "--synthetic out"
        )
    if powered or predicted:
        what = "nobody knows their power" if powered else "their run times are not predicted"
        name = "--power" if powered else "--runtime-predictor"
        raise InputError(
            f"generated jobs cannot be mixed in with {name}: {what}; leave {name} or --synthetic out"
        )


def drawn_for(
    asked: SyntheticTraining,
    log: Workload,
    cluster: Cluster,
    *,
    seed: int,
    trace: str,
    load: float | None = None,
    as_logged: JobTable | None = None,
) -> GeneratedJobs:
    """Jobs of every generator that is asked for, for a training on the first 60 % of a log.

    Args:
        asked: which, and how many.
        log: all jobs of the log.
        cluster: the machine, which all generated jobs must fit.
        seed: of the samples.
        trace: the log as it was named.
        load: what the log was brought to; so are the generated jobs.
        as_logged: the log's jobs at their own pace, where `load` changed it.
    """
    check_mixed(cluster, powered=False)
    count = len(split(log.jobs).train) if asked.jobs is None else asked.jobs
    generators = [load_generator(folder) for folder in asked.folders]
    SyntheticMix(
        (log.jobs,), asked.share, asked.curriculum
    )  # what is wrong with these is told before jobs are drawn
    tables, records, warnings = [], [], []
    for folder, generator in zip(asked.folders, generators, strict=True):
        made = generator.sample(count, seed=seed)
        _check_fits(made, cluster, folder)
        tables.append(brought_to_load(made, cluster, load))
        seen = data_overlap(
            generator.facts,
            log.jobs if as_logged is None else as_logged,
            same=_same(folder, generator, log, trace),
        )
        records.append({"folder": folder, "generator": generator.name, "jobs": count, "seed": seed, **seen})
        warnings += _warned(folder, seen, trace, len(split(log.jobs).train))
    record = {"share": asked.share, "curriculum": asked.curriculum, "generators": records}
    return GeneratedJobs(SyntheticMix(tuple(tables), asked.share, asked.curriculum), record, tuple(warnings))


def data_overlap(facts: LogSchema, jobs: JobTable, *, same: bool) -> dict[str, Any]:
    """From when to when a generator has seen its log; and, if that is this one, which of its later parts it has seen.

    >>> from kilowait.synth import lublin
    >>> from kilowait.synth.log_schema import facts_of
    >>> jobs = lublin(1000, 64, seed=1)
    >>> [data_overlap(facts_of(jobs[:some]), jobs, same=True)["saw"] for some in (600, 700, 900)]
    ['training jobs only', 'validation jobs', 'judged jobs']
    """
    zero_s = facts.meta.get("unix_start_s")
    first_s, last_s = facts.first_s, facts.first_s + facts.span_s
    told: dict[str, Any] = {
        "fitted_to": facts.source,
        "fitted_jobs": facts.jobs,
        "fitted_from": _moment(first_s, zero_s),
        "fitted_until": _moment(last_s, zero_s),
    }
    if not same:
        return {**told, "saw": "another log"}
    parts = split(jobs)
    moved_s = facts.zero_s - clock_zero_s(jobs)
    begins = {
        "validation": float(parts.validation["submit_s"][0]),
        "judged": float(parts.test["submit_s"][0]),
    }
    saw = "training jobs only"
    for name, begin_s in begins.items():
        if last_s + moved_s > begin_s or (last_s + moved_s == begin_s and facts.jobs > len(parts.train)):
            saw = f"{name} jobs"
    zero = jobs.meta.get("unix_start_s")
    return {**told, "saw": saw, **{f"{name}_from": _moment(at, zero) for name, at in begins.items()}}


def _same(folder: str | PathLike[str], generator: Generator, log: Workload, trace: str) -> bool:
    """Whether a generator was fitted to the very log: by what its manifest says it read, or else by the file's name.

    A workload that was made has no file, and all of one kind have the same name: there only the words are looked at.
    """
    manifest = Path(folder) / "manifest.json"
    inputs = read_json(manifest, Path(folder)).get("inputs", {}) if manifest.exists() else {}
    if trace in inputs or (log.sha256 is not None and log.sha256 in inputs.values()):
        return True
    named = generator.facts.source == str(log.jobs.meta.get("source") or log.jobs.meta.get("model") or "jobs")
    return named and (log.sha256 is not None or not inputs)


def _warned(folder: str, seen: dict[str, Any], trace: str, training: int) -> list[str]:
    used = {"validation jobs": ("chosen", "validation_from"), "judged jobs": ("judged", "judged_from")}
    if seen["saw"] not in used:
        return []
    verb, begin = used[seen["saw"]]
    return [
        f"{folder} was fitted to {seen['fitted_to']} until {seen['fitted_until']}, and the agent is {verb} on its jobs "
        f"from {seen[begin]} on, so these are no unseen jobs; fit a generator to the training jobs alone: kilowait "
        f"synth fit {trace} --jobs {training}"
    ]


def _check_fits(made: JobTable, cluster: Cluster, folder: str) -> None:
    """An error unless every generated job can run on the machine: it is that of the log, not the generator's."""
    try:
        simulate(made, cluster, "fcfs", "none")
    except TableError:
        raise InputError(
            f"{folder} makes jobs of up to {int(made['nodes'].max()):,} nodes, and the machine has {cluster.nodes:,}; "
            "take a generator fitted to a log of this machine, or a larger --cluster"
        ) from None


def _moment(at_s: float, zero_s: float | None) -> str:
    """A moment of a log in words: the day, or how far into the log where nobody knows when that was."""
    if zero_s is None:
        return f"day {at_s / 86400.0:.1f} of the log"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=float(zero_s) + at_s)).strftime("%Y-%m-%d")
