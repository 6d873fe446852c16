"""The run folder: the log, settings and metrics of one run.

=============== =============================================================================
scenario.toml   the inputs and settings, with the full description of the machine
jobs.parquet    the jobs, a JobTable; can be simulated again as it is
log.parquet     the segments; machine size, groups and settings in the schema's metadata
records.parquet the per-job record: eligible, start, end, wait, turnaround, outcome
records.csv     the same as text with the names of users and queues, on request
states.parquet  the states of sleeping nodes, if any slept
pieces.parquet  the nodes and GPUs of each segment, on node-level clusters
results.json    the metrics
manifest.json   versions, seeds, sha256 of inputs and of these files, command, date; written last
=============== =============================================================================

It can be read without Numba and torch.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster.toml import is_node_level
from kilowait.errors import InputError
from kilowait.evaluation.comparison.result import Comparison, PolicyConfig
from kilowait.evaluation.comparison.windows import single_window
from kilowait.evaluation.storage.folder import (
    ResultFolder,
    manifest_of_kind,
    null_to_nan,
    plain_json,
    read_json,
    save_folder,
)
from kilowait.evaluation.storage.logs import (
    CLEANING_REPORT,
    CLUSTER,
    COUNT,
    MACHINE,
    METRICS,
    RECORD_COLUMNS,
    SEGMENT_COLUMNS,
    SETTINGS,
    WORK_COLUMNS,
    check_log,
    machine_from_dict,
    machine_to_dict,
    pieces_from,
    read_jobs,
    read_states_and_allocations,
    worked_columns,
    write_states_and_allocations,
)
from kilowait.evaluation.storage.record_csv import RECORDS_CSV, write_records_csv
from kilowait.files.documents import read_toml, to_toml
from kilowait.files.fields import Either, Record, Text, check_fields
from kilowait.files.parquet_file import META_KEY, ColumnType, read_parquet_columns
from kilowait.jobs import ExecutionLog, JobTable

SCENARIO = Record({}, {"trace": Text(), "policy": Text(), "backfill": Either(Text(), COUNT), "cluster": CLUSTER})
"""Fields of a run's scenario.toml; others are only displayed."""
RESULTS = Record({}, {"gpus": Record({"metrics": METRICS}), "ledger": CLEANING_REPORT})
"""Fields of a run's results.json; others are recomputed."""
_NOTE = Record({**MACHINE.required, "run": SETTINGS})
_FILES = ("scenario.toml", "jobs.parquet", "log.parquet", "records.parquet", "results.json")


@dataclass(frozen=True)
class RunFolder(ResultFolder):
    """Opened run folder."""

    log: ExecutionLog

    @property
    def policy(self) -> PolicyConfig:
        """The policy configuration of the run."""
        run = self.log.run
        policy = str(self.scenario.get("policy", run.get("policy", self.path.name)))
        kind = "agent" if policy.startswith("agent:") else "rule"
        backfill = run.get("backfill", self.scenario.get("backfill", "none"))
        return PolicyConfig(policy, backfill, kind, node_level=is_node_level(self.scenario.get("cluster", {})))


def save_run(
    path: str | PathLike[str],
    log: ExecutionLog,
    *,
    scenario: Mapping[str, Any],
    results: Mapping[str, Any],
    manifest: Mapping[str, Any] | None = None,
    csv: bool = False,
    force: bool = False,
) -> Path:
    """Write a run folder atomically; with `csv` the per-job records also as CSV.

    `manifest` adds entries known only to the caller: command, date, seeds, sha256 of the inputs.
    A folder that is not empty is refused; `force` replaces an earlier run folder, and nothing else.
    """

    def fill(folder: Path) -> None:
        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        log.jobs_table.to_parquet(folder / "jobs.parquet")
        _write_log(log, folder / "log.parquet")
        log.jobs().to_parquet(folder / "records.parquet")
        if csv:
            write_records_csv([({}, log)], folder / RECORDS_CSV)
        write_states_and_allocations([log], folder)
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    return save_folder(path, fill, kind="run", manifest=manifest, force=force)


def load_run(path: str | PathLike[str]) -> RunFolder:
    """Open a folder written by `save_run`, with a bit-identical log.

    A foreign, incomplete or modified folder raises an InputError with the reason.
    """
    folder = Path(path)
    manifest = manifest_of_kind(folder, "run", "kilowait simulate", _FILES)
    try:
        scenario = read_toml(folder / "scenario.toml", SCENARIO, remedy="run it again")
        results = read_json(folder / "results.json", folder, RESULTS)
        log = _read_log(folder, manifest["files"], read_jobs(folder / "jobs.parquet"))
    except OSError as problem:
        raise InputError(f"{folder} cannot be opened: {problem}") from None
    return RunFolder(folder, scenario, manifest, results, log)


