"""Explanations of a network's decisions: integrated gradients of the margin, and attention weights.

Integrated gradients (Sundararajan, Taly and Yan, "Axiomatic attribution for deep networks", ICML 2017) integrate the
gradient of the margin along a straight line from a baseline to the observation; the contributions of the features add
up to the difference of the margins at both ends. The baseline is the mean of the other jobs that could be chosen, with
the mean summary: a row of zeros would be no job at all. The other jobs stay unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.explanations import (
    AgentExplanation,
    Attention,
    ExplainedDecision,
    FeatureContribution,
    Floats,
    feature_importances,
    typical_decisions,
)
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.rl.device import use_device, with_an_action
from kilowait.cluster import Cluster
from kilowait.envs.gpu import observation_spec as gpu
from kilowait.envs.observation_spec import FEATURES, PREDICTION_FEATURES, SUMMARY

__all__ = ["Attributions", "Decisions", "attribute", "explain_network", "record_decisions"]

Network = ActorCritic | DuelingQ
Arrays = dict[str, npt.NDArray[Any]]

MET = 1024
"""Decisions recorded during the episodes."""
MEASURED = 96
"""Decisions used for the averages; a quarter of them for graph networks, whose pairs are the most expensive."""
STEPS = 32
"""Points of the integral for each of these; a decision explained individually has four times as many."""
PAIRS = 2**18
"""Pairs of jobs in one forward pass, which bounds memory."""
SHOWN = 8
"""Jobs in a figure of attention weights."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions between at least two jobs, one a row: observation, action and margin."""

    observation: Arrays
    action: npt.NDArray[np.int64]
    other: npt.NDArray[np.int64]
    """The next best action."""
    margin: Floats
    summary: npt.NDArray[np.float32]
    """Mean of ``summary`` over these decisions."""

    def __len__(self) -> int:
        return len(self.action)

    def slot(self, choices: int) -> npt.NDArray[np.int64]:
        """Slot of the chosen job."""
        return self.action // choices


class Attributions(NamedTuple):
    """Contributions of some decisions, (decisions, features) and (decisions, summary), in units of the score."""

    job: Floats
    summary: Floats
    usual_job: Floats
    """Means of the other jobs."""
    margin: Floats
    """(choices,)"""
    usual: Floats
    """(decisions,) margins of the baseline; the contributions to a decision add up to margin minus usual."""


