"""RLScheduler's table on lublin_256: start times of its simulator reproduced, and kilowait on the same windows.

SC'20; the code, the windows and the published means are those of DIR-LAB/deep-batch-scheduler. Its start times
are recorded for the first two windows of 1,024 jobs and two of 256, its means for all ten windows of 1,024.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.rlscheduler_rules import RULES, Job, commitments_of, starts_of
from benchmarks.reproduce.text_tables import of, table
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies import simulate

__all__ = ["window_starts", "figures", "results", "text", "window_jobs"]

PROCESSORS = 256
DRAWS = {"windows1024": (1, 10, 1024), "windows256": (7, 2, 256)}
"""Set of windows to seed, number and length."""
PUBLISHED = {
    "FCFS": (7273.77, 235.82),
    "SJF": (277.35, 73.31),
    "WFP3": (19753.53, 133.87),
    "UNICEP": (22274.74, 307.23),
    "F1": (258.37, 75.07),
    "RL": (254.67, 58.64),
}
"""Mean bounded slowdown over the ten windows, without and with their backfilling, from their README."""
NETWORKS = {"RL": "their network, sampled", "RL_greedy": "their network, greedy"}
ENGINE_RULES = ("fcfs", "sjf", "f1", "saf", "wfp3", "unicef")
REFERENCES = {
    ("fcfs", "none"): "FCFS",
    ("sjf", "none"): "SJF_resorted",
    ("fcfs", "easy"): "FCFS+EASY",
    ("sjf", "easy"): "SJF_resorted+EASY",
}
"""Runs of kilowait's engine to the independent reference's names for them."""


def window_starts(seed: int, count: int, length: int, jobs: int) -> list[int]:
    """Start indices of RLScheduler's windows; gym 0.15.7 seeds its generator with a hash of the seed's digits.

    >>> window_starts(seed=7, count=2, length=256, jobs=10_000)
    [1840, 7707]
    """
    label = struct.unpack("<2I", hashlib.sha512(str(seed).encode()).digest()[:8])
    generator = np.random.RandomState(list(label))  # their generator, which gives their windows
    return [int(generator.randint(length, jobs - length - 1)) for _ in range(count)]


def window_jobs(jobs: JobTable, first: int, length: int) -> list[Job]:
    """A window in RLScheduler's job format."""
    window = jobs[first : first + length]
    columns = (window[name].astype(np.int64).tolist() for name in ("submit_s", "runtime_s", "estimate_s", "nodes"))
    return [Job(number, *row) for number, row in enumerate(zip(*columns, strict=True))]


def figures(jobs: Sequence[Job], starts: Sequence[float]) -> dict[str, float]:
    """RLScheduler's metrics of a window; waits in seconds, the last two counted from the first submission."""
    pairs = list(zip(jobs, starts, strict=True))
    waits = [start - job.submit for job, start in pairs]
    slowdowns = [max(1.0, (wait + job.run) / max(job.run, 10)) for (job, _), wait in zip(pairs, waits, strict=True)]
    last_start = max(starts) - jobs[0].submit
    makespan = max(start + job.run for job, start in pairs) - jobs[0].submit
    area = sum(job.run * job.processors for job in jobs)
    return {
        "avg_bsld": math.fsum(slowdowns) / len(jobs),
        "avg_wait": sum(waits) / len(jobs),
        "avg_turnaround": sum(wait + job.run for (job, _), wait in zip(pairs, waits, strict=True)) / len(jobs),
        "utilization_theirs": area / (last_start * PROCESSORS),
        "utilization_makespan": area / (makespan * PROCESSORS),
        "last_start": last_start,
        "makespan": makespan,
    }


def valid(jobs: Sequence[Job], starts: Sequence[float]) -> bool:
    """Whether no job starts before its submission and processors are never oversubscribed."""
    changes = [(start, job.processors) for job, start in zip(jobs, starts, strict=True)]
    changes += [(start + job.run, -job.processors) for job, start in zip(jobs, starts, strict=True)]
    used = np.cumsum([change for _, change in sorted(changes)])  # at one time, releases come first
    return all(start >= job.submit for job, start in zip(jobs, starts, strict=True)) and max(used) <= PROCESSORS


class Tally:
    """Agreement with the recorded results: start times exactly, metrics to nine digits."""

    def __init__(self) -> None:
        self.starts = self.starts_of = self.figures = self.figures_of = 0

    def add(self, recorded: dict[str, Any], jobs: Sequence[Job], starts: Sequence[float]) -> None:
        """Compare one window."""
        ours = figures(jobs, starts)
        ours["util"] = ours["utilization_makespan"]
        for name in recorded.keys() & ours.keys():
            self.figures += math.isclose(ours[name], recorded[name], rel_tol=1e-9)
            self.figures_of += 1
        offsets = recorded.get("start_offsets", [])
        self.starts_of += len(offsets)
        self.starts += sum(start - jobs[0].submit == offset for start, offset in zip(starts, offsets, strict=False))

    def to_dict(self) -> dict[str, int]:
        """The counts as a dict."""
        return dict(vars(self))


