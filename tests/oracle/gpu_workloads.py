"""Random small workloads for GPU clusters that cover every feature of docs/gpu-engine.md, with ties and zeros."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from tests.oracle.gpu_model import BUILT_IN_INTERFERENCE, GpuCase, GpuRun, names_of
from tests.oracle.gpu_reference import simulate
from tests.oracle.gpu_scheduling_pass import RULES
from tests.oracle.workloads import snap

TYPES = ("P100", "T4", "V100M16", "A10")
ELSEWHERE = "V100M32"
"""A type that no generated cluster has."""
PLACEMENTS = (
    "first",
    "best",
    "worst",
    "consolidate",
    "random",
    "dot-product",
    "gpu-packing",
    "gpu-clustering",
    "fgd",
    "capacity",
)
PARTS = (1, 100, 250, 250, 300, 400, 500, 500, 500, 600, 999)

Columns = dict[str, list[Any]]


def run_reference(case: GpuCase) -> GpuRun:
    """The reference simulator's result."""
    return simulate(case)


def gpu_case(seed: int, queues: bool = False) -> GpuCase:
    """The random case of this seed; its features are random too. `queues`: the cluster has queues."""
    rng = Random(f"placed {seed}")
    unit = rng.choice([1.0, 1.0, 1.0, 1.0, 0.25, 0.0])
    moves = rng.random() < 0.4
    groups = _groups(rng, moves)
    layout = [g for g, group in enumerate(groups) for _ in range(group["nodes"])]
    interleaved = rng.random() < 0.3
    if interleaved:
        rng.shuffle(layout)
    jobs = _sizes(rng, groups, rng.randint(5, rng.choice([12, 30, 60, 60])))
    _lengths(rng, jobs, unit)
    span = _submits(rng, jobs, groups, unit)
    _wishes(rng, jobs, groups, span, unit)
    rule = rng.choice([rule for rule in RULES if rule != "fcfs" or rng.random() < 0.6])
    settings = _settings(rng, jobs, unit, rule, moves)
    settings |= _speeds(rng, names_of(groups), len(jobs["job_id"]), unit, moves)
    listed = _queues(rng, jobs, groups) if queues else {}
    _limits(Random(f"limits {seed}"), jobs)
    return GpuCase(seed, groups, layout if interleaved else None, jobs, settings, rule, listed)


def soak_case(seed: int) -> GpuCase:
    """The case of this seed, every fifth with queues."""
    return gpu_case(seed, queues=seed % 5 == 4)


# -- machine and sizes ---------------------------------------------------------------------------


def _groups(rng: Random, moves: bool) -> list[dict[str, Any]]:
    names = rng.sample(TYPES, rng.randint(2 if moves else 1, len(TYPES)))
    largest = rng.choice([1, 2, 4, 4, 8])
    groups = []
    for i in range(rng.choice([2, 3, 4] if moves else [1, 1, 2, 2, 3, 4])):
        gpus = rng.choice([0, 1, 2, largest, largest, largest]) if i > 0 or rng.random() < 0.15 else largest
        name = names[i % len(names)] if moves else rng.choice(names)
        groups.append(
            {
                "name": f"g{i}",
                "nodes": rng.choice([1, 1, 1, 2, 2, 3, 4, 6]),
                "cores": rng.choice([1, 2, 4, 8, 8, 16, 32]),
                "memory_gb": rng.choice([0.0, 0.0, 0.0, 4.0, 16.0, 7.5]),
                "gpus": gpus,
                "gpu_type": name if gpus > 0 else "",
            }
        )
    return groups


