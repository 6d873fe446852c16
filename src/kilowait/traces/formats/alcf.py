"""Rules of ALCF's job composite table: machine, node lists, job numbers, and the wait since a job was eligible."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from kilowait.cluster.presets import PRESETS
from kilowait.traces.cell_parser import coded, number, numbers
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.table_columns import normalized_name
from kilowait.units import format_duration

_JOB_NAME = re.compile(r"(\d{1,15})(?:\[\d*\])?\.\S+")
"""Number of the job, index in its array, machine: 1992814.mira."""


def complete_job_composite(
    draft: RawColumns, cells: Mapping[str, list[str]], mapped: Collection[str], report: CleaningReport
) -> dict[str, Any]:
    """Complete the columns of an ALCF table with what only this table has; returns its facts.

    `mapped` are the columns that the caller has mapped, which remain as they are.
    """
    written = {normalized_name(name): texts for name, texts in cells.items()}
    if "queuedtimestamp" not in written:  # A derivative of the table, with other columns.
        return {}
    _job_numbers(draft, written, mapped, report)
    if not {"submit_s", "wait_s", "start_s"} & set(mapped):
        _eligible_wait(draft, written, report)
    if "node_list" not in mapped and "location" in written:
        draft.words["node_list"] = coded([text.replace(":", ",") for text in written["location"]])
    used = next((numbers(written[name]) for name in ("nodesused", "usednodes") if name in written), None)
    if used is not None and "nodes" not in mapped:
        instead = ~(used > 0) & (draft.get("nodes") > 0)
        for rows in draft.never_ran.values():
            instead &= ~rows
        report.add_rows("corrected", "NODES_USED is 0: NODES_REQUESTED used", instead, draft.line)
    return machine_facts(written.get("machinename", []), "MACHINE_NAME", report)


def _job_numbers(
    draft: RawColumns, written: Mapping[str, list[str]], mapped: Collection[str], report: CleaningReport
) -> None:
    """The number in JOB_NAME where Cobalt's is unknown; names that contain only this number are left out."""
    names = written.get("jobname")
    if names is None:
        return
    found = [_JOB_NAME.fullmatch(name) for name in names]
    if "job_id" not in mapped:
        ids = draft.get("job_id").copy()
        named = np.array([number(match.group(1)) if match else np.nan for match in found], np.float64)
        instead = ~(ids > 0) & (named > 0)
        reason = "COBALT_JOBID is not a job number: the number in JOB_NAME used"
        report.add_rows("corrected", reason, instead, draft.line)
        draft.numbers["job_id"] = np.where(instead, named, ids)
    if "name" not in mapped and all(found):
        draft.words.pop("name", None)
        report.add("note", "JOB_NAME contains job numbers, no names: left out", len(names))


def _eligible_wait(draft: RawColumns, written: Mapping[str, list[str]], report: CleaningReport) -> None:
    """The wait since the job was eligible, without holds and dependencies, and the begin of this wait as submission."""
    if "eligiblewaitseconds" not in written:
        return
    eligible, queued = numbers(written["eligiblewaitseconds"]), draft.get("wait_s")
    if (eligible == 0).all() and (queued > 0).any():
        reason = "ELIGIBLE_WAIT_SECONDS is 0 in every row, which is no recorded wait: wait since QUEUED_TIMESTAMP used"
        report.add("note", reason, len(eligible), int(draft.line[0]))
        return
    started = ~np.isnan(queued)
    usable = started & (eligible >= 0) & (eligible <= queued + 1)  # Both are rounded to seconds.
    report.add_rows(
        "corrected",
        "ELIGIBLE_WAIT_SECONDS is negative, unknown or longer than the time since QUEUED_TIMESTAMP: that time used",
        started & ~usable,
        draft.line,
    )
    held = np.where(usable, queued - eligible, 0.0)
    if (held > 1).any():
        reason = (
            "submit_s is START_TIMESTAMP - ELIGIBLE_WAIT_SECONDS, not QUEUED_TIMESTAMP: the time before the job was "
            f"eligible (in total {format_duration(float(held.sum()))}, longest {format_duration(float(held.max()))}) "
            "is no wait"
        )
        report.add_rows("note", reason, held > 1, draft.line)
    start = draft.get("submit_s") + queued
    draft.numbers["submit_s"] = np.where(usable, start - eligible, draft.get("submit_s"))
    draft.numbers["wait_s"] = np.where(usable, eligible, queued)


def machine_facts(names: list[str], column: str, report: CleaningReport) -> dict[str, Any]:
    """The machine of the log by this column, and its size if it is a preset.

    >>> machine_facts(["mira", "mira"], "MACHINE_NAME", CleaningReport())
    {'machine': 'mira', 'max_nodes': 49152}
    """
    counts = Counter(name.lower() for name in names if name)
    if len(counts) > 1:
        listed = ", ".join(f"{name} ({count:,})" for name, count in counts.most_common(5))
        reason = f"jobs of {len(counts)} machines in one table: {listed}; the log has no cluster"
        report.add("note", reason, sum(counts.values()))
        return {}
    machine = next(iter(counts), None)
    if machine is None:
        return {}
    if machine not in PRESETS:
        report.add("note", f"{column} is {machine}, which is no preset: the size of the machine is unknown")
        return {"machine": machine}
    nodes = PRESETS[machine].nodes
    report.add("note", f"{column} is {machine}: a machine of {nodes:,} nodes, as in the preset of this name")
    return {"machine": machine, "max_nodes": nodes}
