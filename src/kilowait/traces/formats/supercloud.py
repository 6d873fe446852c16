"""Reader of MIT SuperCloud's slurm-log.csv, 2021: a table of Slurm's database with resources as TRES strings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import MB_PER_MIB, read_rows, set_gpus_per_node
from kilowait.traces.formats.table_columns import SLURM_CODES
from kilowait.traces.trace_input import TraceInput

_CPU, _MEMORY, _NODES, _GPUS = ("1",), ("2",), ("4",), ("1001", "1002")
_TRES = re.compile(r"(\d+)=(\d+)")
UNLIMITED = 2**32 - 1


def read_supercloud(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read one job per row, with its allocated resources, or the requested ones if the allocation is unknown."""
    rows = read_rows(source.take_text(report, "a log of Slurm's database"), report)
    rows.need("id_job", "time_submit", "time_start", "time_end", "tres_alloc", "nodes_alloc", "state")
    submit, start, end = (rows.numbers(f"time_{what}") for what in ("submit", "start", "end"))
    start, end = (np.where(moment > 0, moment, np.nan) for moment in (start, end))
    draft = RawColumns(rows.line, {"job_id": rows.numbers("id_job"), "submit_s": submit})
    draft.numbers |= {"runtime_s": end - start, "wait_s": start - submit}
    unstarted = np.isnan(start)
    draft.never_ran["it has no start"] = unstarted
    draft.numbers["cancel_s"] = np.where(unstarted, end, np.nan)
    codes = rows.numbers("state")
    draft.numbers["status"] = np.array([SLURM_CODES.get(code, -1.0) for code in codes.tolist()], np.float64)
    allocated = [dict(_TRES.findall(text)) for text in rows.texts("tres_alloc")]
    requested = [dict(_TRES.findall(text)) for text in rows.texts("tres_req")] if "tres_req" in rows else allocated
    tres = [a or r for a, r in zip(allocated, requested, strict=True)]
    draft.numbers["cores"] = _amounts(tres, _CPU)
    draft.numbers["memory_mb"] = _amounts(tres, _MEMORY) * MB_PER_MIB
    nodes = rows.numbers("nodes_alloc")
    nodes = np.where(nodes >= 1, nodes, _amounts(tres, _NODES))
    gpus = _amounts(tres, _GPUS)
    set_gpus_per_node(draft, np.where(np.isnan(gpus), 0.0, gpus), nodes, report)
    if "timelimit" in rows:
        limit = rows.numbers("timelimit")
        draft.numbers["estimate_s"] = np.where((limit > 0) & (limit < UNLIMITED), limit * 60, np.nan)
        report.add_rows("note", "time limit 4294967295: unlimited, that is no request", limit == UNLIMITED, rows.line)
        report.add("note", "timelimit is in minutes in Slurm's database")
    if "priority" in rows:
        draft.numbers["priority"] = rows.numbers("priority")
    draft.words |= rows.labels(("", "\\N"), user="id_user", queue="partition", name="job_type")
    report.add("note", "GPUs are TRES 1001 and 1002, the larger where both are given; memory is TRES 2, not mem_req")
    report.add("note", "the published numbers of jobs and users were rounded: different ones may be alike")
    return draft, {"unix_start_s": 0}


def _amounts(tres: list[dict[str, str]], kinds: tuple[str, ...]) -> Floats:
    """The largest amount of these TRES kinds per job, NaN if there is none."""
    return np.array(
        [max((float(amounts[kind]) for kind in kinds if kind in amounts), default=np.nan) for amounts in tres],
        np.float64,
    )
