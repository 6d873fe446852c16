"""Text output of ``kilowait simulate``: run, metrics, classes of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kilowait.cli import console

if TYPE_CHECKING:
    from kilowait.evaluation import ClassRow, Metrics
    from kilowait.experiments.scenario import ScenarioResult
    from kilowait.experiments.scenario_inputs import Workload

__all__ = ["cleaning_line", "show_classes", "show_metrics", "show_run"]

_STATISTICS = ("mean", "median", "p95", "p99", "max")
_MEASURES = {
    "wait": ("wait_s", console.span),
    "turnaround": ("turnaround_s", console.span),
    "slowdown": ("slowdown", console.number),
    "bounded slowdown": ("bsld", console.number),
}
_OUTCOMES = {
    "completed": "completed",
    "killed": "killed at their limit",
    "cancelled": "cancelled while waiting",
    "rejected": "larger than the cluster, left out",
    "unstarted": "never started",
}


def cleaning_line(workload: Workload) -> str | None:
    """One line about the rows dropped and corrected while reading; None if there were none."""
    report = workload.cleaning_report
    if report is None or not (report.dropped or report.corrected):
        return None
    return f"{report.lines()[0]}; see kilowait traces describe"


def show_run(done: ScenarioResult) -> None:
    """Print the jobs, the cluster and the scheduling settings of a run."""
    run = done.log.run
    backfill = str(run["backfill"])
    if run["backfill_order"] is not None:
        backfill += f" ordered by {run['backfill_order']}"
    settings = [f"policy {run['policy']}", f"backfill {backfill}", f"at limit {run['at_limit']}"]
    settings += [f"scheduling pass per {run['schedule_per']}"]
    if run["overrun"] != "double":
        settings.append(f"overrun {run['overrun']}")
    if len(done.log.groups) > 1:
        settings.append(f"placement {run['placement']}")
    if not run["dependencies"]:
        settings.append("dependencies ignored")
    jobs = console.count(len(done.workload.jobs), "job")
    if done.scenario.load is not None:
        jobs += f", scaled to an offered load of {done.scenario.load:g}"
    size = console.count(done.cluster.nodes, "node")
    cluster = size if done.cluster.name == f"{done.cluster.nodes} nodes" else f"{done.cluster.name}, {size}"
    rows = [("trace", f"{done.scenario.trace}, {jobs}")]
    cleaning = cleaning_line(done.workload)
    if cleaning is not None:
        rows.append(("read", cleaning))
    console.facts([*rows, ("cluster", cluster), ("scheduling", ", ".join(settings))])


def show_metrics(metrics: Metrics, nodes: int) -> None:
    """Print the metrics of a run."""
    rows = []
    for name, (key, format_value) in _MEASURES.items():
        rows.append([name, *(format_value(float(metrics[f"{which}_{key}"])) for which in _STATISTICS)])
    console.table(["", "mean", "median", "95 % below", "99 % below", "largest"], rows)
    print()
    ends = [f"{int(metrics[key]):,} {format_value}" for key, format_value in _OUTCOMES.items() if metrics[key]]
    console.facts(
        [
            ("jobs", f"{int(metrics['jobs']):,}: {', '.join(ends) or 'none'}"),
            ("utilization", f"{console.percent(metrics['utilization'])} of {nodes:,} nodes, over the makespan"),
            ("makespan", f"{console.span(metrics['makespan_s'])}, from the first submission to the last end"),
            ("throughput", f"{console.number(metrics['throughput_per_h'])} jobs per hour"),
            (
                "backlog",
                f"{console.number(metrics['mean_backlog_jobs'])} jobs waiting on average, "
                f"requesting {console.number(metrics['mean_backlog_nodes'])} nodes",
            ),
            ("work", f"{console.number(metrics['busy_node_h'])} node-hours"),
        ]
    )


def show_classes(kind: str, rows: Sequence[ClassRow]) -> None:
    """Print waits by class of job."""
    header = [
        kind,
        "jobs",
        "mean\nwait",
        "median\nwait",
        "95 % below",
        "longest",
        "mean bounded\nslowdown",
        "node-hours",
    ]
    console.table(
        header,
        [
            [
                row.label,
                f"{row.jobs:,}",
                console.span(row.mean_wait_s),
                console.span(row.median_wait_s),
                console.span(row.p95_wait_s),
                console.span(row.max_wait_s),
                console.number(row.mean_bsld),
                console.number(row.node_h),
            ]
            for row in rows
        ],
    )
