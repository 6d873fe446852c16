"""Rules of sacct dumps: begin of the wait, lists of partitions, heterogeneous jobs, records of waiting arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kilowait.traces.cell_parser import coded
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.units import format_duration

Floats = npt.NDArray[np.float64]
_PART = re.compile(r"(\d{1,15})\+(\d+)")
"""Number of a heterogeneous job and of its part."""
_WAITING_TASKS = re.compile(r"\d+_\[([^\]%]*)(?:%(\d+))?\]?")
_SUMMED = ("nodes", "cores", "gpus", "memory_mb", "energy_j")
_LONGEST = ("runtime_s", "estimate_s")


def begin_waits_at_eligible(draft: RawColumns, eligible: Floats, start: Floats, report: CleaningReport) -> None:
    """Use Eligible as submission where it lies between Submit and Start: holds and dependencies are no waiting."""
    submit = draft.numbers["submit_s"]
    broken = (eligible < submit) | (eligible > start)
    later = (eligible > submit) & ~broken
    report.add_rows(
        "corrected", "Eligible is before Submit or after Start: Submit used", broken & ~np.isnan(submit), draft.line
    )
    if later.any():
        held = (eligible - submit)[later]
        reason = (
            "submit_s is Eligible, not Submit: the time before it, with holds and dependencies (in total "
            f"{format_duration(float(held.sum()))}, longest {format_duration(float(held.max()))}), is no wait"
        )
        report.add_rows("note", reason, later, draft.line)
        draft.numbers["submit_s"] = np.where(later, eligible, submit)


def single_partitions(
    partitions: Sequence[str], node_lists: Sequence[str], line: npt.NDArray[np.int64], report: CleaningReport
) -> list[str]:
    """One partition for every job: of a list the only one with other jobs on the same nodes, else the first.

    >>> single_partitions(["a,b", "b"], ["n1", "n1"], np.array([1, 2]), CleaningReport())
    ['b', 'b']
    """
    ran: dict[str, set[str]] = {}
    for partition, nodes in zip(partitions, node_lists, strict=True):
        if nodes and "," not in partition:
            ran.setdefault(nodes, set()).add(partition)
    chosen: list[str] = []
    first, by_nodes = np.zeros(len(line), np.bool_), np.zeros(len(line), np.bool_)
    for index, (partition, nodes) in enumerate(zip(partitions, node_lists, strict=True)):
        names = [name for name in partition.split(",") if name]
        if len(names) < 2:
            chosen.append(partition.strip(","))
            continue
        used = [name for name in names if name in ran.get(nodes, ())]
        (by_nodes if len(used) == 1 else first)[index] = True
        chosen.append(used[0] if len(used) == 1 else names[0])
    report.add_rows("corrected", "Partition is a list: the first one used", first, line)
    reason = "Partition is a list: the only one of them with other jobs on the same nodes used"
    report.add_rows("corrected", reason, by_nodes, line)
    return chosen


def report_waiting_arrays(job_ids: Sequence[str], line: npt.NDArray[np.int64], report: CleaningReport) -> None:
    """Name what records of waiting array tasks contain and a job cannot: the number of tasks, and the throttle."""
    records = [(index, match) for index, text in enumerate(job_ids) if (match := _WAITING_TASKS.fullmatch(text))]
    if not records:
        return
    tasks = sum(_task_count(match[1]) for _, match in records)
    first = int(line[records[0][0]])
    report.add("note", f"records of arrays stand for {tasks:,} waiting tasks, one record each", len(records), first)
    for throttle in sorted({match[2] for _, match in records if match[2]}, key=int):
        places = [index for index, match in records if match[2] == throttle]
        reason = f"throttle of an array (at most {throttle} at a time) left out: it has no column"
        report.add("note", reason, len(places), int(line[places[0]]))


def _task_count(text: str) -> int:
    """Tasks in a list such as 1-4,7,10-20:5; a list that Slurm has cut (...) counts as far as it goes."""
    total = 0
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part)
        if match is not None:
            begin, end, step = int(match[1]), int(match[2] or match[1]), max(int(match[3] or 1), 1)
            total += max((end - begin) // step + 1, 0)
    return total


def merge_parts(draft: RawColumns, job_ids: Sequence[str], start: Floats, report: CleaningReport) -> None:
    """Merge the parts of a heterogeneous job (5+0, 5+1) that start together into one job with their sum."""
    groups: dict[str, list[int]] = {}
    for index, text in enumerate(job_ids):
        match = _PART.fullmatch(text)
        if match is not None:
            groups.setdefault(match[1], []).append(index)
    kept = np.ones(len(draft), np.bool_)
    merged, apart = kept & False, kept & False
    node_lists = _texts(draft, "node_list")
    for number, group in groups.items():
        rows = np.array(group)
        starts = start[rows]
        if len(group) > 1 and not (np.isnan(starts).all() or (starts == starts[0]).all()):
            apart[rows] = True
            continue
        leader = group[0]
        draft.numbers["job_id"][leader] = float(number)
        if len(group) == 1:
            continue
        for name in _SUMMED:
            draft.numbers[name][leader] = draft.numbers[name][rows].sum()
        for name in _LONGEST:
            draft.numbers[name][leader] = draft.numbers[name][rows].max()
        if node_lists is not None:
            node_lists[leader] = ",".join(text for text in (node_lists[row] for row in group) if text)
        merged[leader] = True
        kept[rows[1:]] = False
    report.add_rows("note", "parts of a heterogeneous job that do not start together: separate jobs", apart, draft.line)
    if merged.any():
        reason = "parts of a heterogeneous job that start together: one job with the sum of their nodes and cores"
        report.add_rows("note", reason, merged, draft.line)
        if node_lists is not None:
            draft.words["node_list"] = coded(node_lists)
        report.folded += int((~kept).sum())
        draft.keep(kept)


def _texts(draft: RawColumns, name: str) -> list[str] | None:
    """The texts of a labelled column; None if it does not exist."""
    if name not in draft.words:
        return None
    codes, names = draft.words[name]
    return ["" if code < 0 else names[code] if names is not None else str(code) for code in codes.tolist()]
