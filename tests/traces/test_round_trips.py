"""Every real log, written as CSV, Parquet and SWF, is read back as the same table, as far as the format holds it."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABEL_COLUMNS
from kilowait.traces import read_trace_with_report, write_trace
from tests.traces import test_real_logs
from tests.traces.formats import test_real_traces

LINES = 10_000
"""Lines of each log that are read."""
MORE_LINES = {"google2011/task_events/part-00000-of-00500.csv.gz": 10**9}
"""Where the first events are all submissions, so that no job runs."""
OTHER_LOGS = ("alcf_djc/mira_2020.csv.gz", "alcf_djc/thetagpu_2020.csv.gz", "site/micro_cluster/jobs500.events.gz")
LOGS = sorted([*test_real_logs.ROWS, *test_real_traces.ROWS, *OTHER_LOGS])
"""The logs are named: a file that is added to the data is no log until it is listed."""
SWF_COLUMNS = frozenset(
    "job_id submit_s wait_s runtime_s nodes estimate_s memory_mb status user account name queue after_id think_s "
    "cancel_s".split()
)


def named_cells(jobs: JobTable, name: str) -> list[str]:
    """The names in a column; a number without a name is its own name."""
    labels = jobs.labels.get(name)
    return ["" if code < 0 else labels[code] if labels else str(code) for code in jobs.column(name).tolist()]


def differing(read_back: JobTable, jobs: JobTable, columns: list[str]) -> list[str]:
    """Columns whose values differ."""
    return [
        name
        for name in columns
        if (
            named_cells(read_back, name) != named_cells(jobs, name)
            if name in LABEL_COLUMNS
            else not np.array_equal(read_back.column(name), jobs[name], equal_nan=jobs[name].dtype.kind == "f")
        )
    ]


@pytest.mark.parametrize("never_ran", ["drop", "keep"])
@pytest.mark.parametrize("name", LOGS)
def test_written_log_is_read_back(data_dir: Path, tmp_path: Path, name: str, never_ran: str) -> None:
    if not (data_dir / name).exists():
        pytest.skip(f"{name} is not among the data")
    head = tmp_path / "head"
    with gzip.open(data_dir / name) as file:
        head.write_bytes(b"".join(islice(file, MORE_LINES.get(name, LINES))))
    jobs, _ = read_trace_with_report(head, never_ran=never_ran)  # type: ignore[arg-type]
    for suffix in ("csv", "parquet", "swf"):
        path = tmp_path / f"written.{suffix}"
        write_trace(jobs, path)
        read_back, report = read_trace_with_report(path, never_ran=never_ran)  # type: ignore[arg-type]
        assert report.format == suffix
        assert len(read_back) == len(jobs)
        assert report.dropped == 0
        columns = list(jobs.columns)
        if suffix == "swf":
            columns = [column for column in columns if column in SWF_COLUMNS and held_by_swf(jobs, column)]
        assert differing(read_back, jobs, columns) == []


def held_by_swf(jobs: JobTable, column: str) -> bool:
    """SWF holds numbers and names of queues; of a job that never ran it holds one time, and a status if it has one."""
    if column in jobs.labels:
        return column == "queue"
    never_ran = bool((np.isfinite(jobs.column("cancel_s")) & (jobs["runtime_s"] == 0)).any())
    return not (never_ran and column in ("wait_s", "status"))
