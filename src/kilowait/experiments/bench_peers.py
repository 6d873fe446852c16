"""Other simulators on the same jobs: the slow twin of our own tests, and AccaSim where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import kilowait
from kilowait.cluster import Cluster
from kilowait.jobs import JobTable
from kilowait.traces import write_trace

__all__ = ["ACCASIM_JOBS", "TWIN_JOBS", "accasim_s", "twin_s"]

TWIN_JOBS = 300
"""The twin plans anew at every pass; a thousand jobs under conservative backfilling take it a minute."""
ACCASIM_JOBS = 1000

_DEPTHS = {"none": 0, "easy": 1, "conservative": None}
_ACCASIM = """
import collections, collections.abc, sys, time
for name in ("Mapping", "MutableMapping", "Iterable", "Callable", "Sequence"):
    if not hasattr(collections, name):  # its last release looks for them where Python 3.9 had them
        setattr(collections, name, getattr(collections.abc, name))
from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut
from accasim.base.simulator_class import Simulator
scheduler = {"none": FirstInFirstOut, "easy": EASYBackfilling}[sys.argv[1]]
began = time.perf_counter()
simulator = Simulator(
    "jobs.swf", "system.json", scheduler(FirstFit()), RESULTS_FOLDER_PATH=".", scheduling_output=False,
    pprint_output=False, benchmark_output=False, statistics_output=False, show_statistics=False,
)
simulator.start_simulation()
print("\\nseconds", time.perf_counter() - began)
"""


def twin_s(jobs: JobTable, nodes: int, policy: str, backfill: str) -> float | None:
    """Seconds the twin takes; None where this kilowait is no checkout with its tests."""
    twin = _of_checkout("tests.oracle.reference")
    rules = _of_checkout("tests.oracle.priority_rules")
    if twin is None or rules is None:
        return None
    columns = ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes")
    rows = [twin.ReferenceJob(*row) for row in zip(*(jobs[name].tolist() for name in columns), strict=True)]
    rule, fixed = rules.rule_for(policy, rows)
    began = time.perf_counter()
    twin.simulate(
        rows,
        [twin.ReferenceGroup("nodes", nodes)],
        queues={},
        outages=(),
        reservations=(),
        rule=rule,
        fixed=fixed,
        depth=_DEPTHS[backfill],
    )
    return time.perf_counter() - began


def _of_checkout(name: str) -> Any:
    root = Path(kilowait.__file__).resolve().parents[2]
    if not (root / Path(*name.split("."))).with_suffix(".py").exists():
        return None
    sys.path.insert(0, str(root))
    try:
        return import_module(name)
    except ImportError:  # another package called tests was there first
        return None
    finally:
        sys.path.remove(str(root))


def accasim_s(jobs: JobTable, nodes: int, backfill: str) -> float | str:
    """Seconds AccaSim takes, reading its files included; words where it is not there or fails."""
    if find_spec("accasim") is None:
        return "AccaSim is not installed (pip install accasim)"
    whole = jobs.with_columns(submit_s=np.floor(jobs["submit_s"]))  # it knows whole seconds only
    system = {
        "groups": {"node": {"core": 1}},
        "resources": {"node": nodes},
        "equivalence": {"processor": {"core": 1}},
        "start_time": 0,
    }
    with tempfile.TemporaryDirectory() as folder:
        write_trace(whole, Path(folder) / "jobs.swf", cluster=Cluster.from_nodes(nodes))
        (Path(folder) / "system.json").write_text(json.dumps(system))
        try:
            done = subprocess.run(
                [sys.executable, "-c", _ACCASIM, backfill],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "AccaSim is installed, but did not end within 120 s"
    seconds = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("seconds ")]
    if done.returncode or not seconds:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        return f"AccaSim is installed, but does not run here: {last}"
    return float(seconds[0])
