"""The per-job records of runs as CSV: times, outcome and names as text, for spreadsheets and other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.files.csv_text import csv_cell
from kilowait.jobs.execution_log import ExecutionLog, Outcome

RECORDS_CSV = "records.csv"
"""Name of the file in a run or comparison folder."""
_NAMED = ("log_id", "user", "account", "queue")
_OUTCOME_WORDS = {outcome.value: outcome.name.lower() for outcome in Outcome}


def write_records_csv(runs: Sequence[tuple[Mapping[str, str], ExecutionLog]], path: Path) -> None:
    """Write one line per job of each run; the texts beside a run are the first columns of its lines.

    An empty cell is unknown. `kilowait.traces.read_trace` reads the table of one run as a log of what was simulated.

    >>> import tempfile
    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60.5], nodes=[3, 2])
    >>> path = Path(tempfile.mkdtemp(), "records.csv")
    >>> write_records_csv([({}, kw.simulate(jobs, kw.Cluster.from_nodes(4)))], path)
    >>> print(path.read_text(), end="")
    job_id,submit_s,eligible_s,start_s,end_s,wait_s,turnaround_s,run_s,nodes,group,outcome,estimate_s
    1,0,0,0,60,0,60,60,3,nodes,completed,60
    2,1,1,60,120.5,59,119.5,60.5,2,nodes,completed,60.5
    """
    columns = [_columns(log) for _, log in runs]
    names = list(dict.fromkeys(name for of_run in columns for name in of_run))
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(",".join([*runs[0][0], *names]) + "\n")
        for (texts, log), of_run in zip(runs, columns, strict=True):
            first = [csv_cell(text) for text in texts.values()]
            empty = [""] * len(log.jobs_table)
            for row in zip(*(of_run.get(name, empty) for name in names), strict=True):
                file.write(",".join([*first, *row]) + "\n")


def _columns(log: ExecutionLog) -> dict[str, list[str]]:
    records, jobs = log.jobs(), log.jobs_table
    columns = {name: _numbers(records[name]) for name in records.columns if name not in ("group", "outcome")}
    groups = [csv_cell(name) for name in log.groups]
    columns["group"] = [groups[code] if code >= 0 else "" for code in records["group"].tolist()]
    columns["outcome"] = [_OUTCOME_WORDS[code] for code in records["outcome"].tolist()]
    columns["estimate_s"] = _numbers(jobs["estimate_s"])
    for name in _NAMED:
        if name in jobs:
            labels = jobs.labels.get(name)
            cells = None if labels is None else [csv_cell(label) for label in labels]
            columns[name] = [
                "" if code < 0 else str(code) if cells is None else cells[code] for code in jobs[name].tolist()
            ]
    return columns


def _numbers(values: Any) -> list[str]:
    """The shortest exact text of each number; empty for NaN."""
    if values.dtype.kind != "f":
        return [str(value) for value in values.tolist()]
    return [
        "" if not np.isfinite(value) else str(int(value)) if value == int(value) else repr(value)
        for value in values.tolist()
    ]
