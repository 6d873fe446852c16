"""Text output of runs on GPU clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kilowait.cli import console
from kilowait.cli.output.run import cleaning_line

if TYPE_CHECKING:
    from kilowait.evaluation import Metrics
    from kilowait.experiments.scenario import ScenarioResult

__all__ = ["show_gpu_table", "show_gpu_run"]

Formatter = Callable[[float], str]


def show_gpu_run(done: ScenarioResult, metrics: Metrics, gpus: Mapping[str, Any]) -> None:
    """Print jobs, cluster and settings, metrics of users and GPUs, and results by GPU type and priority."""
    _show_run(done, str(gpus["speeds"]))
    print()
    _show_metrics(metrics, gpus["metrics"], done)
    print()
    _show_types(gpus["by_type"])
    if len(gpus["by_priority"]) > 1:
        print()
        _show_priorities(gpus["by_priority"])


def _show_run(done: ScenarioResult, speeds: str) -> None:
    run, cluster = done.log.run, done.cluster
    jobs = console.count(len(done.workload.jobs), "job")
    if done.scenario.load is not None:
        jobs += f", scaled to an offered load of {done.scenario.load:g}"
    gpus = sum(group.nodes * group.gpus for group in cluster.groups)
    rows = [("trace", f"{done.scenario.trace}, {jobs}")]
    cleaning = cleaning_line(done.workload)
    if cleaning is not None:
        rows.append(("read", cleaning))
    settings = [
        f"policy {run['policy']}",
        f"backfill {done.scenario.backfill}",
        f"placement {run['placement']}",
        f"GPU type order {done.scenario.gpu.gpu_type_order or run['gpu_type_order']}",
    ]
    if run["rounds"]:
        settings.append(f"rounds of {console.span(run['round_interval_s'])}")
    elif run["round_interval_s"]:
        settings.append(f"also scheduled every {console.span(run['round_interval_s'])}")
    settings += [word for word in ("preempt", "migrate") if run[word]]
    general_rows = [*rows, ("cluster", f"{cluster.name}, {console.count(cluster.nodes, 'node')}, {gpus:,} GPUs")]
    console.facts(
        [*general_rows, ("scheduling", ", ".join(settings)), ("checkpoints", _checkpoints(run)), ("speeds", speeds)]
    )


def _checkpoints(run: Mapping[str, Any]) -> str:
    interval_s = run["checkpoint_s"]
    if interval_s == 0:
        interval_text = "at preemption"
    else:
        interval_text = f"every {console.span(interval_s)} of work" if interval_s < float("inf") else "never"
    spans = {
        "grace_s": "grace period",
        "checkpoint_write_s": "write time",
        "checkpoint_load_s": "load time",
        "min_run_before_preempt_s": "minimum run time",
    }
    return ", ".join([interval_text, *(f"{name} {console.span(run[key])}" for key, name in spans.items() if run[key])])


def _show_metrics(metrics: Metrics, gpus: Mapping[str, float], done: ScenarioResult) -> None:
    names = {"completion time (JCT)": "turnaround_s", "queueing": "wait_s"}
    statistics = ("mean", "median", "p95", "p99", "max")
    console.table(
        ["", "mean", "median", "95 % below", "99 % below", "largest"],
        [
            [name, *(console.span(float(metrics[f"{which}_{key}"])) for which in statistics)]
            for name, key in names.items()
        ],
    )
    print()
    number, percent = console.number, console.percent
    rejected = f", {int(metrics['rejected']):,} did not fit and were left out" if metrics["rejected"] else ""
    unfinished = int(gpus["unfinished_jobs"]) - int(metrics["rejected"])
    unfinished_text = f", {unfinished:,} not finished" if unfinished else ""
    console.facts(
        [
            ("jobs", f"{int(gpus['jobs']):,}{rejected}{unfinished_text}"),
            ("makespan", f"{console.span(gpus['makespan_s'])}, from the first submission to the last end"),
            (
                "GPU utilization",
                f"{percent(gpus['gpu_utilization'])} allocated; {number(gpus['gpu_hours'])} GPU-hours; "
                f"{percent(gpus['work_utilization'])} doing work that was not lost",
            ),
            ("in FLOPS", f"{percent(gpus['flops_utilization'])}, each GPU weighted by its rate{_known(gpus)}"),
            ("fragmentation", f"{percent(gpus['mean_fragmentation'])} of the GPUs free but unusable, on average"),
            (
                "nodes in use",
                f"{number(gpus['mean_nodes_in_use'])} of {done.cluster.nodes:,} on average, at most "
                f"{number(gpus['peak_nodes_in_use'])}",
            ),
            (
                "preemption",
                f"{number(gpus['preemptions'])} preemptions, {number(gpus['migrations'])} migrations, "
                f"{number(gpus['lost_gpu_hours'])} GPU-hours of work lost",
            ),
            (
                "fairness",
                f"finish-time rho {number(gpus['mean_rho'])} on average, at most {number(gpus['max_rho'])}; "
                f"{percent(gpus['unfair_share'])} of jobs above 1.05",
            ),
        ]
    )


def _known(gpus: Mapping[str, float]) -> str:
    share = gpus["flops_known_share"]
    return f"; known of {console.percent(share)} of the GPUs" if share < 1 else ""


def _show_types(rows: list[dict[str, Any]]) -> None:
    console.table(
        ["GPU type", "nodes", "GPUs", "jobs", "GPU-hours", "allocated", "shared", "preempted", "migrated"],
        [
            [
                row["type"],
                *(f"{row[name]:,}" for name in ("nodes", "gpus", "jobs")),
                console.number(row["gpu_hours"]),
                console.percent(row["utilization"]),
                console.percent(row["shared"]),
                *(f"{row[name]:,}" for name in ("preemptions", "migrations")),
            ]
            for row in rows
        ],
    )


def _show_priorities(rows: list[dict[str, Any]]) -> None:
    console.table(
        ["priority", "jobs", "mean JCT", "95 % below", "mean queueing", "95 % below", "preempted", "GPU-hours"],
        [
            [
                f"{row['priority']:g}",
                f"{row['jobs']:,}",
                *(console.span(row[f"{name}_s"]) for name in ("mean_jct", "p95_jct", "mean_queueing", "p95_queueing")),
                f"{row['preemptions']:,}",
                console.number(row["gpu_hours"]),
            ]
            for row in rows
        ],
    )


_COLUMNS: dict[str, tuple[str, Formatter]] = {
    "mean_jct_s": ("mean\nJCT", console.span),
    "p95_jct_s": ("95 % JCT\nbelow", console.span),
    "mean_queueing_s": ("mean\nqueueing", console.span),
    "gpu_utilization": ("GPU\nutilization", console.percent),
    "flops_utilization": ("in\nFLOPS", console.percent),
    "mean_fragmentation": ("fragmen-\ntation", console.percent),
    "preemptions": ("preemp-\ntions", console.number),
    "lost_gpu_hours": ("GPU-hours\nlost", console.number),
    "mean_rho": ("finish-time\nrho", console.number),
}


def show_gpu_table(table: Mapping[str, Mapping[str, float]], order: list[str]) -> None:
    """Print the GPU metrics of each policy, in this order of labels."""
    console.table(
        ["GPUs", *(interval_text for interval_text, _ in _COLUMNS.values())],
        [
            [label, *(interval_text(table[label][name]) for name, (_, interval_text) in _COLUMNS.items())]
            for label in order
        ],
    )
