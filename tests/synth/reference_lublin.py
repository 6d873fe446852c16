"""Reference implementation of the Lublin-Feitelson model, one job at a time, independent of kilowait."""

from __future__ import annotations

import math
import random

# Published for a machine of 128 nodes: sizes, run times, arrivals.
COMBINED = {
    "serial": 0.244, "power2": 0.576, "low": 0.8, "middle": 4.5, "high": 7.0, "lower": 0.86,
    "a1": 4.2, "b1": 0.94, "a2": 312.0, "b2": 0.03, "pa": -0.0054, "pb": 0.78,
    "aarr": 10.2303 * 1.0225, "barr": 0.4871, "anum": 8.1737, "bnum": 3.9631,
}  # fmt: skip
BATCH = {
    "serial": 0.2927, "power2": 0.6686, "low": 1.2, "middle": 5.0, "high": 7.0, "lower": 0.875,
    "a1": 6.57, "b1": 0.823, "a2": 639.1, "b2": 0.0156, "pa": -0.003, "pb": 0.6986,
    "aarr": 6.0415 * 1.0519, "barr": 0.8531, "anum": 6.1271, "bnum": 5.2740,
}  # fmt: skip
INTERACTIVE = {
    "serial": 0.1541, "power2": 0.625, "low": 1.0, "middle": 3.0, "high": 5.5, "lower": 0.705,
    "a1": 3.8351, "b1": 0.6605, "a2": 7.073, "b2": 0.6856, "pa": -0.0118, "pb": 0.9156,
    "aarr": 6.5510 * 0.9797, "barr": 0.6621, "anum": 8.9186, "bnum": 3.6680,
}  # fmt: skip


def size(kind: dict[str, float], rng: random.Random) -> int:
    type_uniform = rng.random()
    if type_uniform <= kind["serial"]:
        return 1
    if rng.random() <= kind["lower"]:
        log2_size = rng.uniform(kind["low"], kind["middle"])
    else:
        log2_size = rng.uniform(kind["middle"], kind["high"])
    if type_uniform <= kind["serial"] + kind["power2"]:
        log2_size = math.floor(log2_size + 0.5)
    return math.floor(2**log2_size + 0.5)


def runtime(kind: dict[str, float], nodes: int, rng: random.Random) -> int:
    short = min(1.0, max(0.0, kind["pa"] * nodes + kind["pb"]))
    while True:
        stage = "1" if rng.random() <= short else "2"
        logarithm = rng.gammavariate(kind["a" + stage], kind["b" + stage])
        if logarithm <= 12:
            return int(math.exp(logarithm))


def weights(kind: dict[str, float]) -> list[float]:
    """Weight of each half hour of the day, by numerical integration of the Gamma density; their mean is 1."""
    shape, scale = kind["anum"], kind["bnum"]
    areas = [0.0] * 48
    for bucket in range(11, 59):
        steps = 200
        area = 0.0
        for step in range(steps):
            x = bucket - 0.5 + (step + 0.5) / steps
            area += math.exp((shape - 1) * math.log(x) - x / scale - math.lgamma(shape) - shape * math.log(scale))
        areas[(bucket - 1) % 48] = area / steps
    mean = sum(areas) / 48
    return [weight / mean for weight in areas]


def arrivals(gaps_s: list[float], weight_of: list[float]) -> list[float]:
    """Arrival times: each gap is distributed over consecutive half hours in proportion to their weights."""
    times = []
    bucket, used = 0, 0.0  # half hour since the first midnight, and the weight used of it
    for gap in gaps_s:
        used += gap / 1800
        while used > weight_of[bucket % 48]:
            used -= weight_of[bucket % 48]
            bucket += 1
        times.append(1800 * (bucket + used / weight_of[bucket % 48]))
    return times


def gap(kind: dict[str, float], rng: random.Random) -> float:
    while True:
        logarithm = rng.gammavariate(kind["aarr"], kind["barr"])
        if logarithm <= 13:
            return math.exp(logarithm)
