"""Detection of GPU and cloud trace formats by the header or the form of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kilowait.traces.cell_parser import number
from kilowait.traces.gpu.google import JOB_EVENTS, TASK_EVENTS
from kilowait.traces.gpu.pai import PAI_TABLES, pai_table

__all__ = ["header_formats", "job_events", "json_formats", "node_list", "task_events"]

_EXACT = {
    "arrival_time,length,cpus": "pai",
    "arrival_time,runtime,gpus,priority": "spot",
    "timestamp,duration,num_gpus,gpu_time,cluster": "philly",
    ",run_time,wait_time,submit_time,gpu_num": "philly",
    **{names: "pai" for kind, names in PAI_TABLES.items() if kind != "machine"},
}
_HOLDS = {
    "name cpu_milli memory_mib num_gpu gpu_milli": "openb",
    "job_name gpu_request worker_num submit_time duration job_type": "spot",
    "job_id vc gpu_num node_num state submit_time start_time end_time": "helios",
    "job_id tenant submit_time num_chips num_nodes duration_s final_status": "helios",
    "id_job time_submit time_start time_end mem_req tres_alloc": "supercloud",
    "time type collection_id": "google2019",
}
_NODES = {"sn cpu_milli memory_mib gpu model": "openb", "node_name gpu_model gpu_capacity_num cpu_num": "spot"}
_FEWEST_EVENTS = 3
"""Fewer rows are not enough to take them for events of 2011."""


def header_formats(header: str) -> dict[str, str]:
    """Formats in `GPU_FORMATS` that have this header, with the reason.

    >>> header_formats("arrival_time,length,cpus"), header_formats("job_id,submit_s,runtime_s,nodes")
    ({'pai': 'its header is arrival_time,length,cpus'}, {})
    """
    line = header.strip()
    if line in _EXACT:
        return {_EXACT[line]: f"its header is {line}"}
    names = {name.strip() for name in line.split(",")}
    return {
        found: f"its header has {', '.join(wanted.split())}"
        for wanted, found in _HOLDS.items()
        if names >= set(wanted.split())
    }


def json_formats(rows: Sequence[str]) -> dict[str, str]:
    """Formats of a file of JSON, with the reason.

    >>> json_formats(['{"collection_id": "1"}']), json_formats(["1,2"])
    ({'google2019': 'its lines are JSON records with collection_id'}, {})
    """
    start, text = rows[0].lstrip()[0], "".join(rows[:100])
    if start in "[{" and '"attempts"' in text and '"jobid"' in text:
        return {"philly": "it is JSON with jobid and attempts"}
    if start == "{" and '"collection_id"' in text:
        return {"google2019": "its lines are JSON records with collection_id"}
    return {}


def node_list(rows: Sequence[str]) -> str | None:
    """Origin of the node list that starts with these rows, without comments; None if it is not a node list.

    >>> node_list(["sn,cpu_milli,memory_mib,gpu,model"]), node_list(["job_id,submit_s"])
    ('openb', None)
    """
    first = rows[0] if rows else ""
    names = {name.strip() for name in first.split(",")}
    for wanted, found in _NODES.items():
        if names >= set(wanted.split()):
            return found
    return "pai" if pai_table(first) == "machine" else None


def job_events(rows: Sequence[str]) -> int:
    """Number of rows that are job events of Google's trace of 2011 and not earlier than the event before.

    >>> job_events([f"{n},,7,0,u=,3,name=,logical=" for n in range(9)]), job_events(["1,0,7,5,1,0,-1,0"] * 9)
    (9, 0)
    """
    return _in_order(rows, _is_job_event)


def task_events(rows: Sequence[str]) -> int:
    """Number of rows that are task events of Google's trace of 2011 and not earlier than the event before."""
    return _in_order(rows, _is_task_event)


def _in_order(rows: Sequence[str], fits: Callable[[list[str]], bool]) -> int:
    count, latest = 0, 0
    for row in rows:
        fields = row.strip().split(",")
        if fits(fields) and int(fields[0]) >= latest:
            count, latest = count + 1, int(fields[0])
    return count if count >= _FEWEST_EVENTS else 0


def _is_job_event(fields: list[str]) -> bool:
    """Time, missing information, job, type, user, class, name, logical name: names are texts, never numbers."""
    if len(fields) != len(JOB_EVENTS):
        return False
    time, missing, job, event, user, scheduling_class, name, logical = fields
    return (
        _is_event(time, missing, job, event, user, scheduling_class)
        and math.isnan(number(name))
        and math.isnan(number(logical))
    )


def _is_task_event(fields: list[str]) -> bool:
    """As a job event, with the task and its machine, a priority, requests between 0 and 1, and a flag."""
    if len(fields) != len(TASK_EVENTS):
        return False
    time, missing, job, task, machine, event, user, scheduling_class, priority, *requests, apart = fields
    return (
        _is_event(time, missing, job, event, user, scheduling_class)
        and _is_code(task, 10**9)
        and (not machine or machine.isdecimal())
        and _is_code(priority, 11)
        and all(not text or 0 <= number(text) <= 1 for text in requests)
        and apart in ("", "0", "1")
    )


def _is_event(time: str, missing: str, job: str, event: str, user: str, scheduling_class: str) -> bool:
    return (
        _is_code(time, 2**64)
        and (not missing or _is_code(missing, 2))
        and _is_code(job, 2**64)
        and _is_code(event, 8)
        and bool(user)
        and math.isnan(number(user))
        and _is_code(scheduling_class, 3)
    )


def _is_code(text: str, largest: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 21 and int(text) <= largest
