"""Text output of ``kilowait traces describe``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kilowait.cli import console

if TYPE_CHECKING:
    from kilowait.traces import CleaningReport

__all__ = ["show_description"]

_STATUS = {-1: "unknown", 0: "failed", 1: "ok", 5: "cancelled"}


def show_description(trace: str, facts: dict[str, Any], report: CleaningReport | None) -> None:
    """Print the result of `kilowait.traces.describe` and the cleaning report."""
    console.title(trace)
    format = facts["format"] or "synthetic"
    rows = [("format", format if report is None else f"{format}: {report.format_reason}")]
    size = facts["machine_nodes"]
    rows.append(("cluster", console.count(size, "node") if size else "not stated"))
    rows.append(("jobs", f"{facts['jobs']:,}"))
    if facts["jobs"]:
        rows += _of_jobs(facts)
    console.facts(rows)
    if facts["jobs"]:
        print()
        header = ["", "mean", "smallest", "25 % below", "median", "75 % below", "95 % below", "99 % below", "largest"]
        marks = ("mean", "min", "p25", "median", "p75", "p95", "p99", "max")
        measures = {
            "nodes": ("nodes", console.number),
            "run time": ("runtime_s", console.span),
            "estimate": ("estimate_s", console.span),
            "wait in the log": ("wait_s", console.span),
        }
        table = [
            [name, *(format_value(facts[key][mark]) for mark in marks)]
            for name, (key, format_value) in measures.items()
            if facts[key]
        ]
        console.table(header, table)
    if report is not None:
        print()
        for place, line in enumerate(report.lines()):
            print(line if place == 0 else f"  {line}")


def _of_jobs(facts: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("submitted over", console.span(facts["span_s"]))]
    rows.append(("work", f"{console.number(facts['node_seconds'] / 3600)} node-hours"))
    if facts["offered_load"] is not None:
        rows.append(("offered load", f"{facts['offered_load']:.3f} of the cluster"))
    if facts["larger_than_machine"]:
        rows.append(("too large", f"{console.count(facts['larger_than_machine'], 'job')} larger than the cluster"))
    people = [console.count(facts[key], key[:-1]) for key in ("users", "accounts", "queues") if facts[key]]
    if people:
        rows.append(("used by", ", ".join(people)))
    if set(facts.get("status", {-1})) != {-1}:
        known = ", ".join(f"{n:,} {_STATUS.get(code, f'status {code}')}" for code, n in facts["status"].items())
        rows.append(("ended", known))
    exact, over = facts["perfect_estimates"], facts["overrun_estimates"]
    rows.append(("estimates", f"{console.percent(exact)} are exact, {console.percent(over)} too short"))
    if facts["zero_runtimes"]:
        rows.append(("zero run time", f"{console.count(facts['zero_runtimes'], 'job')} ran for 0 s"))
    return rows
