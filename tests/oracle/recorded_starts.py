"""Start times from other simulators, and kilowait's for the same jobs."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait import Cluster, JobTable, read_trace, simulate

Floats = npt.NDArray[np.float64]
MEANS = ("wait", "turnaround", "bounded slowdown")


@dataclass(frozen=True)
class Recorded:
    """One run of another simulator."""

    log: str
    run: str
    whose: str
    settings: dict[str, Any]
    exact: bool
    """Whether all start times are equal; else only the means agree approximately."""
    perfect: bool = False
    """The estimate is the run time."""


LUBLIN = [
    Recorded("lublin_256", "fcfs", "pyss, CQSim, AccaSim, RLScheduler", {}, True),
    Recorded("lublin_256", "sjf", "AccaSim, CQSim", {"policy": "sjf"}, True),
    Recorded("lublin_256", "fcfs+easy", "pyss", {"backfill": "easy"}, True),
    Recorded("lublin_256", "fcfs+easy per event", "CQSim", {"backfill": "easy", "schedule_per": "event"}, True),
    Recorded("lublin_256", "fcfs+conservative", "pyss, CQSim", {"backfill": "conservative"}, True),
]
KTH = [
    Recorded("kth_sp2", "FCFS", "pyss", {}, True),
    Recorded("kth_sp2", "EASY one pass per instant", "a reference of 60 lines", {"backfill": "easy"}, True),
    Recorded("kth_sp2", "EASY", "pyss", {"backfill": "easy"}, False),
    Recorded("kth_sp2", "EASY-SJBF", "pyss", {"backfill": "easy", "backfill_order": "sjf"}, False),
    Recorded("kth_sp2", "EASY-perfect", "pyss", {"backfill": "easy"}, False, perfect=True),
    Recorded("kth_sp2", "conservative", "pyss", {"backfill": "conservative"}, False),
]
TRACES = {"lublin_256": "lublin_256.swf.gz", "kth_sp2": "KTH-SP2_pyss.swf.gz"}


@cache
def oracle(data: Path, log: str) -> dict[str, Any]:
    """Results of the other simulators."""
    with gzip.open(data.parent / "oracles" / f"{log}.json.gz", "rt") as file:
        found: dict[str, Any] = json.load(file)
    return found


@cache
def jobs_of(data: Path, log: str, perfect: bool) -> JobTable:
    """The jobs as the other simulators used them."""
    jobs = read_trace(data / "swf" / TRACES[log])
    assert jobs["job_id"].tolist() == oracle(data, log)["job_ids"]
    if log == "kth_sp2":
        estimate, run = jobs["estimate_s"], jobs["runtime_s"]
        jobs = jobs.with_columns(
            runtime_s=np.maximum(np.minimum(estimate, run), 1.0), estimate_s=np.maximum(np.maximum(estimate, run), 1.0)
        )
    return jobs.with_columns(estimate_s=jobs["runtime_s"]) if perfect else jobs


def theirs(data: Path, recorded: Recorded) -> Floats:
    """Their start times."""
    return np.array(oracle(data, recorded.log)["runs"][recorded.run]["start"], np.float64)


def ours(data: Path, recorded: Recorded) -> Floats:
    """Our start times."""
    cluster = Cluster.from_nodes(oracle(data, recorded.log)["processors"])
    log = simulate(jobs_of(data, recorded.log, recorded.perfect), cluster, **{"backfill": "none", **recorded.settings})
    start: Floats = log.jobs()["start_s"]
    return start


def means(data: Path, recorded: Recorded, start: Floats) -> Floats:
    """Mean wait and turnaround, seconds, and bounded slowdown (10 s)."""
    jobs = jobs_of(data, recorded.log, recorded.perfect)
    wait, run = start - jobs["submit_s"], jobs["runtime_s"]
    slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, 10.0))
    return np.array([wait.mean(), (wait + run).mean(), slowdown.mean()])
