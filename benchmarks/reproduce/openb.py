"""Alibaba's openb cluster (2023) and the table of FGD (Weng et al., ATC'23): GPU allocation under six placement scores.

1,213 nodes with 6,212 GPUs; 8,152 pods in random order, then pods drawn from them until 130 % of the GPUs are asked
for. As in the FGD simulator (hkust-adsl/kubernetes-scheduler-simulator), seeds 42 to 51:

- Go's generator shuffles the pods, draws the further ones, and after ten draws that its watches of the cluster make
  meanwhile, numbers the nodes; ties between nodes go by these numbers.
- The value at 130 % is the mean over all arrivals at which the demand rounds to 130 %.
"""

from __future__ import annotations

import csv
import gzip
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.go_random import GoRandom
from benchmarks.reproduce.gpu_packing import (
    RULES,
    Kinds,
    Nodes,
    Whole,
    used_after_each,
)
from benchmarks.reproduce.text_tables import table
from kilowait.errors import InputError

__all__ = ["PUBLISHED", "Pods", "Setting", "allocated", "results", "text"]

FOLDER = "gpu/alibaba_v2023"
WHENCE = "it is in cluster-trace-gpu-v2023 of alibaba/clusterdata"
SEEDS = range(42, 52)
LISTS = ("default", "gpushare40", "gpuspec33", "multigpu50")
PUBLISHED = {
    "Random": ("87.47", "86.0", "86.46", "90.28"),
    "DotProd": ("90.85", "89.6", "89.14", "94.85"),
    "GpuClustering": ("91.88", "90.0", "92.12", "95.81"),
    "GpuPacking": ("92.00", "90.0", "93.22", "96.18"),
    "BestFit": ("93.08", "91.7", "93.09", "95.74"),
    "FGD": ("95.39", "94.2", "94.55", "97.18"),
}
"""GPUs in use at 130 %, mean of ten seeds, by list; in per cent."""
BY_SEED = {
    ("default", "DotProd"): (90.54, 90.84, 91.03, 90.89, 90.74, 90.75, 91.28, 90.93, 90.76, 90.73),
    ("default", "BestFit"): (93.13, 93.25, 93.09, 93.14, 93.19, 93.04, 92.95, 93.21, 92.87, 92.89),
    ("default", "FGD"): (95.29, 95.32, 95.44, 95.48, 95.49, 95.27, 95.37, 95.47, 95.35, 95.43),
    ("gpushare40", "FGD"): (94.24, 94.14, 94.12, 94.07, 94.04, 94.13, 94.2, 94.16, 94.14, 94.24),
}
"""Published values by seed, from experiments/analysis/expected_results of that repository."""
OURS = "capacity"
HELD_OUT = "cpu250"
"""The pod list not used to choose our score; its published values are not printed."""
DEMAND = 130
DRAWS_OF_WATCHES = 10


class Pods(NamedTuple):
    """A list of pods: its kinds, and of each pod its kind and memory."""

    kinds: Kinds
    kind: Whole
    memory: Whole


class Setting(NamedTuple):
    """One seed: places in the list of pods in order of arrival, and nodes in the order of their numbers."""

    arrivals: Whole
    nodes: Nodes


def allocated(rule: str, pods: Pods, setting: Setting, seed: int = 0) -> float:
    """GPUs in use at 130 % of requested load, per cent."""
    kind = pods.kind[setting.arrivals]
    used = used_after_each(
        RULES.index(rule), kind, pods.memory[setting.arrivals], pods.kinds, setting.nodes, seed
    )
    gpus = float(setting.nodes.gpus.sum())
    asked = np.round(np.cumsum(_milli(pods)[kind]) / gpus / 10)
    return round(float(np.round(used / gpus / 10, 2)[asked == DEMAND].mean()), 2)


def results(
    sources: Sources,
    say: Callable[[str], None],
    lists: Sequence[str] = (*LISTS, HELD_OUT),
    rules: Sequence[str] = RULES,
) -> dict[str, Any]:
    """GPUs in use (per cent) by list, policy and seed; only FGD and ours on the held-out list."""
    begun = time.perf_counter()
    types, nodes = _nodes(sources.file(f"{FOLDER}/openb_node_list_gpu_node.csv.gz", WHENCE))
    found: dict[str, Any] = {}
    for name in lists:
        pods = _pods(sources.file(f"{FOLDER}/openb_pod_list_{name}.csv.gz", WHENCE), types)
        settings = {seed: _setting(pods, nodes, seed) for seed in SEEDS}
        found[name] = {}
        for rule in rules if name in LISTS else ("FGD", OURS):
            found[name][rule] = [allocated(rule, pods, settings[seed], seed) for seed in SEEDS]
            mean = float(np.mean(found[name][rule]))
            say(f"{name} {rule}: {mean:.2f} % ({time.perf_counter() - begun:.0f} s)")
    return found


