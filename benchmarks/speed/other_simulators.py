"""Run times of other simulators on the same jobs: the reference simulator of the tests, and AccaSim if installed."""

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

__all__ = ["ACCASIM_JOBS", "REFERENCE_JOBS", "accasim_s", "reference_simulator_s"]

REFERENCE_JOBS = 300
"""The reference simulator replans at every pass; 1,000 jobs with conservative backfilling take a minute."""
ACCASIM_JOBS = 1000

_DEPTHS = {"none": 0, "easy": 1, "conservative": None}
_ACCASIM = """
import collections, collections.abc, sys, time
for name in ("Mapping", "MutableMapping", "Iterable", "Callable", "Sequence"):
    if not hasattr(collections, name):  # the last release of AccaSim imports them from their place in Python 3.9
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


def reference_simulator_s(jobs: JobTable, nodes: int, policy: str, backfill: str) -> float | None:
    """Seconds of the reference simulator; None if kilowait is not run from a checkout with its tests."""
    reference = _import_from_checkout("tests.oracle.reference")
    rules = _import_from_checkout("tests.oracle.priority_rules")
    if reference is None or rules is None:
        return None
    columns = ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes")
    rows = [reference.ReferenceJob(*row) for row in zip(*(jobs[name].tolist() for name in columns), strict=True)]
    rule, fixed = rules.rule_for(policy, rows)
    began = time.perf_counter()
    reference.simulate(
        rows,
        [reference.ReferenceGroup("nodes", nodes)],
        queues={},
        outages=(),
        reservations=(),
        rule=rule,
        fixed=fixed,
        depth=_DEPTHS[backfill],
    )
    return time.perf_counter() - began


def _import_from_checkout(name: str) -> Any:
    root = Path(kilowait.__file__).resolve().parents[2]
    if not (root / Path(*name.split("."))).with_suffix(".py").exists():
        return None
    sys.path.insert(0, str(root))
    try:
        return import_module(name)
    except ImportError:  # another package called tests was imported earlier
        return None
    finally:
        sys.path.remove(str(root))


def accasim_s(jobs: JobTable, nodes: int, backfill: str) -> float | str:
    """Seconds of AccaSim, including reading its files; a message if it is not installed or fails."""
    if find_spec("accasim") is None:
        return "AccaSim is not installed (pip install accasim)"
    rounded = jobs.with_columns(submit_s=np.floor(jobs["submit_s"]))  # AccaSim needs integer seconds
    system = {
        "groups": {"node": {"core": 1}},
        "resources": {"node": nodes},
        "equivalence": {"processor": {"core": 1}},
        "start_time": 0,
    }
    with tempfile.TemporaryDirectory() as folder:
        write_trace(rounded, Path(folder) / "jobs.swf", cluster=Cluster.from_nodes(nodes))
        (Path(folder) / "system.json").write_text(json.dumps(system))
        try:
            completed = subprocess.run(
                [sys.executable, "-c", _ACCASIM, backfill],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "AccaSim is installed, but did not end within 120 s"
    seconds = [line.split()[1] for line in completed.stdout.splitlines() if line.startswith("seconds ")]
    if completed.returncode or not seconds:
        last = (completed.stderr.strip().splitlines() or ["no message"])[-1]
        return f"AccaSim is installed, but does not run here: {last}"
    return float(seconds[0])
