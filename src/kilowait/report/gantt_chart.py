"""Interactive Gantt charts: the schedules that are drawn, and their jobs and segments as packed columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.evaluation.breakdown import by_class
from kilowait.evaluation.job_measures import started_jobs
from kilowait.evaluation.metric_definitions import metric_name
from kilowait.jobs import ExecutionLog
from kilowait.jobs.columns import ColumnArray
from kilowait.report.charts import Chart, TickScale, pack, time_axis_note, unix_of
from kilowait.report.data.comparison import BOUND_S, ComparisonData
from kilowait.report.gantt import GanttRows, assign_rows, drawn_jobs, drawn_log, outages, user_names

GANTT_SEGMENTS = 1_200_000
"""Maximum number of segments in one Gantt chart, over all its schedules; with more, a page opens slowly."""


class GanttSchedules:
    """The schedules of a Gantt chart: of the most important policies, as many as `GANTT_SEGMENTS` allows.

    Of a log with more segments only a part is drawn.
    """

    def __init__(self, data: ComparisonData) -> None:
        self.data = data
        segments = max(len(data.log(data.by_importance[0])), 1)
        largest = max(GANTT_SEGMENTS // segments, 1)
        self.policies = tuple(sorted(data.by_importance[: min(largest, len(data.shown))]))
        self.logs = {policy: drawn_log(data.log(policy), GANTT_SEGMENTS) for policy in self.policies}
        self.rows = {policy: self._rows(log) for policy, log in self.logs.items()}
        labels = [row.label for row in by_class(data.log(data.shown[0]), "size")]
        self.sizes = [(int(label.rpartition("-")[2].lstrip("> ")), label) for label in labels]
        """Size classes of the drawn jobs: the maximum number of nodes of each, and its label."""

    def _rows(self, log: ExecutionLog) -> GanttRows:
        """Rows of the segments, with the node-group sizes of the cluster description where it gives them."""
        sizes = {row.get("name"): int(row.get("nodes", 0)) for row in self.data.comparison.cluster.get("group", ())}
        known = [sizes.get(group, 0) for group in log.groups] if len(log.groups) > 1 else None
        return assign_rows(log, known)

    def chart(self, name: str) -> Chart | None:
        """The chart with every job as a rectangle; None if no job started."""
        data, first = self.data, self.logs[self.policies[0]]
        if not len(first):
            return None
        jobs = drawn_jobs(data.log(self.policies[0]), GANTT_SEGMENTS)
        warmup = data.comparison.windows[data.typical].warmup
        ticks = TickScale(list(self.logs.values()))
        chart = Chart(name, "gantt", hint="Point at a job, or press N and P for the next or previous job.")
        chart.columns[f"{name}-jobs"] = pack(jobs_columns(first, ticks))
        runs = []
        for policy, log in self.logs.items():
            chart.columns[f"{name}-{policy}"] = pack(run_columns(log, self.rows[policy], ticks, BOUND_S))
            runs.append({"label": data.comparison.labels[policy], "block": f"{name}-{policy}"})
        jobs_table = first.jobs_table
        users, user_of_job = np.unique(jobs_table.column("user"), return_inverse=True)
        work = np.bincount(user_of_job, weights=jobs_table.size * jobs_table["runtime_s"])
        users = users[np.argsort(-work, kind="stable")]
        largest = max(self.rows.values(), key=lambda rows: rows.rows)
        chart.document = {
            "zero": ticks.zero_s,
            "unix": unix_of(data, ticks.zero_s),
            "tick": ticks.round_interval_s,
            "length": ticks.last_s - ticks.zero_s,
            "rows": largest.rows,
            "groups": [list(pair) for pair in zip(first.groups, largest.group_rows, strict=True)],
            "warmup": warmup if jobs is None else int(np.searchsorted(jobs, warmup)),
            "jobs": f"{name}-jobs",
            "runs": runs,
            "sizes": self.sizes,
            "users": user_names(jobs_table.labels.get("user", ()), users.tolist()),
            "topUsers": users[:7].tolist(),
        }
        if len(np.unique(jobs_table.column("queue"))) > 1:
            chart.document["queues"] = list(jobs_table.labels.get("queue", ()))
        closed = outages(first)
        if closed:
            chart.document["outages"] = [
                [from_s - ticks.zero_s, to_s - ticks.zero_s, nodes] for from_s, to_s, nodes in closed
            ]
        chart.choices = [
            ("Schedule", "", [(str(number), run["label"]) for number, run in enumerate(runs)]),
            ("Colour", "", [("size", "by size"), ("user", "by user"), ("wait", "by wait")]),
        ]
        preempted = any(len(log) > np.count_nonzero(~np.isnan(log.jobs()["start_s"])) for log in self.logs.values())
        waits = [metric_name(metric) for metric in ("mean_wait_s", "p99_wait_s", "max_wait_s")]
        before = " before the first start" if preempted else ""
        chart.filter_columns = (*(f"{name}{before}" for name in waits), metric_name("mean_bsld"))
        of_window = "" if len(data.comparison.windows) == 1 else ", of this window"
        chart.filter_caption = f"The jobs drawn above{of_window}: those that the filter chooses, under each policy"
        chart.alt = f"Gantt chart of {len(first):,} run segments on {largest.rows:,} rows"
        drawn = None if jobs is None else (len(jobs), len(data.log(self.policies[0]).jobs_table))
        chart.caption = (
            f"{_row_note(first, largest)}{_part_note(chart.document, drawn)}{time_axis_note(data)} Drag to select a "
            "time span, turn the wheel, pinch or use + and − to zoom in time; Shift and the wheel, or ] and [, zoom on "
            "nodes; arrow keys or Shift and drag move, 0 shows all."
        )
        return chart


def _row_note(log: ExecutionLog, rows: GanttRows) -> str:
    """What the rows of a Gantt chart are."""
    if log.pieces is not None:
        return "Jobs use individual GPUs, and several jobs may share a node, so rows are not individual nodes. "
    if rows.shared:
        return "Jobs share nodes, so rows are not individual nodes. "
    return "Logs do not contain which nodes a job used: the allocation shown is computed, contiguous where possible. "


def _part_note(document: Mapping[str, Any], drawn: tuple[int, int] | None) -> str:
    """What is pale, missing or hatched in a Gantt chart; `drawn` are the numbers of jobs drawn and of all jobs."""
    note = "Pale: warm-up jobs, which are not counted. " if document["warmup"] else ""
    if drawn is not None:
        note += f"Only {drawn[0]:,} of {drawn[1]:,} jobs are drawn, the part of the schedule with the longest waits. "
    if "outages" in document:
        note += (
            "Hatched, from the top: the number of nodes that were unavailable or reserved; which nodes is unknown, so "
            "jobs may overlap the hatching. "
        )
    return note


def jobs_columns(log: ExecutionLog, ticks: TickScale) -> dict[str, ColumnArray]:
    """The columns that all policies share: id, user, nodes, submission, run time and queue of every job."""
    table = log.jobs_table
    return {
        "id": _narrow(table["job_id"]),
        "user": table.column("user").astype(np.int32),
        "nodes": _narrow(table.size),
        "submit": ticks.at(table["submit_s"]),
        "runtime": ticks.of(table["runtime_s"]),
        **({"queue": table.column("queue").astype(np.int32)} if "queue" in table else {}),
    }


def run_columns(
    log: ExecutionLog, rows_by_policy: GanttRows, ticks: TickScale, bound_s: float
) -> dict[str, ColumnArray]:
    """The segments and rectangles of one policy, by start, stored as differences to the shared columns.

    For each segment: `job` (row), `start`, `over` (duration minus the job's run time), `late` (start minus submission
    minus the job's wait), `bsld` of its job, `more` (pieces beyond the first). For each piece: `row`, and `less` (the
    job's nodes minus those of the piece).
    """
    shared = jobs_columns(log, ticks)
    order = np.argsort(log.start_s, kind="stable")  # logs are in decision order
    rank = np.empty(len(log), np.int64)
    rank[order] = np.arange(len(log))
    piece_order = np.argsort(rank[rows_by_policy.segment], kind="stable")
    job = log.job[order].astype(np.int32)
    start = ticks.at(log.start_s[order])
    job_measures = started_jobs(log, bound_s)
    bsld = np.full(len(log.jobs_table), np.nan)
    bsld[job_measures.row] = job_measures.bsld
    joined = ticks.at(log.eligible_s)[job]
    pieces = np.bincount(rows_by_policy.segment, minlength=len(log))
    return {
        "job": job,
        "start": start,
        "over": ticks.at(log.end_s[order]) - start - shared["runtime"][job],
        "late": joined - shared["submit"][job] + start - ticks.at(log.jobs()["start_s"])[job],
        "bsld": bsld[job].astype(np.float32),
        "more": (pieces[order] - 1).astype(np.int32),
        "row": rows_by_policy.first[piece_order].astype(np.int32),
        "less": (log.size[log.job[rows_by_policy.segment]] - rows_by_policy.count)[piece_order].astype(np.int32),
    }


def _narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Integers as int32, or as float64 where they do not fit."""
    if len(values) and (values.max() >= 2**31 or values.min() < -(2**31)):
        return values.astype(np.float64)
    return values.astype(np.int32)