def _sizes(rng: Random, groups: list[dict[str, Any]], count: int) -> Columns:
    """Five kinds of jobs in a mixture of its own; most of them fit."""
    kinds = ("cpu", "whole", "part", "gang", "spread")
    weights = [rng.choice([0.0, 1.0, 3.0]) for _ in kinds]
    if sum(weights) == 0.0:
        weights = [1.0] * len(kinds)
    largest = max(1, *(group["gpus"] for group in groups))
    most = max(group["nodes"] for group in groups)
    all_gpus = max(1, *(group["gpus"] * group["nodes"] for group in groups))
    names = ("nodes", "gpus", "gpu_milli", "gpus_may_span_nodes", "cores", "cpu_milli", "memory_mb")
    jobs: Columns = {"job_id": rng.sample(range(1, 3 * count), count)} | {name: [] for name in names}
    needy = rng.choice([0.0, 0.3, 1.0])  # how much cores and memory matter
    few = rng.choice([1, 2, *(group["cores"] for group in groups)])
    for _ in range(count):
        kind = rng.choices(kinds, weights)[0]
        nodes, gpus, gpu_milli, spread = 1, 0, 1000, 0
        if kind == "cpu":
            nodes = rng.choice([1, 1, 1, 1, 2, min(3, most)])
            spread = rng.choice([0, 0, 0, 1])
        elif kind == "whole":
            gpus = rng.choice([1, 1, 1, 2, rng.randint(1, largest), largest])
        elif kind == "part":
            gpus, gpu_milli = 1, rng.choice(PARTS)
            spread = rng.choice([0, 0, 0, 1])
        elif kind == "gang":
            nodes = min(rng.choice([2, 2, 2, 3, 4]), most + (rng.random() < 0.1))
            gpus = nodes * rng.choice([1, 1, min(2, largest), largest])
        else:
            gpus, spread = min(rng.choice([1, 2, 2, 3, 4, 4, 5, 8]), all_gpus + (rng.random() < 0.1)), 1
        pieces = gpus if spread and gpus else nodes
        cores = rng.choice([1, 1, few, few]) if rng.random() < needy or kind == "cpu" else 0
        milli_cores = cores * 1000 + rng.choice([-500, -500, 0, 1, -250])
        jobs["nodes"].append(nodes)
        jobs["gpus"].append(gpus)
        jobs["gpu_milli"].append(gpu_milli)
        jobs["gpus_may_span_nodes"].append(spread)
        jobs["cores"].append(cores * (pieces if rng.random() < 0.7 else 1))
        jobs["cpu_milli"].append(max(0, milli_cores) * pieces if rng.random() < 0.4 else -1)
        jobs["memory_mb"].append(pieces * rng.choice([0.0, 0.0, 500.0, 1000.5, 2500.0, 3750.0]))
    for name in ("cores", "cpu_milli", "memory_mb"):
        if rng.random() < 0.3:
            del jobs[name]
    return jobs


