"""Reader of event files of the Slurm simulator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import coded, megabytes, number, seconds
from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.trace_input import TraceInput


def read_events(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read lines like ``-dt SECONDS -e submit_batch_job | -sim-walltime SECONDS --uid=... -N ... pseudo.job``."""
    rows: list[dict[str, str]] = []
    at: list[int] = []
    for place, line in enumerate(source.take_text(report, "a list of events").split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        report.rows_read += 1
        event_text, _, job_text = line.partition("|")
        event = _options(event_text)
        if event.get("e") != "submit_batch_job":
            report.add("dropped", "an event that is no submit_batch_job", 1, place)
            continue
        rows.append({**_options(job_text), **event})
        at.append(place)
    if not report.rows_read:
        raise TraceError("it contains no events")

    def values(reader: Any, *names: str) -> Floats:
        return np.array([reader(next((row[n] for n in names if n in row), "")) for row in rows], np.float64)

    def minutes(text: str) -> float:
        return number(text) * 60 if text.isdigit() else seconds(text)

    nodes = values(lambda t: number(t.split("-")[0]), "N", "nodes")
    nodes = np.where(np.isnan(nodes), 1.0, nodes)
    tasks = values(number, "n", "ntasks")
    per_task = values(number, "c", "cpus-per-task")
    cores = np.where(np.isnan(tasks), nodes, tasks) * np.where(np.isnan(per_task), 1.0, per_task)
    per_node = values(megabytes, "mem")
    draft = RawColumns(np.array(at, np.int64), {})
    draft.numbers = {
        "job_id": values(lambda t: number(t.rpartition("_")[2]) if re.fullmatch(r"jobid_\d+", t) else np.nan, "J"),
        "submit_s": values(number, "dt"),
        "runtime_s": values(number, "sim-walltime"),
        "estimate_s": values(minutes, "t", "time"),
        "nodes": nodes,
        "cores": cores,
        "memory_mb": np.where(np.isnan(per_node), values(megabytes, "mem-per-cpu") * cores, per_node * nodes),
        "gpus": values(lambda t: number(t.rpartition(":")[2]) if t.startswith("gpu:") else 0.0, "gres") * nodes,
    }
    for target, names in (("user", ("uid",)), ("queue", ("p", "partition")), ("qos", ("q", "qos"))):
        draft.words[target] = coded([next((row[n] for n in names if n in row), "") for row in rows])
    draft.words["account"] = coded([row.get("A", row.get("account", "")) for row in rows])
    return draft, {}


def count_events(lines: Sequence[str]) -> int:
    """Number of lines that are events."""
    return sum("submit_batch_job" in line or line.lstrip().startswith("-dt") for line in lines)


def _options(text: str) -> dict[str, str]:
    """Parse ``-a 1 --b=2`` into a mapping; an option without a value maps to an empty string."""
    options: dict[str, str] = {}
    words = text.split()
    for place, word in enumerate(words):
        if word.startswith("-") and not word[1:2].isdigit():
            name, equals, value = word.lstrip("-").partition("=")
            after = words[place + 1] if place + 1 < len(words) else ""
            free = bool(after) and (not after.startswith("-") or after[1:2].isdigit())
            options[name] = value if equals else after if free else ""
    return options
