"""Results in words and tables, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kilowait.cli import console

if TYPE_CHECKING:
    from kilowait.evaluation import ClassRow, Metrics
    from kilowait.experiments.inputs import Workload
    from kilowait.experiments.scenario import ScenarioResult

__all__ = ["ledger_line", "show_classes", "show_metrics", "show_run"]

_STATISTICS = ("mean", "median", "p95", "p99", "max")
_MEASURES = {
    "wait": ("wait_s", console.span),
    "turnaround": ("turnaround_s", console.span),
    "slowdown": ("slowdown", console.number),
    "bounded slowdown": ("bsld", console.number),
}
_OUTCOMES = {
    "completed": "completed",
    "killed": "ended at their estimate",
    "cancelled": "withdrawn while waiting",
    "rejected": "larger than the machine, left out",
    "unstarted": "never started",
}


def ledger_line(workload: Workload) -> str | None:
    """What was dropped and mended in reading, in one line; None where nothing was."""
    ledger = workload.ledger
    if ledger is None or not (ledger.dropped or ledger.mended):
        return None
    return f"{ledger.lines()[0]}; kilowait traces describe says why"


def show_run(done: ScenarioResult) -> None:
    """Which jobs, which machine, which rules."""
    run = done.log.run
    backfill = str(run["backfill"])
    if run["backfill_order"] is not None:
        backfill += f" in the order of {run['backfill_order']}"
    rules = [f"policy {run['policy']}", f"backfill {backfill}", f"at limit {run['at_limit']}"]
    rules += [f"a pass per {run['schedule_per']}"]
    if run["overrun"] != "double":
        rules.append(f"overrun plans go on by {run['overrun']}")
    if len(done.log.groups) > 1:
        rules.append(f"placement {run['placement']}")
    if not run["dependencies"]:
        rules.append("dependencies ignored")
    jobs = console.count(len(done.workload.jobs), "job")
    if done.scenario.load is not None:
        jobs += f", brought to an offered load of {done.scenario.load:g}"
    size = console.count(done.cluster.nodes, "node")
    machine = size if done.cluster.name == f"{done.cluster.nodes} nodes" else f"{done.cluster.name}, {size}"
    rows = [("trace", f"{done.scenario.trace}, {jobs}")]
    read = ledger_line(done.workload)
    if read is not None:
        rows.append(("read", read))
    console.facts([*rows, ("machine", machine), ("rules", ", ".join(rules))])


def show_metrics(found: Metrics, nodes: int) -> None:
    """The metrics of a run."""
    rows = []
    for name, (key, words) in _MEASURES.items():
        rows.append([name, *(words(float(found[f"{which}_{key}"])) for which in _STATISTICS)])
    console.table(["", "mean", "median", "95 % below", "99 % below", "largest"], rows)
    print()
    ends = [f"{int(found[key]):,} {words}" for key, words in _OUTCOMES.items() if found[key]]
    console.facts(
        [
            ("jobs", f"{int(found['jobs']):,}: {', '.join(ends) or 'none'}"),
            ("utilization", f"{console.percent(found['utilization'])} of {nodes:,} nodes, over the makespan"),
            ("makespan", f"{console.span(found['makespan_s'])}, from the first submission to the last end"),
            ("throughput", f"{console.number(found['throughput_per_h'])} jobs an hour"),
            (
                "backlog",
                f"{console.number(found['mean_backlog_jobs'])} jobs waiting on average, "
                f"asking for {console.number(found['mean_backlog_nodes'])} nodes",
            ),
            ("work", f"{console.number(found['busy_node_h'])} node-hours"),
        ]
    )


def show_classes(kind: str, rows: Sequence[ClassRow]) -> None:
    """Who waits, by class of job."""
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
