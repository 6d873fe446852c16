"""Nodes, GPUs and placement of the GPU reference simulator; written from docs/gpu-engine.md alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.oracle.gpu_model import GpuCase, GpuReferenceJob, PiecePlace, type_of, types_of


@dataclass(eq=False)
class Node:
    """A node and its free resources, which a claim may make negative."""

    number: int
    type: int
    name: str
    """its gpu_type"""
    cpu: int
    memory: float
    """bytes"""
    gpus: list[int]
    """Thousandths free of each."""
    classes: Counter[int] = field(default_factory=Counter)
    """Number of pieces on the node by their number of GPUs; 0: GPU shares."""

    def holds(self, job: GpuReferenceJob) -> bool:
        """Whether a piece of the job fits."""
        if self.cpu < job.cpu or self.memory < job.memory:
            return False
        return sum(free >= job.gpu_milli for free in self.gpus) >= job.k

    def put(self, job: GpuReferenceJob, gpus: Iterable[int], sign: int) -> None:
        """Allocate (sign 1) or release (-1) the resources of a piece."""
        self.cpu -= sign * job.cpu
        self.memory -= sign * job.memory
        for gpu in gpus:
            self.gpus[gpu] -= sign * job.gpu_milli
        if job.k > 0:
            self.classes[class_of(job)] += sign


def class_of(job: GpuReferenceJob) -> int:
    """Size class of its pieces for the placement "gpu-clustering"."""
    return 0 if job.part else job.k


Target = tuple[int, int, int, str]
"""Job shape of "fgd" and "capacity": thousandths of cores, of a GPU, number of GPUs, label."""


class Machine:
    """All nodes; `placement` and `seed` select the node of a piece."""

    def __init__(self, case: GpuCase, placement: str, seed: int) -> None:
        self.placement, self.seed = placement, seed
        types, layout = types_of(case), case.layout
        if layout is None:
            layout = [g for g, group in enumerate(case.groups) for _ in range(group["nodes"])]
        self.nodes = []
        for number, g in enumerate(layout):
            group = case.groups[g]
            type_ = type_of(case, group)
            memory = round(group["memory_gb"] * 10**9) if group["memory_gb"] > 0 else math.inf
            gpus = [1000] * group["gpus"]
            self.nodes.append(Node(number, types.index(type_), type_[0], group["cores"] * 1000, memory, gpus))
        self.most_cpu = max(node.cpu for node in self.nodes)
        self.most_gpus = max(1000 * len(node.gpus) for node in self.nodes)
        self.targets: list[tuple[Target, float]] = []
        self.kinds: list[tuple[Target, float]] = []

    def expect(self, jobs: Sequence[GpuReferenceJob]) -> None:
        """Set the job shapes of "fgd" and "capacity" from the jobs that are not rejected."""
        counts = Counter((job.cpu, job.gpu_milli, job.k, job.label or "") for job in jobs)
        line = sorted(counts, key=lambda target: (counts[target], target), reverse=True)
        taken: list[Target] = []
        while 100 * sum(counts[target] for target in taken) < 95 * len(jobs):
            taken.append(line[len(taken)])
        total = sum(counts[target] for target in taken)
        self.targets = [(target, counts[target] / total) for target in taken]
        self.kinds = [(kind, counts[kind] / len(jobs)) for kind in line]

    def put(self, job: GpuReferenceJob, place: Iterable[PiecePlace], sign: int) -> None:
        """Allocate (sign 1) or release (-1) all pieces."""
        for piece in place:
            self.nodes[piece.node].put(job, piece.gpus, sign)

    def nodes_needed(self, job: GpuReferenceJob, type_: int) -> int:
        """Minimum number of nodes of a type for its GPUs."""
        return -(-job.gpus // max(len(node.gpus) for node in self.nodes if node.type == type_))

    # -- placing ---------------------------------------------------------------------------------

    def find(self, job: GpuReferenceJob) -> list[PiecePlace] | None:
        """The nodes and GPUs that the job would get now; None: it does not fit."""
        for tier in self.tiers(job):
            place: list[PiecePlace] = []
            while len(place) < job.pieces:
                piece = self.best_place(job, tier, place)
                if piece is None:
                    break
                self.put(job, [piece], 1)
                place.append(piece)
            self.put(job, place, -1)
            if len(place) == job.pieces:
                return place
        return None

    def tiers(self, job: GpuReferenceJob) -> list[set[int]]:
        """Sets of types that are tried one after another."""
        if job.pieces > 1:
            return [{t} for t in sorted(job.types, key=lambda t: (job.rank[t], t))]
        ranks = sorted({job.rank[t] for t in job.types})
        return [{t for t in job.types if job.rank[t] == rank} for rank in ranks]

    def best_place(self, job: GpuReferenceJob, tier: set[int], place: list[PiecePlace]) -> PiecePlace | None:
        """Node and GPUs of the next piece, with those of `place` allocated."""
        best: tuple[float, PiecePlace] | None = None
        for node in self.nodes:
            if node.type not in tier or not node.holds(job):
                continue
            if not job.spread and node.number in [piece.node for piece in place]:
                continue
            gpus = self.choose_gpus(job, node)
            score = self.score(job, node, gpus, place)
            if best is None or score > best[0]:
                best = score, PiecePlace(node.number, gpus)
        return None if best is None else best[1]

    def choose_gpus(self, job: GpuReferenceJob, node: Node) -> tuple[int, ...]:
        """The GPUs of the node that a piece gets."""
        room = [gpu for gpu, free in enumerate(node.gpus) if free >= job.gpu_milli]
        if not job.part:
            return tuple(room[: job.k])
        if self.placement == "worst":
            return (max(room, key=lambda gpu: (node.gpus[gpu], -gpu)),)
        if self.placement == "fgd":
            return (max(room, key=lambda gpu: (self.fragment_score(job, node, (gpu,)), -gpu)),)
        if self.placement == "capacity":
            return (max(room, key=lambda gpu: (self.room_score(job, node, (gpu,)), -gpu)),)
        return (min(room, key=lambda gpu: (node.gpus[gpu], gpu)),)

    # -- scores ----------------------------------------------------------------------------------

    def score(self, job: GpuReferenceJob, node: Node, gpus: tuple[int, ...], place: list[PiecePlace]) -> float:
        """Score of this node for the next piece, which would get these GPUs."""
        free, takes = sum(node.gpus), len(gpus) * job.gpu_milli
        match self.placement:
            case "first":
                return 0.0
            case "best":
                return -self.left_over(node.cpu - job.cpu, free - takes)
            case "worst":
                return self.left_over(node.cpu - job.cpu, free - takes)
            case "consolidate":
                if node.number in [piece.node for piece in place]:
                    return 3000000
                wholly = sum(left == 1000 for left in node.gpus)
                return 2000000 - wholly if wholly >= job.k * (job.pieces - len(place)) else wholly
            case "random":
                return drawn(self.seed, job.number, len(place), node.number)
            case "dot-product":
                match_ = (node.cpu / self.most_cpu) * (job.cpu / self.most_cpu)
                if self.most_gpus > 0:
                    match_ += (free / self.most_gpus) * (takes / self.most_gpus)
                return -match_ / 2
            case "gpu-packing":
                return packing_score(job, node, gpus)
            case "gpu-clustering":
                return self.clustering_score(job, node)
            case "fgd":
                return self.fragment_score(job, node, gpus)
            case "capacity":
                return self.room_score(job, node, gpus)
        raise ValueError(self.placement)

    def left_over(self, cpu: int, gpus: int) -> float:
        """Weighted share of free resources of a node."""
        if self.most_gpus == 0:
            return 0.5 * (cpu / self.most_cpu)
        return 0.5 * (cpu / self.most_cpu) + 0.5 * (gpus / self.most_gpus)

    def clustering_score(self, job: GpuReferenceJob, node: Node) -> int:
        if job.k == 0:
            return 0
        u = 25 * (self.most_gpus - sum(node.gpus)) // self.most_gpus
        classes = {size for size, pieces in node.classes.items() if pieces > 0}
        if class_of(job) in classes:
            return 75 + u if len(classes) == 1 else 50 + u
        return u if classes else 25 + u

    def fragment_score(self, job: GpuReferenceJob, node: Node, gpus: tuple[int, ...]) -> int:
        before = self.fragments(node)
        node.put(job, gpus, 1)
        after = self.fragments(node)
        node.put(job, gpus, -1)
        return int(100 / (1 + math.exp(-(before - after) / 1000)))

    def fragments(self, node: Node) -> float:
        """Free GPU thousandths of the node that typical jobs cannot use, on average."""
        total = 0.0
        for (cpu, gpu_milli, k, label), p in self.targets:
            room = sum(free >= gpu_milli for free in node.gpus)
            foreign = label != "" and node.name not in label.split("|")
            if k == 0 or foreign or cpu > node.cpu or room < k:
                total += p * sum(node.gpus)
            else:
                total += p * sum(free for free in node.gpus if free < gpu_milli)
        return total

    def room_score(self, job: GpuReferenceJob, node: Node, gpus: tuple[int, ...]) -> float:
        before = self.room(node)
        node.put(job, gpus, 1)
        after = self.room(node)
        node.put(job, gpus, -1)
        return after - before

    def room(self, node: Node) -> float:
        """Number of typical jobs that the node can still hold, on average over their shapes."""
        total = 0.0
        for kind, p in self.kinds:
            total += p * room_for(kind, node)
        return total


def room_for(kind: Target, node: Node) -> float:
    """Jobs of one shape that the node can still hold, as defined by "capacity"."""
    c, m, k, label = kind
    usable = [g for g in node.gpus if g >= m]
    foreign = label != "" and node.name not in label.split("|")
    if k == 0 or foreign or c > node.cpu or len(usable) < k:
        return 0.0
    n = sum(g // m for g in usable) // k
    if c > 0:
        n = min(n, node.cpu // c)
    return 0.8 * (sum(usable) / (k * m)) + 0.2 * n


def drawn(seed: int, job: int, piece: int, node: int) -> int:
    """Pseudo-random number that depends only on the arguments."""
    m = 2**31 - 1
    z = (seed * 7919 + job * 104729 + piece * 1299709 + node * 15485863 + 12345) % m
    for _ in range(3):
        z = z ^ (z >> 15)
        z = (z * 48271 + 11) % m
    return z


def packing_score(job: GpuReferenceJob, node: Node, gpus: tuple[int, ...]) -> int:
    """Score of gpu-packing: filled GPUs first, then nodes in use, then free nodes."""
    if job.k == 0:
        return 0
    if all(free == 1000 for free in node.gpus):
        return max(33 - len(node.gpus), len(node.gpus))
    wholly = sum(node.gpus[gpu] == 1000 for gpu in gpus)
    if wholly > 0:
        return max(50 - wholly, 33)
    free = node.gpus[gpus[0]]
    return max(100 - (free * 100 // 1000) // 10, 50)