def _queues(rng: Random, jobs: Columns, groups: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Queues with or without common groups; some jobs have an unlisted queue or none."""
    names = [group["name"] for group in groups]
    queues = {f"q{i}": rng.sample(names, rng.randint(1, len(names))) for i in range(rng.randint(1, 3))}
    jobs["queue"] = [rng.choice([None, "unlisted", *queues, *queues, *queues]) for _ in jobs["job_id"]]
    return queues


# -- times ---------------------------------------------------------------------------------------


def _lengths(rng: Random, jobs: Columns, unit: float) -> None:
    guesses = rng.choice(["exact", "exact", "over", "under", "tiny", "mixed", "mixed"])
    longest = rng.choice([5.0, 20.0, 20.0, 60.0])
    jobs["runtime_s"], jobs["estimate_s"] = [], []
    for _ in jobs["job_id"]:
        run = rng.choice([0.0, 1.0, 2.0, 4.0, 6.0, 9.0, 12.0, 20.0, rng.uniform(0, longest)])
        if unit != 1.0:
            run *= rng.uniform(0.7, 1.3)
        run = snap(run, unit)
        guess = rng.choice(["exact", "over", "under", "tiny"]) if guesses == "mixed" else guesses
        scale = {"exact": 1.0, "over": rng.choice([1.5, 2.0, 4.0]), "under": rng.choice([0.5, 0.3])}
        jobs["runtime_s"].append(run)
        jobs["estimate_s"].append(snap(run * scale[guess], unit) if guess in scale else rng.choice([0.0, 1.5]))


def _limits(rng: Random, jobs: Columns) -> None:
    """In some cases: limits of some jobs, from their own random generator, so that nothing else changes."""
    if rng.random() < 0.3:
        jobs["limit_s"] = [
            run * rng.choice([0.0, 0.5, 1.0, 2.0]) if rng.random() < 0.7 else math.nan for run in jobs["runtime_s"]
        ]


def _submits(rng: Random, jobs: Columns, groups: list[dict[str, Any]], unit: float) -> float:
    """Submission times dense enough for queues to form; returns their span."""
    machine = sum(group["nodes"] * max(1, group["gpus"]) for group in groups)
    asked = [max(gpus * gpu_milli / 1000, 0.5) for gpus, gpu_milli in zip(jobs["gpus"], jobs["gpu_milli"], strict=True)]
    work = sum(size * run for size, run in zip(asked, jobs["runtime_s"], strict=True))
    span = snap(work / machine * rng.choice([0.15, 0.3, 0.5, 0.8]), unit) + 1.0
    origin = rng.choice([0.0, 0.0, 0.0, 100.0, -7.0, 1.6e9])
    bursts = [snap(rng.uniform(0, span), unit) for _ in range(rng.randint(2, 8))]
    crowds = rng.choice([0.0, 0.5, 0.9, 1.0])
    jobs["submit_s"] = [
        origin + (rng.choice(bursts) if rng.random() < crowds else snap(rng.uniform(0, span), unit))
        for _ in jobs["job_id"]
    ]
    if rng.random() < 0.6:
        jobs["submit_s"].sort()
    return span


def _wishes(rng: Random, jobs: Columns, groups: list[dict[str, Any]], span: float, unit: float) -> None:
    """Optional columns: each is present or not, and some jobs have no value."""
    submits = jobs["submit_s"]
    first = min(submits)
    together = first + snap(rng.uniform(0, span), unit)
    here = [group["gpu_type"] for group in groups if group["gpus"] > 0]
    if rng.random() < 0.35 and here:
        labels = [*here, f"{rng.choice(here)}|{ELSEWHERE}", "|".join(sorted(set(here)))]
        labels += [ELSEWHERE] if rng.random() < 0.2 else []
        labels.sort()
        jobs["gpu_types"] = [rng.choice([None, None, *labels]) for _ in submits]
    if rng.random() < 0.7:
        jobs["priority"] = [rng.choice([0.0, 0.0, 1.0, 2.0, 5.0, -1.0]) for _ in submits]
    if rng.random() < 0.25:
        jobs["begin_s"] = [
            rng.choice([-math.inf, -math.inf, together, at + snap(rng.uniform(-5, 20), unit)]) for at in submits
        ]
    if rng.random() < 0.3:
        ends = [at + run for at, run in zip(submits, jobs["runtime_s"], strict=True)]
        jobs["cancel_s"] = [
            rng.choice([math.inf, math.inf, at - 1.0, at, at + snap(rng.uniform(0, 30), unit), rng.choice(ends)])
            for at in submits
        ]
    if rng.random() < 0.4:
        jobs["gpu_utilization"] = [rng.choice([math.nan, 0.0, 0.2, 0.5, 0.9, 1.0, rng.random()]) for _ in submits]
    if rng.random() < 0.3:
        jobs["checkpoint_s"] = [rng.choice([math.nan, math.nan, 0.0, 1.0, 2.5, 0.1, math.inf]) for _ in submits]
    if rng.random() < 0.3:
        jobs["checkpoint_load_s"] = [rng.choice([math.nan, math.nan, 0.0, 1.0, 2.0, 0.3]) for _ in submits]
    jobs["drawn"] = [rng.random() for _ in submits]


# -- settings ------------------------------------------------------------------------------------


def _settings(rng: Random, jobs: Columns, unit: float, rule: str, moves: bool) -> dict[str, Any]:
    def some(*values: float) -> float:
        """One of these values; slightly more where times are not whole seconds."""
        value = rng.choice(values)
        return value if value == 0.0 or unit == 1.0 or rng.random() < 0.5 else value + rng.choice([0.25, 0.1])

    tick = some(0.0, 0.0, 1.0, 2.0, 3.0, 5.0, 10.0)
    settings: dict[str, Any] = {
        "at_limit": rng.choice(["extend", "extend", "kill"]),
        "placement": rng.choice(PLACEMENTS),
        "gpu_type_order": rng.choice(["any", "fastest", "fastest"] if moves else ["any", "fastest"]),
        "seed": rng.randrange(1000),
        "head_of_line_blocking": rng.random() < 0.5,
        "preemption": rng.random() < 0.75,
        "migration": moves,
        "min_run_before_preempt": some(0.0, 0.0, 0.0, 1.0, 2.0, 5.0),
        "grace": some(0.0, 0.0, 0.0, 1.0, 2.0, 4.0),
        "checkpoint_write": some(0.0, 0.0, 0.0, 1.0, 2.0),
        "checkpoint_load": some(0.0, 0.0, 0.0, 1.0, 2.0),
        "checkpoint": rng.choice([0.0, 0.0, 0.0, 1.0, 2.0, 0.75, 0.1, math.inf]),
        "round_interval": tick,
        "rounds": tick > 0.0 and rng.random() < 0.5,
    }
    if rng.random() < 0.5:
        odd = ((500, 0.9), (1000, rng.choice([0.5, 0.85])), (1, rng.choice([0.25, 0.3])))
        settings["interference"] = rng.choice([BUILT_IN_INTERFERENCE, BUILT_IN_INTERFERENCE, odd])
    if rule == "las" and settings["preemption"]:
        _let_work_be_done(rng, jobs, settings)
    return settings


def _let_work_be_done(rng: Random, jobs: Columns, settings: dict[str, Any]) -> None:
    """Jobs that preempt each other in turn must make progress each time, else the run never ends."""
    intervals = [0.0, 0.0, 1.0, 0.1]
    settings["checkpoint"] = rng.choice(intervals)
    if "checkpoint_s" in jobs:
        jobs["checkpoint_s"] = [c if math.isnan(c) else rng.choice(intervals) for c in jobs["checkpoint_s"]]
    nothing_lost = settings["checkpoint"] == 0.0 and "checkpoint_s" not in jobs
    if nothing_lost and settings["checkpoint_load"] == 0.0 and "checkpoint_load_s" not in jobs:
        return
    settings["min_run_before_preempt"] += 8.0


def _speeds(rng: Random, types: list[str], count: int, unit: float, moves: bool) -> dict[str, Any]:
    """Tables over types and jobs; speeds depend on the type, on the job or on both."""
    odd = [] if unit == 1.0 else [0.3, 1.7, rng.uniform(0.2, 3.0)]
    values = [0.5, 1.0, 1.0, 2.0, 4.0, *odd]
    tables: dict[str, Any] = {}
    style = rng.choice(["none", "none", "gpu_type_order", "jobs", "any"])
    if moves and rng.random() < 0.7:  # where all are equal none moves
        style = rng.choice(["gpu_type_order", "any"])
    if style == "gpu_type_order":
        tables["speed"] = [[rng.choice(values)] * count for _ in types]
    elif style == "jobs":
        row = [rng.choice(values) for _ in range(count)]
        tables["speed"] = [list(row) for _ in types]
    elif style == "any":
        tables["speed"] = [[rng.choice([0.0, *values, *values]) for _ in range(count)] for _ in types]
    if moves or rng.random() < 0.5:
        tables["factor"] = [[rng.choice([1.0, 0.5, 0.5, 0.25, 0.8]) for _ in range(count)] for _ in types]
    return tables
