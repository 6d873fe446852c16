"""Convert cases and results between the GPU reference simulator and the engine."""

from __future__ import annotations

import math

import numpy as np

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.engine.interface import PriorityPolicy
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from kilowait.policies.registry import resolve
from tests.oracle.gpu_model import DEFAULTS, MISSING, GpuCase, GpuRun, JobResult, Piece, Segment

WORDS = {outcome: outcome.name.lower() for outcome in Outcome}


def cluster_of(case: GpuCase) -> Cluster:
    """The case's machine."""
    groups = tuple(NodeGroup(**group, node_level=True) for group in case.groups)
    return Cluster(
        groups=groups,
        queues={queue: tuple(names) for queue, names in case.queues.items()},
        node_groups=None if case.layout is None else tuple(case.layout),
    )


def jobs_of(case: GpuCase) -> JobTable:
    """The case's jobs, labels as numbers."""
    columns = {name: values for name, values in case.jobs.items() if name != "drawn"}
    labels: dict[str, tuple[str, ...]] = {}
    for name in ("gpu_types", "queue"):
        if name in columns:
            words = tuple(dict.fromkeys(word for word in columns[name] if word is not None))
            columns[name] = [-1 if word is None else words.index(word) for word in columns[name]]
            labels[name] = words
    return JobTable(labels=labels, **columns)


def rule_of(case: GpuCase, jobs: JobTable) -> PriorityPolicy:
    """The case's policy."""
    if case.rule != "random":
        return resolve(case.rule)
    drawn = np.array(case.jobs.get("drawn", [MISSING["drawn"]] * len(jobs)), float)
    return PriorityPolicy("random", resolve("random").score, drawn if jobs.order is None else drawn[jobs.order])


def settings_of(case: GpuCase) -> GpuSettings:
    """The case's settings."""
    said = DEFAULTS | case.settings
    table = said["interference"]
    return GpuSettings(
        placement=said["placement"],
        gpu_type_order=said["gpu_type_order"],
        head_of_line_blocking=said["head_of_line_blocking"],
        preempt=said["preemption"],
        migrate=said["migration"],
        min_run_before_preempt_s=said["min_run_before_preempt"],
        grace_s=said["grace"],
        checkpoint_write_s=said["checkpoint_write"],
        checkpoint_load_s=said["checkpoint_load"],
        checkpoint_s=said["checkpoint"],
        round_interval_s=said["round_interval"],
        rounds=said["rounds"],
        interference=None
        if table is None
        else (*((up / 1000, value) for up, value in table[:-1]), (math.inf, table[-1][1])),
        at_limit=said["at_limit"],
        on_oversized="drop",
        seed=said["seed"],
    )


def speeds_of(case: GpuCase) -> Speeds | None:
    """The case's tables of speed, by GPU type."""
    said = DEFAULTS | case.settings
    if said["speed"] is None and said["factor"] is None:
        return None
    types = tuple(dict.fromkeys(group["gpu_type"] if group["gpus"] else "" for group in case.groups))
    shape = (len(types), len(case.jobs["job_id"]))
    speed = np.ones(shape) if said["speed"] is None else np.array(said["speed"], float)
    factor = np.ones(shape) if said["factor"] is None else np.array(said["factor"], float)
    known = [row for row, name in enumerate(types) if name]
    return Speeds(
        tuple(types[row] for row in known), speed[known], factor[known], np.ones((len(known), shape[1]), np.int8)
    )


def run_engine(case: GpuCase, steps: bool = False) -> GpuRun:
    """The engine's result of the case, as a whole run or step by step."""
    jobs = jobs_of(case)
    simulator = GpuSimulator(
        jobs, cluster_of(case), settings_of(case), policy=rule_of(case, jobs), speeds=speeds_of(case)
    )
    if steps:
        while (view := simulator.advance()) is not None:
            if view.due:
                simulator.schedule()
    else:
        simulator.run()
    log = simulator.log()
    assert log.pieces is not None
    number = np.empty(len(jobs), int)
    number[np.arange(len(jobs)) if jobs.order is None else jobs.order] = np.arange(len(jobs))
    pieces: list[list[Piece]] = [[] for _ in range(len(log))]
    for segment, node, gpus, gpu_milli in zip(
        log.pieces.segment, log.pieces.node, log.pieces.gpus, log.pieces.gpu_milli, strict=True
    ):
        each = int(gpu_milli) // max(int(gpus).bit_count(), 1)
        pieces[segment].append(Piece(int(node), int(gpus), each))
    segments = [
        Segment(
            int(number[log.job[i]]),
            float(log.start_s[i]),
            float(log.end_s[i]),
            WORDS[Outcome(log.outcome[i])],
            float(log.pieces.work_s[i]),
            float(log.pieces.lost_s[i]),
            tuple(pieces[i]),
        )
        for i in range(len(log))
    ]
    order = range(len(jobs)) if jobs.order is None else jobs.order
    job_results = [JobResult(float(log.eligible_s[row]), WORDS[Outcome(log.job_outcome[row])]) for row in order]
    return GpuRun(segments, job_results, {})


def difference(case: GpuCase, theirs: GpuRun, ours: GpuRun) -> str | None:
    """The first differences of two runs, compared exactly; None: there are none."""
    said = _differences(ours, theirs)
    if not said:
        return None
    return f"seed {case.seed}, {case.rule}: {len(said)} differences, engine / reference\n  " + "\n  ".join(said[:3])


def _differences(ours: GpuRun, theirs: GpuRun) -> list[str]:
    said = []
    for number, (one, other) in enumerate(zip(ours.jobs, theirs.jobs, strict=True)):
        same = one.eligible == other.eligible or (math.isnan(one.eligible) and math.isnan(other.eligible))
        if not (same and one.outcome == other.outcome):
            said.append(f"job {number}: {one} / {other}")
    for place, (mine, its) in enumerate(zip(ours.segments, theirs.segments, strict=False)):
        if mine != its:
            said.append(f"segment {place}: {mine} / {its}")
    if len(ours.segments) != len(theirs.segments):
        said.append(f"{len(ours.segments)} / {len(theirs.segments)} segments")
    return said