def results(sources: Sources, say: Callable[[str], None]) -> dict[str, Any]:
    """Reproduce every recorded run, and run kilowait on the same windows; takes about 10 s."""
    recorded = sources.recorded("rlscheduler_lublin_256")["lublin_256"]
    jobs = sources.jobs("lublin_256.swf.gz")
    if len(jobs) != recorded["n_jobs_loaded"]:
        raise InputError(
            f"lublin_256 has {len(jobs):,} jobs, the recorded log had {recorded['n_jobs_loaded']:,}; download it again"
        )
    cluster = Cluster.from_nodes(PROCESSORS)
    output: dict[str, Any] = {"commitment": {}, "networks": {}, "engine": {}}
    for key, (seed, count, length) in DRAWS.items():
        firsts = window_starts(seed, count, length, len(jobs))
        if firsts != [window["start_index"] for window in recorded[key]]:
            raise InputError(
                f"the windows drawn begin at {firsts}, the recorded ones elsewhere; download the file again"
            )
        for number_of_window, (first, window) in enumerate(zip(firsts, recorded[key], strict=True)):
            say(f"window {number_of_window + 1} of {count}, {length:,} jobs from number {first:,}")
            batch_jobs = window_jobs(jobs, first, length)
            for name, recorded_run in window["results"].items():
                rule, backfill = name.removesuffix("+bf"), name.endswith("+bf")
                if rule in NETWORKS:
                    _network(output["networks"].setdefault(name, {}), recorded_run, batch_jobs, backfill)
                    continue
                starts = starts_of(batch_jobs, PROCESSORS, RULES[rule], backfill=backfill)
                _add_run(output["commitment"], name, key, recorded_run, batch_jobs, starts)
            for rule, depth in product(ENGINE_RULES, ("none", "easy")):
                log = simulate(jobs[first : first + length], cluster, rule, depth)
                reference = window["reference_canonical"].get(REFERENCES.get((rule, depth)), {})
                starts_s = log.jobs()["start_s"].tolist()
                _add_run(output["engine"], f"{rule}+{depth}", key, reference, batch_jobs, starts_s)
    for runs in (output["commitment"], output["engine"]):
        for run in runs.values():
            run.update(run.pop("tally").to_dict())
            run["mean_bsld"] = {key: math.fsum(values) / len(values) for key, values in run.pop("bsld").items()}
    means = recorded["mean_over_10_windows"]
    output["recorded_mean_bsld"] = {name: means[name]["avg_bsld"] for name in means}
    return output


def _add_run(
    runs: dict[str, Any], name: str, key: str, recorded: dict[str, Any], jobs: Sequence[Job], starts: Sequence[float]
) -> None:
    run = runs.setdefault(name, {"bsld": {}, "tally": Tally()})
    run["bsld"].setdefault(key, []).append(figures(jobs, starts)["avg_bsld"])
    run["tally"].add(recorded, jobs, starts)


def _network(run: dict[str, Any], recorded: dict[str, Any], jobs: Sequence[Job], backfill: bool) -> None:
    """Whether recorded starts are a valid schedule, give the recorded metrics, and follow from commitments."""
    for name in ("windows", "valid", "starts", "explained", "figures", "figures_of"):
        run.setdefault(name, 0)
    if "start_offsets" not in recorded:
        return
    starts = [jobs[0].submit + offset for offset in recorded["start_offsets"]]
    tally = Tally()
    tally.add(recorded, jobs, starts)
    run["windows"] += 1
    run["valid"] += valid(jobs, starts)
    run["starts"] += len(starts)
    if commitments_of(jobs, PROCESSORS, starts, backfill=backfill) is not None:
        run["explained"] += len(starts)
    run["figures"] += tally.figures
    run["figures_of"] += tally.figures_of


def text(output: dict[str, Any]) -> str:
    """Format the results as tables."""
    key = "windows1024"
    parts = ["RLScheduler on lublin_256, 256 processors: mean bounded slowdown over ten windows of 1,024 jobs"]
    for suffix, title in (("", "no backfilling"), ("+bf", "their backfilling")):
        rows = []
        for rule in RULES:
            run = output["commitment"][rule + suffix]
            means = [output["recorded_mean_bsld"][rule + suffix], run["mean_bsld"][key]]
            row = [rule.replace("_", ", "), _published(rule, suffix), *(f"{mean:,.2f}" for mean in means)]
            rows.append([*row, *_equal(run)])
        for rule, label in NETWORKS.items():
            mean = f"{output['recorded_mean_bsld'][rule + suffix]:,.2f}"
            rows.append([label, _published(rule, suffix), mean, "recorded only", "-", "-"])
        heads = [title, "published", "recorded", "here", "starts equal", "figures equal"]
        parts.append(table(heads, rows))
    rows = []
    for rule in ENGINE_RULES:
        runs_of_policy = [output["engine"][f"{rule}+{backfill}"] for backfill in ("none", "easy")]
        cells = [[f"{run['mean_bsld'][key]:,.2f}", *_equal(run)] for run in runs_of_policy]
        rows.append([rule, *cells[0], *cells[1]])
    equal = ["starts equal", "figures equal"]
    parts.append(table(["kilowait, same windows", "no backfilling", *equal, "EASY", *equal], rows))
    runs = list(output["commitment"].values())
    total = [sum(run[name] for run in runs) for name in ("starts", "starts_of", "figures", "figures_of")]
    parts.append(f"their simulator's rules: {of(*total[:2])} recorded starts equal, {of(*total[2:])} recorded figures")
    lines = []
    for name, run in output["networks"].items():
        if run["windows"]:
            lines.append(
                f"{name}, network not available here: {of(run['valid'], run['windows'])} recorded schedules valid, "
                f"{of(run['figures'], run['figures_of'])} figures follow from the starts, "
                f"{of(run['explained'], run['starts'])} starts follow from commitments"
            )
    parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _equal(run: dict[str, Any]) -> list[str]:
    return [of(run["starts"], run["starts_of"]), of(run["figures"], run["figures_of"])]


def _published(rule: str, suffix: str) -> str:
    return f"{PUBLISHED[rule][bool(suffix)]:,.2f}" if rule in PUBLISHED else "-"
