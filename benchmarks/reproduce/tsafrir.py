"""Tsafrir, Etsion and Feitelson (TPDS'07): EASY, predictions and perfect estimates on three logs.

One set-up for all logs. The jobs are those of the archive's cleaned logs that ran, with the requested number of
processors where known; SDSC-BLUE has 1,152 processors. The request of a job that ran longer than requested is set to
its run time. As in the paper, the first 1 % of jobs to end and those that end after the last arrival are not
counted. Run times below 10 s count as 10 s in the bounded slowdown. PERFECT++ is SJBF with run times for estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.easy_plus_variants import READINGS, Reading
from benchmarks.reproduce.text_tables import percent, table
from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies import simulate

__all__ = ["LOGS", "PUBLISHED", "results", "text"]


class Log(NamedTuple):
    """A log and its machine."""

    file: str
    processors: int


class Means(NamedTuple):
    """Mean wait in minutes and mean bounded slowdown."""

    wait_min: float
    bsld: float


LOGS = {
    "KTH-SP2": Log("KTH-SP2-1996-2.1-cln.swf.gz", 100),
    "SDSC-SP2": Log("SDSC-SP2-1998-4.2-cln.swf.gz", 128),
    "SDSC-BLUE": Log("SDSC-BLUE-2000-4.2-cln.swf.gz", 1152),
}
EARLIER = Log("KTH-SP2_pyss.swf.gz", 100)
"""KTH-SP2 as converted in 2006, nearer to the paper: the copy that pyss ships. The files above are of 2011 and 2012."""
PUBLISHED = {
    "KTH-SP2": {
        "EASY": Means(114.2, 89.9),
        "EASY-SJBF": Means(102, 73),
        "EASY+": Means(108.3, 79.2),
        "EASY++": Means(94, 57),
        "PERFECT++": Means(91, 50),
    },
    "SDSC-SP2": {
        "EASY": Means(363.0, 99.0),
        "EASY-SJBF": Means(362, 89),
        "EASY+": Means(340.7, 87.5),
        "EASY++": Means(326, 72),
        "PERFECT++": Means(278, 58),
    },
    "SDSC-BLUE": {
        "EASY": Means(77.1, 21.7),
        "EASY-SJBF": Means(68, 16),
        "EASY+": Means(69.0, 17.5),
        "EASY++": Means(53, 11),
        "PERFECT++": Means(57, 10),
    },
}
ORDER = {"EASY": None, "EASY-SJBF": "sjf", "EASY+": None, "EASY++": None, "PERFECT++": "sjf"}
"""Our rows, and the order of their backfill candidates; EASY+ and EASY++ define their own."""
PREDICTING = ("EASY+", "EASY++")
VARIANTS = {
    "killed": "jobs are killed at the time they asked for",
    "allocated": "processors allocated, not asked for",
    "extended": "requests stay below the run time; the planner doubles them as they run out",
    "all jobs": "no job is left out of the means",
}
MONTHS = (6, 12, 18, 24, 30)
"""First months of SDSC-BLUE that are simulated separately, to locate its difference; months of 30 days."""


def results(sources: Sources, report_progress: Callable[[str], None]) -> dict[str, Any]:
    """Means of every log, policy and variant; "" is the default set-up."""
    output: dict[str, Any] = {"rows": {}, "readings": {}, "jobs": {}}
    for name, log in LOGS.items():
        report_progress(f"{name}, {log.processors:,} processors")
        jobs = sources.jobs(log.file)
        requested = _with_requested_processors(sources, log, jobs)
        output["jobs"][name] = len(jobs)
        output["rows"][name] = {rule: {} for rule in ORDER}
        for variant in ("", *VARIANTS):
            variant_jobs = jobs if variant == "allocated" else requested
            for rule in ORDER:
                output["rows"][name][rule][variant] = run(variant_jobs, log.processors, rule, variant)._asdict()
        output["readings"][name] = {
            rule: {
                reading: run(requested, log.processors, rule, interpretation.variant, interpretation)._asdict()
                for reading, interpretation in READINGS.items()
            }
            for rule in PREDICTING
        }
        if name == "SDSC-BLUE":
            since_first_s = requested["submit_s"] - requested["submit_s"][0]
            output["beginnings"] = {
                months: {
                    rule: run(requested[since_first_s < months * 30 * 86400], log.processors, rule)._asdict()
                    for rule in ORDER
                }
                for months in MONTHS
            }
    requested = _with_requested_processors(sources, EARLIER, sources.jobs(EARLIER.file))
    output["earlier"] = {rule: run(requested, EARLIER.processors, rule)._asdict() for rule in ORDER}
    return output


def run(jobs: JobTable, processors: int, rule: str, variant: str = "", reading: Reading | None = None) -> Means:
    """One simulation and its means; a reading is an interpretation of EASY+ and EASY++.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 60], runtime_s=[600, 60], nodes=[4, 2])
    >>> run(jobs, 4, "EASY", "all jobs")
    Means(wait_min=4.5, bsld=5.5)
    """
    if variant == "killed":
        jobs = jobs.with_columns(runtime_s=np.minimum(jobs["runtime_s"], jobs["estimate_s"]))
    elif variant != "extended":
        jobs = jobs.with_columns(estimate_s=np.maximum(jobs["runtime_s"], jobs["estimate_s"]))
    if rule == "PERFECT++":
        jobs = jobs.with_columns(estimate_s=np.maximum(jobs["runtime_s"], 1.0))
    policy: str | PriorityPolicy = rule.lower() if rule in PREDICTING else "fcfs"
    if reading is not None:
        policy = reading.rule(rule)
    log = simulate(jobs, Cluster.from_nodes(processors), policy, "easy", backfill_order=ORDER[rule]).jobs()
    run_s, end_s = jobs["runtime_s"], log["end_s"]
    wait_s = log["start_s"] - jobs["submit_s"]
    bsld = np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, 10.0))
    counted = np.argsort(end_s, kind="stable")
    if variant != "all jobs":
        counted = counted[len(jobs) // 100 :]
        counted = counted[end_s[counted] <= jobs["submit_s"].max()]
    return Means(float(wait_s[counted].mean()) / 60, float(bsld[counted].mean()))


def _with_requested_processors(sources: Sources, log: Log, jobs: JobTable) -> JobTable:
    """The jobs with the requested processors (field 8), where known; the reader uses the allocated ones."""
    path = sources.log(log.file)
    try:
        ids, requested = np.loadtxt(path, comments=";", usecols=(0, 7), dtype=np.int64, unpack=True)
    except ValueError as error:
        raise InputError(f"{path} has lines that are not SWF ({error}); download it again") from None
    order = np.argsort(ids)
    requested_of_jobs = requested[order[np.searchsorted(ids, jobs["job_id"], sorter=order)]]
    return jobs.with_unit("node", nodes=np.where(requested_of_jobs > 0, requested_of_jobs, jobs.size))


def text(output: dict[str, Any]) -> str:
    """The tables."""
    rows = []
    for log, published in PUBLISHED.items():
        for rule, published_means in published.items():
            row = [f"{log} {rule}", f"{published_means.wait_min:g}"]
            means_here = Means(**output["rows"][log][rule][""])
            row += [f"{means_here.wait_min:.1f}", percent(means_here.wait_min, published_means.wait_min)]
            row += [
                f"{published_means.bsld:g}",
                f"{means_here.bsld:.1f}",
                percent(means_here.bsld, published_means.bsld),
            ]
            rows.append(row)
    heads = ["", "wait, min: published", "here", "difference", "bsld: published", "here", "difference"]
    parts = [
        "Tsafrir, Etsion, Feitelson (TPDS'07): mean wait in minutes, mean bounded slowdown (10 s)",
        table(heads, rows),
        "The same under other readings of the set-up, difference to print in wait / bounded slowdown:",
        table(["", "as above", *VARIANTS], _differences(output["rows"])),
        "\n".join(f"{name}: {words}" for name, words in VARIANTS.items()),
        "Predictions under other readings, difference to print in wait / bounded slowdown:",
        table(["", *READINGS], _differences(output["readings"])),
        "\n".join(f"{name}: {reading.words}" for name, reading in READINGS.items()),
    ]
    rows = [["KTH-SP2 published", *(_pair(PUBLISHED["KTH-SP2"][rule]) for rule in ORDER)]]
    rows.append(["as converted in 2006", *(_pair(Means(**means)) for means in output["earlier"].values())])
    rows.append(["SDSC-BLUE published", *(_pair(PUBLISHED["SDSC-BLUE"][rule]) for rule in ORDER)])
    for months, rules in output["beginnings"].items():
        rows.append([f"first {months} months", *(_pair(Means(**means)) for means in rules.values())])
    parts.append("Another copy of KTH-SP2, and beginnings of SDSC-BLUE alone; wait in minutes / bounded slowdown:")
    parts.append(table(["", *ORDER], rows))
    return "\n\n".join(parts)


def _pair(means: Means) -> str:
    return f"{means.wait_min:.1f} / {means.bsld:.1f}"


def _differences(output: dict[str, Any]) -> list[list[str]]:
    """Differences by log, policy, and variant or reading."""
    rows = []
    for log, rules in output.items():
        for rule, variants in rules.items():
            published = PUBLISHED[log][rule]
            cells = [
                f"{percent(means['wait_min'], published.wait_min)} / {percent(means['bsld'], published.bsld)}"
                for means in variants.values()
            ]
            rows.append([f"{log} {rule}", *cells])
    return rows