def explain_network(
    network: Network, vec: Any, first: npt.ArrayLike, cluster: Cluster
) -> AgentExplanation | None:
    """Explanation of a network: its greedy decisions in the episodes of `vec` that begin at rows `first` of its log.

    `cluster` is the machine of `vec`. None if the network never had a choice between two jobs.
    """
    spec = network.spec
    learning = network.training
    network.eval()
    try:
        with use_device(next(network.parameters()).device, 1):
            decisions = record_decisions(network, vec, first)
            if not len(decisions):
                return None
            most = min(MEASURED // 4 if spec.graph else MEASURED, len(decisions))
            rows = np.linspace(0, len(decisions) - 1, most).astype(np.int64)
            means = attribute(network, decisions, rows, steps=STEPS)
            slot = decisions.slot(spec.choices)
            every = np.arange(len(decisions))
            chosen = decisions.observation["jobs"][every, slot]
            differs = (chosen != _other_rows(decisions, spec)).any(axis=1)
            picked = typical_decisions(
                _selectable(decisions.observation["mask"], spec).sum(axis=1), decisions.margin, differs
            )
            individual = attribute(network, decisions, np.array([row for _, row in picked]), steps=4 * STEPS)
            cases = tuple(
                _case(network, decisions, which, row, individual, place, cluster)
                for place, (which, row) in enumerate(picked)
            )
    finally:
        network.train(learning)
    away = np.concatenate(
        [chosen[rows] - means.usual_job, decisions.observation["summary"][rows] - decisions.summary], axis=1
    ).astype(np.float64)
    names = [(name, "job") for name in spec.features] + [(name, "whole") for name in spec.summary]
    moved = np.concatenate([means.job, means.summary], axis=1)
    return AgentExplanation(
        score="values" if isinstance(network, DuelingQ) else "logits",
        choices=len(decisions),
        measured=len(rows),
        usual=feature_importances(names, away, moved, _meanings(spec)),
        cases=cases,
    )


def record_decisions(network: Network, vec: Any, first: npt.ArrayLike, *, most: int = MET) -> Decisions:
    """Run greedily and record up to `most` decisions between at least two jobs."""
    spec = network.spec
    device = next(network.parameters()).device
    # Seeded, as episodes that end are followed by randomly sampled ones.
    seen, _ = vec.reset(seed=0, options={"first": np.asarray(first, np.int64)})
    recorded: dict[str, list[Any]] = {}
    count, steps = 0, 0
    longest = max(64, 4 * most // vec.num_envs)  # where queues are short, decisions are rare
    while count < most and steps < longest:
        seen = {name: array.copy() for name, array in with_an_action(seen).items()}
        with torch.no_grad():
            scores = network.scores(
                {name: torch.from_numpy(array).to(device) for name, array in seen.items()}
            )
            best, places = scores.topk(min(2, scores.shape[1]), dim=1)
        action = places[:, 0].cpu().numpy()
        several = (_selectable(seen["mask"], spec).sum(axis=1) > 1) & (action < spec.slots * spec.choices)
        row = {**seen, "action": places[:, 0], "other": places[:, -1], "margin": best[:, 0] - best[:, -1]}
        for name, array in row.items():
            values = array.cpu().numpy() if isinstance(array, Tensor) else array
            recorded.setdefault(name, []).append(values[several])
        count, steps = count + int(several.sum()), steps + 1
        seen = vec.step(action)[0]
    joined = {name: np.concatenate(parts)[:most] for name, parts in recorded.items()}
    action, other, margin = (joined.pop(name) for name in ("action", "other", "margin"))
    summary = joined["summary"]
    mean = summary.mean(axis=0) if len(summary) else np.zeros(summary.shape[1], np.float32)
    return Decisions(joined, action, other, margin.astype(np.float64), mean)


def attribute(
    network: Network, decisions: Decisions, rows: npt.NDArray[np.int64], *, steps: int = STEPS
) -> Attributions:
    """Contributions to the decisions in `rows`; more steps bring their sum closer to the margins' difference."""
    spec = network.spec
    jobs = decisions.observation["jobs"]
    used = int(np.flatnonzero((jobs[rows] != 0).any(axis=(0, 2))).max(initial=0)) + 1
    piece = max(1, PAIRS // (steps * used * used))
    parts = [
        _piece(network, decisions, rows[lo : lo + piece], steps, spec) for lo in range(0, len(rows), piece)
    ]
    return Attributions(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _piece(
    network: Network, decisions: Decisions, rows: npt.NDArray[np.int64], steps: int, spec: Any
) -> Attributions:
    device = next(network.parameters()).device
    slot, every = decisions.slot(spec.choices)[rows], np.arange(len(rows))
    jobs, summary = decisions.observation["jobs"][rows], decisions.observation["summary"][rows]
    others = _selectable(decisions.observation["mask"][rows], spec)
    others[every, slot] = False
    usual_job = np.einsum("rkf,rk->rf", jobs, others) / others.sum(axis=1, keepdims=True)
    chosen = jobs[every, slot]

    def tensor(array: npt.NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=device)

    # Both ends, then the midpoints of equal steps between them.
    path = tensor(np.concatenate([[0.0, 1.0], (np.arange(steps) + 0.5) / steps]).astype(np.float32))
    points = len(path)
    job_end, job_start = tensor(chosen), tensor(usual_job.astype(np.float32))
    whole_end, whole_start = tensor(summary), tensor(np.broadcast_to(decisions.summary, summary.shape))
    job_at = (job_start[:, None] + path[:, None] * (job_end - job_start)[:, None]).requires_grad_()
    whole_at = (whole_start[:, None] + path[:, None] * (whole_end - whole_start)[:, None]).requires_grad_()
    queue = tensor(jobs)[:, None].repeat(1, points, 1, 1)
    place = tensor(slot)[:, None, None, None].expand(-1, points, 1, jobs.shape[2])
    queue = queue.scatter(2, place, job_at[:, :, None])
    inputs = {"jobs": queue.flatten(0, 1), "summary": whole_at.flatten(0, 1)}
    for name in set(decisions.observation) - set(inputs):
        inputs[name] = tensor(decisions.observation[name][rows]).repeat_interleave(points, dim=0)
    scores = network.scores(inputs).view(len(rows), points, -1)
    both = tensor(np.stack([decisions.action[rows], decisions.other[rows]], axis=1))
    taken = scores.gather(2, both[:, None].expand(-1, points, 2))
    margin = taken[..., 0] - taken[..., 1]
    job_slope, whole_slope = torch.autograd.grad(margin[:, 2:].sum(), (job_at, whole_at))

    def array(values: Tensor) -> Floats:
        return values.detach().cpu().numpy().astype(np.float64)

    return Attributions(
        array(job_slope[:, 2:].mean(1) * (job_end - job_start)),
        array(whole_slope[:, 2:].mean(1) * (whole_end - whole_start)),
        usual_job.astype(np.float64),
        array(margin[:, 1]),
        array(margin[:, 0]),
    )


def _selectable(mask: npt.NDArray[np.int8], spec: Any) -> npt.NDArray[np.bool_]:
    """(rows, slots) which jobs can be started, by any of their actions."""
    actions = mask[:, : spec.slots * spec.choices].reshape(len(mask), spec.slots, spec.choices)
    selectable: npt.NDArray[np.bool_] = (actions != 0).any(axis=2)
    return selectable


def _other_rows(decisions: Decisions, spec: Any) -> npt.NDArray[np.float32]:
    """(decisions, features) of the next best job; zeros where the next best action starts no job."""
    is_job = decisions.other < spec.slots * spec.choices
    slots = np.where(is_job, decisions.other // spec.choices, 0)
    rows = decisions.observation["jobs"][np.arange(len(decisions)), slots]
    return np.where(is_job[:, None], rows, 0).astype(np.float32)


def _case(
    network: Network,
    decisions: Decisions,
    which: str,
    row: int,
    shares: Attributions,
    place: int,
    cluster: Cluster,
) -> ExplainedDecision:
    spec = network.spec
    jobs, whole = decisions.observation["jobs"][row], decisions.observation["summary"][row]
    slot, other = int(decisions.action[row]) // spec.choices, int(decisions.other[row])
    beside = other // spec.choices if other < spec.slots * spec.choices else None
    columns = [
        ("job", spec.features, jobs[slot], shares.usual_job[place], shares.job[place]),
        ("whole", spec.summary, whole, decisions.summary, shares.summary[place]),
    ]
    return ExplainedDecision(
        which=which,
        choices=int(_selectable(decisions.observation["mask"][row : row + 1], spec).sum()),
        margin=float(shares.margin[place]),
        usual=float(shares.usual[place]),
        chosen=_facts(spec.features, jobs[slot], cluster),
        other={} if beside is None else _facts(spec.features, jobs[beside], cluster),
        parts=tuple(
            FeatureContribution(name, of, float(value), float(usual), float(moved))
            for of, names, values, usuals, moves in columns
            for name, value, usual, moved in zip(names, values, usuals, moves, strict=True)
        ),
        attention=_attention(network, decisions, row, slot, beside, cluster),
    )


def _attention(
    network: Network, decisions: Decisions, row: int, slot: int, beside: int | None, cluster: Cluster
) -> Attention | None:
    """Attention weights of the last layer, mean over its heads; None for networks without attention."""
    attention = getattr(network.body, "attention", None)
    if attention is None:
        return None
    device = next(network.parameters()).device
    with torch.no_grad():
        seen = {
            name: torch.from_numpy(array[row : row + 1]).to(device)
            for name, array in decisions.observation.items()
        }
        layers = attention(seen)
    weights = layers[-1][0].mean(0).cpu().numpy().astype(np.float64)
    jobs = decisions.observation["jobs"][row]
    used = int(np.flatnonzero((jobs != 0).any(axis=1)).max()) + 1
    extra = len(weights) - used  # 1 where the summary is a token of its own
    shown = list(dict.fromkeys([slot, *([] if beside is None else [beside])]))
    most = [int(job) for job in np.argsort(-weights[extra + slot, extra:], kind="stable") if job not in shown]
    shown = [*shown, *most][: min(SHOWN, used)]
    places = [*range(extra), *(extra + job for job in shown)]
    inner = weights[np.ix_(places, places)]
    rest = np.clip(1.0 - inner.sum(axis=1, keepdims=True), 0.0, 1.0)
    return Attention(
        tuple(_facts(network.spec.features, jobs[job], cluster) for job in shown),
        extra == 1,
        tuple(map(tuple, np.concatenate([inner, rest], axis=1).tolist())),
    )


def _facts(features: tuple[str, ...], row: npt.NDArray[np.float32], cluster: Cluster) -> Mapping[str, float]:
    """A job in plain units (nodes or GPUs, seconds), from its features."""
    seen = dict(zip(features, row.tolist(), strict=True))
    facts: dict[str, float] = {}
    if "share" in seen and "gpus" in seen:
        facts["gpus"] = round(seen["share"] * sum(group.nodes * group.gpus for group in cluster.groups), 2)
    elif "share" in seen:
        facts["nodes"] = float(round(seen["share"] * cluster.nodes))
    if "length" in seen:
        facts["estimate_s"] = round(3600.0 * float(np.exp(3.0 * seen["length"])), 1)
    if "hour" in seen and seen["hour"] < 1:
        facts["wait_s"] = round(3600.0 * seen["hour"] / (1.0 - seen["hour"]), 1)
    return facts


def _meanings(spec: Any) -> dict[str, str]:
    """Meanings of the features, by name."""
    if "gpus" not in spec.features:
        return {**FEATURES, **PREDICTION_FEATURES, **SUMMARY}
    meanings = {**gpu.SUMMARY, **gpu.FIXED, **gpu.MOVING}
    of_type = {"speed": "s / (1 + s), s: its speed on", "fits": "1 if it fits now on", "free": "free part of"}
    for name in (*spec.features, *spec.summary):
        kind, _, type_name = name.partition("_")
        if name not in meanings and kind in of_type:
            meanings[name] = f"{of_type[kind]} {type_name}"
    return meanings
