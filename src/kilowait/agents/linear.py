"""An agent of ten weights: a job's score is the weighted sum of ten numbers known of it; smaller goes first.

The numbers are scaled by fixed units (hours, the size of the machine), never by statistics of a log, so nothing
of the jobs it is judged on leaks into it and it can be carried to another machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log, log1p, sqrt
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.ports import Rule
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies.compiled import compiled_score

__all__ = ["FEATURES", "LinearAgent", "features", "load_agent", "saf_weights"]

Floats = npt.NDArray[np.float64]

FORMAT = "kilowait linear agent"
VERSION = 1

FEATURES: dict[str, str] = {
    "length": "ln(estimate / 1 h) / 3",
    "width": "ln(nodes) / ln(1 + nodes of the machine)",
    "length_squared": "length x length",
    "width_squared": "width x width",
    "length_width": "length x width",
    "share": "nodes / nodes of the machine",
    "length_share": "length x share",
    "root_days": "square root of estimate / 1 day",
    "age": "ln(1 + wait / 1 h) / 3",
    "patience": "ln(1 + wait / estimate) / 3",
}
"""What the agent looks at, in the order of its weights. wait: time since the job joined the queue."""

COUNT = len(FEATURES)


def _score(job: Any, now: float, parameters: Any) -> Any:
    """Compiled into the engine; parameters are the weights, then the machine's nodes."""
    nodes = float(job.nodes)
    wait_s = max(now - job.submit_s, 0.0)
    length = log(job.estimate_s / 3600.0) / 3.0
    width = log(nodes) / log(1.0 + parameters[10])
    share = nodes / parameters[10]
    total = parameters[0] * length + parameters[1] * width
    total += parameters[2] * length * length + parameters[3] * width * width + parameters[4] * length * width
    total += parameters[5] * share + parameters[6] * length * share
    total += parameters[7] * sqrt(job.estimate_s / 86400.0)
    total += parameters[8] * log1p(wait_s / 3600.0) / 3.0
    total += parameters[9] * log1p(wait_s / job.estimate_s) / 3.0
    return total


def features(
    estimate_s: npt.ArrayLike, nodes: npt.ArrayLike, wait_s: npt.ArrayLike, machine_nodes: int
) -> Floats:
    """The same numbers by numpy, one job a row, for people who want to look at them.

    >>> dict(zip(FEATURES, features(3600, 8, 0, 16)[0].round(2).tolist()))["share"]
    0.5
    """
    estimate = np.maximum(np.atleast_1d(np.asarray(estimate_s, np.float64)), 1.0)
    size, wait = np.asarray(nodes, np.float64), np.maximum(np.asarray(wait_s, np.float64), 0.0)
    length = np.log(estimate / 3600.0) / 3.0
    width = np.log(size) / np.log(1.0 + machine_nodes)
    share = size / machine_nodes
    columns = (
        length, width, length**2, width**2, length * width, share, length * share,
        np.sqrt(estimate / 86400.0), np.log1p(wait / 3600.0) / 3.0, np.log1p(wait / estimate) / 3.0,
    )  # fmt: skip
    return np.stack(np.broadcast_arrays(*columns), axis=1)


def saf_weights(machine_nodes: int) -> Floats:
    """Weights that put jobs into the order of smallest area first: ln(estimate) + ln(nodes), and no more.

    >>> saf_weights(255)[:3].round(2).tolist()
    [0.48, 0.88, 0.0]
    """
    weights = np.zeros(COUNT)
    weights[:2] = 3.0, np.log(1.0 + machine_nodes)
    return np.asarray(weights / np.sqrt((weights**2).sum()))


@dataclass(frozen=True, eq=False)
class LinearAgent:
    """Ten weights that order a queue.

    >>> agent = LinearAgent([1.0] + [0.0] * 9)  # the order of SJF
    >>> agent.rule.name, agent.explain()[0]
    ('agent', ('length', 1.0))
    """

    weights: Floats
    """One for each of FEATURES, without unit; only their proportions matter."""
    name: str = "agent"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from: seed, training trace, objective, settings."""

    def __post_init__(self) -> None:
        weights = np.array(self.weights, np.float64)
        if weights.shape != (COUNT,) or not np.isfinite(weights).all():
            raise InputError(
                f"the weights are {self.weights!r}; give {COUNT} finite numbers, one for each of "
                f"{', '.join(FEATURES)}"
            )
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    @property
    def rule(self) -> Rule:
        """The agent as the engine takes it: ``kilowait.simulate(jobs, cluster, agent.rule, "easy")``."""
        weights = self.weights

        def prepare(jobs: JobTable, cluster: Cluster) -> Floats:
            return np.append(weights, float(cluster.nodes))

        return Rule(self.name, compiled_score(_score), moving=True, prepare=prepare)

    def explain(self) -> list[tuple[str, float]]:
        """Features and weights, the weightiest first; a positive weight sends jobs back in the queue."""
        pairs = zip(FEATURES, self.weights.tolist(), strict=True)
        return sorted(pairs, key=lambda pair: -abs(pair[1]))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the agent to a JSON file that `load_agent` reads back to the bit."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "weights": dict(zip(FEATURES, self.weights.tolist(), strict=True)),
            "provenance": dict(self.provenance),
        }
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        except OSError as problem:
            raise InputError(f"cannot write the agent to {target}: {problem.strerror or problem}") from None
        return target


def load_agent(path: str | PathLike[str]) -> LinearAgent:
    """The agent a file holds. A file that is not one, or is damaged, is an InputError that says why."""
    source = Path(path)
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(
            f"cannot read the agent {source}: {problem.strerror or problem}; train one with kilowait train"
        ) from None
    except (ValueError, RecursionError):
        raise InputError(
            f"{source} holds no agent: it is not JSON, or is cut off; write it again with kilowait train"
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise InputError(
            f"{source} holds no agent: its format is {found!r}, not {FORMAT!r}; "
            "name the agent.json that kilowait train wrote"
        )
    if data.get("version") != VERSION:
        raise InputError(
            f"{source} is an agent of version {data.get('version')!r}; this kilowait reads version {VERSION}: "
            "train it again"
        )
    weights = data.get("weights")
    if not isinstance(weights, dict) or set(weights) != set(FEATURES):
        names = ", ".join(map(str, weights)) if isinstance(weights, dict) else repr(weights)
        raise InputError(f"{source} has weights for {names}; this agent needs {', '.join(FEATURES)}")
    values = [weights[name] for name in FEATURES]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise InputError(f"{source} has weights {values}; they must be numbers: train it again")
    name, provenance = data.get("name", "agent"), data.get("provenance", {})
    if not isinstance(name, str) or not isinstance(provenance, dict):
        raise InputError(f"{source} has the name {name!r} and the provenance {provenance!r}; train it again")
    try:
        return LinearAgent(np.array(values, np.float64), name, provenance)
    except (InputError, OverflowError) as problem:
        raise InputError(f"{source}: {problem}") from None
