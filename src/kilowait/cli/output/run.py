"""Output of ``kilowait simulate``: the run, its metrics, classes of jobs, GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kilowait.cli import console

if TYPE_CHECKING:
    from kilowait.evaluation import Metrics
    from kilowait.experiments.scenario import ScenarioResult

Formatter = Callable[[float], str]
_STATISTICS = {"mean": "mean", "median": "median", "p95": "95 % below", "p99": "99 % below", "max": "largest"}
_MEASURES = {
    "wait": ("wait_s", console.span),
    "turnaround": ("turnaround_s", console.span),
    "slowdown": ("slowdown", console.number),
    "bounded slowdown": ("bsld", console.number),
}
_GPU_MEASURES = {"completion time (JCT)": ("turnaround_s", console.span), "queueing": ("wait_s", console.span)}
_OUTCOMES = {
    "completed": "completed",
    "killed": "killed at their limit",
    "cancelled": "cancelled while waiting",
    "rejected": "rejected (too large, or their reservation had ended)",
    "unstarted": "never started",
}


def show_results(done: ScenarioResult, results: Mapping[str, Any]) -> None:
    """Print the results of a run, as `summarize_run` gives them."""
    if "gpus" in results:
        _show_gpu_run(done, results["metrics"], results["gpus"], _while_jobs_arrive(results))
    else:
        _show_settings(done)
        print()
        _show_metrics(results["metrics"], done.cluster.size, done.cluster.unit, _while_jobs_arrive(results))
    if done.accounts is not None:
        from kilowait.cli.output.energy import show_accounts

        print()
        violation = done.budget_violation
        budget = None if violation is None else violation.description
        show_accounts(done.accounts, done.controls_description, budget)
    if "by" in results:
        print()
        _show_classes(**results["by"], unit=done.cluster.unit)


def _while_jobs_arrive(results: Mapping[str, Any]) -> str:
    """The utilization between the first and the last submission, which comparisons and pages show."""
    arrivals = results.get("while_jobs_arrive")
    return "" if arrivals is None else f", {console.percent(arrivals['utilization'])} while jobs arrive"


def _show_settings(done: ScenarioResult) -> None:
    """Print the jobs, the cluster and the scheduling settings of a run."""
    run = done.log.run
    backfill = str(run["backfill"])
    if run["backfill_order"] is not None:
        backfill += f" ordered by {run['backfill_order']}"
    settings = [f"policy {run['policy']}", f"backfill {backfill}", f"at limit {run['at_limit']}"]
    settings += [f"scheduling pass per {run['schedule_per']}"]
    if run["overrun"] != "double":
        settings.append(f"overrun {run['overrun']}")
    if run["max_wait_s"] is not None:
        settings.append(f"jobs first after {console.span(run['max_wait_s'])}")
    if len(done.log.groups) > 1:
        settings.append(f"placement {run['placement']}")
    if not run["dependencies"]:
        settings.append("dependencies ignored")
    machine = done.cluster
    cluster = machine.size_text
    if machine.name not in (f"{machine.size} nodes", f"{machine.size} processors"):
        cluster = f"{machine.name}, {cluster}"
    console.facts([*_log_rows(done), ("cluster", cluster), ("scheduling", ", ".join(settings))])


def _log_rows(done: ScenarioResult) -> list[tuple[str, str]]:
    """The log, and what was cleaned."""
    jobs = console.count(len(done.workload.jobs), "job")
    if done.scenario.load is not None:
        jobs += f", scaled to an offered load of {done.scenario.load:g}"
    cleaning = console.cleaning_line(done.workload)
    return [("trace", f"{done.scenario.trace}, {jobs}"), *([] if cleaning is None else [("read", cleaning)])]


def _show_metrics(metrics: Metrics, size: int, unit: str, while_jobs_arrive: str) -> None:
    """Print the metrics of a run."""
    _show_statistics(metrics, _MEASURES)
    ends = [f"{int(metrics[key]):,} {format_value}" for key, format_value in _OUTCOMES.items() if metrics[key]]
    console.facts(
        [
            ("jobs", f"{int(metrics['jobs']):,}: {', '.join(ends) or 'none'}"),
            (
                "utilization",
                f"{console.percent(metrics['utilization'])} of {console.count(size, unit)} over the makespan"
                f"{while_jobs_arrive}",
            ),
            ("makespan", f"{console.span(metrics['makespan_s'])}, from the first submission to the last end"),
            ("throughput", f"{console.number(metrics['throughput_per_h'])} jobs per hour"),
            (
                "backlog",
                f"{console.number(metrics['mean_backlog_jobs'])} jobs waiting on average, "
                f"requesting {console.number(metrics[f'mean_backlog_{unit}s'])} {unit}s",
            ),
            ("work", f"{console.number(metrics[f'busy_{unit}_h'])} {unit}-hours"),
        ]
    )


def _show_statistics(metrics: Metrics, measures: Mapping[str, tuple[str, Formatter]]) -> None:
    """Print mean, quantiles and maximum of each measure, and an empty line."""
    rows = [
        [name, *(format_value(float(metrics[f"{statistic}_{key}"])) for statistic in _STATISTICS)]
        for name, (key, format_value) in measures.items()
    ]
    console.table(["", *_STATISTICS.values()], rows)
    print()


def _show_classes(kind: str, rows: Sequence[Mapping[str, Any]], unit: str) -> None:
    """Print waits by class of job."""
    columns: console.Columns = [
        (kind, "label", str),
        ("jobs", "jobs", console.integer),
        ("mean\nwait", "mean_wait_s", console.span),
        ("median\nwait", "median_wait_s", console.span),
        ("95 % below", "p95_wait_s", console.span),
        ("longest", "max_wait_s", console.span),
        ("mean bounded\nslowdown", "mean_bsld", console.number),
        (f"{unit}-hours", "allocated_h", console.number),
    ]
    console.records(columns, rows)


# -- GPU clusters ------------------------------------------------------------------------------------


def _show_gpu_run(done: ScenarioResult, metrics: Metrics, gpus: Mapping[str, Any], while_jobs_arrive: str) -> None:
    """Print jobs, cluster and settings, metrics of users and GPUs, and results by GPU type and priority."""
    _show_gpu_settings(done, str(gpus["speeds"]))
    print()
    _show_gpu_metrics(metrics, gpus["metrics"], done, while_jobs_arrive)
    print()
    console.records(_TYPE_COLUMNS, gpus["by_type"])
    if len(gpus["by_priority"]) > 1:
        print()
        console.records(_PRIORITY_COLUMNS, gpus["by_priority"])


def _show_gpu_settings(done: ScenarioResult, speeds: str) -> None:
    run, cluster = done.log.run, done.cluster
    gpus = sum(group.nodes * group.gpus for group in cluster.groups)
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
    if run["at_limit"] != "extend":
        settings.append(f"at limit {run['at_limit']}")
    console.facts(
        [
            *_log_rows(done),
            ("cluster", f"{cluster.name}, {console.count(cluster.nodes, 'node')}, {gpus:,} GPUs"),
            ("scheduling", ", ".join(settings)),
            ("checkpoints", checkpoints_text(run)),
            ("speeds", speeds),
        ]
    )


def checkpoints_text(run: Mapping[str, Any]) -> str:
    """When checkpoints are written, and what a preemption costs."""
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


def _show_gpu_metrics(
    metrics: Metrics, gpus: Mapping[str, float], done: ScenarioResult, while_jobs_arrive: str
) -> None:
    _show_statistics(metrics, _GPU_MEASURES)
    number, percent = console.number, console.percent
    rejected = f", {int(metrics['rejected']):,} did not fit and were left out" if metrics["rejected"] else ""
    killed = f", {int(metrics['killed']):,} killed at their limit" if metrics["killed"] else ""
    unfinished = int(gpus["unfinished_jobs"]) - int(metrics["rejected"])
    unfinished_text = f", {unfinished:,} not finished" if unfinished else ""
    console.facts(
        [
            ("jobs", f"{int(gpus['jobs']):,}{rejected}{killed}{unfinished_text}"),
            ("makespan", f"{console.span(gpus['makespan_s'])}, from the first submission to the last end"),
            (
                "GPU utilization",
                f"{percent(gpus['gpu_utilization'])} allocated over the makespan{while_jobs_arrive}; "
                f"{number(gpus['gpu_hours'])} GPU-hours; "
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


_TYPE_COLUMNS: console.Columns = [
    ("GPU type", "type", str),
    ("nodes", "nodes", console.integer),
    ("GPUs", "gpus", console.integer),
    ("jobs", "jobs", console.integer),
    ("GPU-hours", "gpu_hours", console.number),
    ("allocated", "utilization", console.percent),
    ("shared", "shared", console.percent),
    ("preempted", "preemptions", console.integer),
    ("migrated", "migrations", console.integer),
]
_PRIORITY_COLUMNS: console.Columns = [
    ("priority", "priority", "{:g}".format),
    ("jobs", "jobs", console.integer),
    ("mean JCT", "mean_jct_s", console.span),
    ("95 % below", "p95_jct_s", console.span),
    ("mean queueing", "mean_queueing_s", console.span),
    ("95 % below", "p95_queueing_s", console.span),
    ("preempted", "preemptions", console.integer),
    ("GPU-hours", "gpu_hours", console.number),
]
_COLUMNS: dict[str, tuple[str, Formatter]] = {
    "mean_jct_s": ("mean\nJCT", console.span),
    "p95_jct_s": ("95 % JCT\nbelow", console.span),
    "mean_queueing_s": ("mean\nqueueing", console.span),
    "gpu_utilization": ("GPU utilization\nwhile jobs arrive", console.percent),
    "flops_utilization": ("in\nFLOPS", console.percent),
    "mean_fragmentation": ("fragmen-\ntation", console.percent),
    "preemptions": ("preemp-\ntions", console.number),
    "lost_gpu_hours": ("GPU-hours\nlost", console.number),
    "mean_rho": ("finish-time\nrho", console.number),
}


def show_gpu_table(table: Mapping[str, Mapping[str, float]], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the GPU metrics of each policy, and what it may do, in the order of these rows of a comparison."""
    console.table(
        ["GPUs", *(heading for heading, _ in _COLUMNS.values()), "it may"],
        [
            [
                str(row["label"]),
                *(format_value(table[row["label"]][name]) for name, (_, format_value) in _COLUMNS.items()),
                ", ".join(row["may"]) or "-",
            ]
            for row in rows
        ],
    )