def text(found: dict[str, Any]) -> str:
    """The published table with our values, then the comparison of our score with FGD."""
    heads = ["", "published", "here", "difference", "seeds equal"]
    parts = ["openb: GPUs in use in per cent when 130 % of them were asked for, mean of ten seeds"]
    for name in LISTS:
        rows = [
            _row(name, rule, published[LISTS.index(name)], found[name][rule])
            for rule, published in PUBLISHED.items()
        ]
        parts.append(f"{name}\n" + table(heads, rows))
    rows = [_beyond(name, by_rule["FGD"], by_rule[OURS]) for name, by_rule in found.items()]
    parts.append(
        f"kilowait's capacity score against FGD, both computed here; {HELD_OUT} was not used to choose it\n"
        + table(["", "FGD", "capacity", "difference", "seeds better"], rows)
    )
    return "\n\n".join(parts)


def _row(name: str, rule: str, published: str, here: list[float]) -> list[str]:
    theirs = BY_SEED.get((name, rule))
    equal = "-" if theirs is None else f"{sum(np.equal(theirs, here))} of {len(here)}"
    mean = float(np.mean(here))
    return [rule, published, f"{mean:.2f}", _signed(mean - float(published)), equal]


def _beyond(name: str, fgd: list[float], room: list[float]) -> list[str]:
    better = f"{sum(np.greater(room, fgd))} of {len(room)}"
    before, after = float(np.mean(fgd)), float(np.mean(room))
    return [name, f"{before:.2f}", f"{after:.2f}", _signed(after - before), better]


def _signed(difference: float) -> str:
    return f"{round(difference, 2) + 0.0:+.2f}"  # + 0.0: no minus before a zero


def _milli(pods: Pods) -> Whole:
    needs = pods.kinds.needs
    asked: Whole = needs[:, 1] * needs[:, 2]
    return asked


def _setting(pods: Pods, nodes: Nodes, seed: int) -> Setting:
    drawing = GoRandom(seed)
    drawing.word()
    arrivals = list(range(len(pods.kind)))
    drawing.shuffle(arrivals)
    whole, each = _milli(pods)[pods.kind].tolist(), pods.kinds.needs[pods.kind, 2].tolist()
    asked, limit = sum(whole), DEMAND * 10 * int(nodes.gpus.sum())
    while asked + each[pod := drawing.below(len(each))] <= limit:
        arrivals.append(pod)
        asked += whole[pod]
    for _ in range(DRAWS_OF_WATCHES):
        drawing.word()
    order = np.argsort(drawing.permutation(len(nodes.cpu)))
    return Setting(np.array(arrivals), Nodes(*(column[order] for column in nodes)))


def _nodes(path: Path) -> tuple[list[str], Nodes]:
    rows = sorted(_rows(path), key=lambda row: row["sn"])
    types = sorted({row["model"] for row in rows})
    columns = ([int(row[name]) for row in rows] for name in ("cpu_milli", "memory_mib", "gpu"))
    kind = [types.index(row["model"]) for row in rows]
    return types, Nodes(*(np.array(column) for column in (*columns, kind)))


def _pods(path: Path, types: list[str]) -> Pods:
    rows = sorted(_rows(path), key=lambda row: row["name"])
    keys = [
        (int(row["cpu_milli"]), int(row["gpu_milli"]), int(row["num_gpu"]), row.get("gpu_spec") or "")
        for row in rows
    ]
    counts = sorted(Counter(keys).items(), key=lambda item: (item[1], item[0]), reverse=True)
    number = {key: place for place, (key, _) in enumerate(counts)}
    many = np.array([count for _, count in counts], float)
    first = int(np.searchsorted(np.cumsum(many), 0.95 * len(rows))) + 1
    targets = (
        many[:first] / len(rows) / (many[:first].sum() / len(rows))
    )  # divided as there, for the last bit
    needs = [(cpu, gpus, gpu_milli, _allowed(spec, types)) for (cpu, gpu_milli, gpus, spec), _ in counts]
    return Pods(
        Kinds(np.array(needs), targets, many / len(rows)),
        np.array([number[key] for key in keys]),
        np.array([int(row["memory_mib"]) for row in rows]),
    )


def _allowed(spec: str, types: list[str]) -> int:
    named = {name for name in spec.split("|") if name}
    return sum(1 << place for place, name in enumerate(types) if not named or name in named)


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, EOFError, ValueError) as problem:
        raise InputError(
            f"{path} cannot be read as a compressed table ({problem}); download it again"
        ) from None