def comparison_of_runs(runs: Sequence[RunFolder]) -> Comparison:
    """Comparison of runs of the same jobs on the same machine, over the whole log.

    Runs of different jobs or machines cannot be paired and raise an InputError that names them.
    """
    if not runs:
        raise InputError("there are no runs to compare; give at least one run folder")
    first = runs[0]
    for run in runs[1:]:
        if run.manifest["files"]["jobs.parquet"] != first.manifest["files"]["jobs.parquet"]:
            raise InputError(
                f"{first.path} and {run.path} are runs of different jobs ({_describe(first)} and {_describe(run)}); "
                "only runs of the same jobs can be compared: give them one at a time"
            )
        if machine_to_dict(run.log) != machine_to_dict(first.log):
            raise InputError(
                f"{first.path} and {run.path} are runs on different machines; only runs on the same machine can be "
                "compared: give them one at a time"
            )
    windows = single_window(first.log.jobs_table)
    logs = [_by_submission(run.log, windows.jobs) for run in runs]
    policies = _unique_policies([run.policy for run in runs], [run.path for run in runs])
    comparison = Comparison(
        trace=str(first.scenario.get("trace", first.path)),
        size=int(first.log.capacity.max()) if len(first.log.capacity) else 0,
        windows=windows,
        policies=policies,
        logs=lambda policy, _: logs[policy],
        cleaning_report=first.results.get("ledger"),
        cluster=first.scenario.get("cluster", {}),
    )
    measured = {
        label: null_to_nan(run.results["gpus"]["metrics"])
        for label, run in zip(comparison.labels, runs, strict=True)
        if "gpus" in run.results
    }
    return replace(comparison, gpus=measured)


def _unique_policies(policies: Sequence[PolicyConfig], paths: Sequence[Path]) -> tuple[PolicyConfig, ...]:
    """Policies of the runs; if several have the same label, the folder name is added."""
    labels = [policy.label for policy in policies]
    return tuple(
        policy if labels.count(policy.label) == 1 else replace(policy, name=f"{policy.policy} ({path.name})")
        for policy, path in zip(policies, paths, strict=True)
    )


def _describe(run: RunFolder) -> str:
    return f"{run.scenario.get('trace', 'an unnamed trace')}, {len(run.log.jobs_table):,} jobs"


def _by_submission(log: ExecutionLog, ordered: JobTable) -> ExecutionLog:
    """The same log with its job table sorted by submission, as in windows."""
    order = log.jobs_table.order
    if order is None:
        return log
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return replace(
        log,
        jobs_table=ordered,
        job=place[log.job],
        eligible_s=log.eligible_s[order],
        job_outcome=log.job_outcome[order],
    )


def _write_log(log: ExecutionLog, path: Path) -> None:
    import pyarrow.parquet as pq

    note = {"run": log.run, **machine_to_dict(log)}
    table = log.to_arrow()
    for name, values in worked_columns([log]).items():
        table = table.append_column(name, [values])
    pq.write_table(table.replace_schema_metadata({META_KEY: json.dumps(note).encode()}), path)


def _read_log(folder: Path, files: Container[str], jobs: JobTable) -> ExecutionLog:
    path = folder / "log.parquet"
    segments = read_parquet_columns(path, {"job_id": ColumnType(np.int64), **SEGMENT_COLUMNS}, optional=WORK_COLUMNS)
    records = read_parquet_columns(
        folder / "records.parquet", {"job_id": ColumnType(np.int64), **RECORD_COLUMNS}, rows=len(jobs)
    )
    check_fields(segments.note, _NOTE, f"{path}: metadata", remedy="run it again")
    ids = jobs["job_id"]
    if not np.array_equal(records["job_id"], ids):
        raise InputError(f"{folder} cannot be opened: records.parquet and jobs.parquet have different jobs")
    order = np.argsort(ids, kind="stable")
    run_ids = segments["job_id"]
    place = np.minimum(np.searchsorted(ids[order], run_ids), max(len(ids) - 1, 0))
    job = order[place] if len(ids) else place
    if not np.array_equal(ids[job] if len(ids) else ids, run_ids):
        raise InputError(f"{folder} cannot be opened: log.parquet has segments of jobs that are not in jobs.parquet")
    states, pieces = read_states_and_allocations(folder, files, 1)
    columns: dict[str, Any] = {name: segments[name] for name in ("start_s", "end_s", "group", "level", "outcome")}
    log = ExecutionLog(
        jobs_table=jobs,
        job=job,
        **columns,
        eligible_s=records["eligible_s"],
        job_outcome=records["outcome"],
        run=segments.note["run"],
        states=states.get(0),
        pieces=pieces_from(pieces.get(0), segments.arrays),
        **machine_from_dict(segments.note, path),
    )
    return check_log(log, folder)
