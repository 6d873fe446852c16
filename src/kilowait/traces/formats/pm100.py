"""Reader of PM100: exclusive jobs of Marconi100, 2020, with the power of their nodes every 20 seconds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from kilowait.traces.cell_parser import coded
from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import HUGE, CsvRows
from kilowait.traces.formats.sacct_rules import begin_waits_at_eligible
from kilowait.traces.formats.table_rows import Lists, lists, table_rows
from kilowait.traces.trace_input import TraceInput

SAMPLE_S = 20.0
"""Time between two samples of the power."""
_POWER = ("node_power_consumption", "power_consumption")
"""Power of all nodes of the job; the second name is that of the first version of the table."""
_USED = (
    "job_id submit_time eligible_time start_time end_time run_time time_limit num_nodes_alloc num_nodes_req "
    "num_cores_alloc num_cpus_alloc num_gpus_alloc mem_alloc partition qos user_id group_id job_state nodes"
).split()


def read_pm100(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read a job table; the mean of the power samples gives the power and the energy of each job."""
    rows = table_rows(source, report, "a job table", (*_USED, *_POWER))
    rows.need("job_id", "submit_time", "start_time", "run_time", "time_limit", "num_nodes_alloc", "job_state")
    submit, start = rows.moments("submit_time"), rows.moments("start_time")
    runtime = rows.numbers("run_time")
    draft = RawColumns(rows.line, {"job_id": rows.numbers("job_id"), "submit_s": submit, "runtime_s": runtime})
    if "eligible_time" in rows:
        begin_waits_at_eligible(draft, rows.moments("eligible_time"), start, report)
    draft.numbers |= {
        "wait_s": start - draft.numbers["submit_s"],
        "estimate_s": rows.numbers("time_limit") * 60.0,  # INFINITE is no number.
        "nodes": _first(rows, "num_nodes_alloc", "num_nodes_req"),
        "cores": _first(rows, "num_cores_alloc", "num_cpus_alloc"),
        "gpus": _first(rows, "num_gpus_alloc"),
        "memory_mb": _first(rows, "mem_alloc") * 1000.0,
        "status": rows.statuses("job_state"),
    }
    unstarted = np.isnan(start) & ~(runtime > 0)
    draft.never_ran["it has no start"] = unstarted
    draft.words |= rows.labels(("", "None"), user="user_id", account="group_id", queue="partition", qos="qos")
    if "nodes" in rows:
        draft.words["node_list"] = _node_lists(lists(rows, "nodes"))
    power = next((name for name in _POWER if name in rows), None)
    if power is not None:
        _power(draft, lists(rows, power), power, report)
    report.add("note", "time_limit is in minutes, mem_alloc in GB")
    return draft, {"unix_start_s": 0, "time_zone": "UTC"}


def _first(rows: CsvRows, *names: str) -> Floats:
    """Per row the first of these columns with a value above 0, else the first value."""
    values = np.full(len(rows), np.nan)
    for name in names:
        if name in rows:
            found = rows.numbers(name)
            values = np.where(np.isnan(values) | ((values <= 0) & (found > 0)), found, values)
    return values


def _node_lists(found: Lists) -> tuple[Any, Any]:
    begin = found.begin.tolist()
    names = [str(value) for value in found.values.tolist()]
    return coded([",".join(names[a:b]) for a, b in pairwise(begin)])


def _power(draft: RawColumns, samples: Lists, name: str, report: CleaningReport) -> None:
    """Mean power, and the energy that it gives over the run time."""
    mean, runtime = samples.means(), draft.numbers["runtime_s"]
    draft.numbers |= {"power_w": mean, "energy_j": mean * runtime}
    known = ~np.isnan(mean)
    report.add_rows("note", f"power_w is the mean of {name}, energy_j is power_w x run_time", known, draft.line)
    report.add_rows("note", f"no known value in {name}: power and energy unknown", ~known, draft.line)
    values = samples.values.astype(np.float64)
    broken = int((~((values >= 0) & (values < HUGE))).sum())
    if broken:
        report.add("note", f"samples in {name} that are negative or no number: left out of the mean", broken)
    few = known & (samples.lengths * SAMPLE_S < 0.5 * runtime)
    report.add_rows("note", f"{name} covers less than half of the run time", few, draft.line)
