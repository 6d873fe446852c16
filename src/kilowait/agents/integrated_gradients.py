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
from kilowait.agents.networks.heads import DuelingQ, Network
from kilowait.agents.rl.device import ensure_allowed_action, use_device
from kilowait.cluster import Cluster
from kilowait.envs.observation_spec import (
    FEATURES,
    GPU_CONSTANT_FEATURES,
    GPU_SUMMARY,
    GPU_VARYING_FEATURES,
    PREDICTION_FEATURES,
    REQUEST_FEATURES,
    SUMMARY,
)

Arrays = dict[str, npt.NDArray[Any]]

MAX_DECISIONS = 1024
"""Decisions recorded during the episodes."""
MAX_AVERAGED = 96
"""Decisions used for the averages; a quarter of them for graph networks, whose pairs are the most expensive."""
STEPS = 32
"""Points of the integral for each of these; a decision explained individually has four times as many."""
PAIRS = 2**18
"""Pairs of jobs in one forward pass, which bounds memory."""
ATTENTION_JOBS = 8
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


def explain_network(network: Network, vec: Any, first: npt.ArrayLike, cluster: Cluster) -> AgentExplanation | None:
    """Explanation of a network: its greedy decisions in the episodes of `vec` that begin at rows `first` of its log.

    `cluster` is the machine of `vec`. None if the network never had a choice between two jobs.
    """
    spec = network.spec
    training = network.training
    network.eval()
    try:
        with use_device(next(network.parameters()).device, 1):
            decisions = record_decisions(network, vec, first)
            if not len(decisions):
                return None
            averaged = min(MAX_AVERAGED // 4 if spec.graph else MAX_AVERAGED, len(decisions))
            rows = np.linspace(0, len(decisions) - 1, averaged).astype(np.int64)
            means = attribute(network, decisions, rows, steps=STEPS)
            slot = decisions.slot(spec.choices)
            every = np.arange(len(decisions))
            chosen = decisions.observation["jobs"][every, slot]
            differs = (chosen != _other_rows(decisions, spec)).any(axis=1)
            typical = typical_decisions(
                _selectable(decisions.observation["mask"], spec).sum(axis=1), decisions.margin, differs
            )
            individual = attribute(network, decisions, np.array([row for _, row in typical]), steps=4 * STEPS)
            cases = tuple(
                _case(network, decisions, kind, row, individual, index, cluster)
                for index, (kind, row) in enumerate(typical)
            )
    finally:
        network.train(training)
    differences = np.concatenate(
        [chosen[rows] - means.usual_job, decisions.observation["summary"][rows] - decisions.summary], axis=1
    ).astype(np.float64)
    names = [(name, "job") for name in spec.features] + [(name, "whole") for name in spec.summary]
    moved = np.concatenate([means.job, means.summary], axis=1)
    return AgentExplanation(
        score="values" if isinstance(network, DuelingQ) else "logits",
        choices=len(decisions),
        measured=len(rows),
        usual=feature_importances(names, differences, moved, _meanings(spec)),
        cases=cases,
    )


def record_decisions(
    network: Network, vec: Any, first: npt.ArrayLike, *, max_decisions: int = MAX_DECISIONS
) -> Decisions:
    """Run greedily and record up to `most` decisions between at least two jobs."""
    spec = network.spec
    device = next(network.parameters()).device
    # Seeded, as episodes that end are followed by randomly sampled ones.
    observation, _ = vec.reset(seed=0, options={"first": np.asarray(first, np.int64)})
    recorded: dict[str, list[Any]] = {}
    count, steps = 0, 0
    longest = max(64, 4 * max_decisions // vec.num_envs)  # where queues are short, decisions are rare
    while count < max_decisions and steps < longest:
        observation = {name: array.copy() for name, array in ensure_allowed_action(observation).items()}
        with torch.no_grad():
            scores = network.scores({name: torch.from_numpy(array).to(device) for name, array in observation.items()})
            best_scores, best_actions = scores.topk(min(2, scores.shape[1]), dim=1)
        action = best_actions[:, 0].cpu().numpy()
        several = (_selectable(observation["mask"], spec).sum(axis=1) > 1) & (action < spec.slots * spec.choices)
        row = {
            **observation,
            "action": best_actions[:, 0],
            "other": best_actions[:, -1],
            "margin": best_scores[:, 0] - best_scores[:, -1],
        }
        for name, array in row.items():
            values = array.cpu().numpy() if isinstance(array, Tensor) else array
            recorded.setdefault(name, []).append(values[several])
        count, steps = count + int(several.sum()), steps + 1
        observation = vec.step(action)[0]
    joined = {name: np.concatenate(chunks)[:max_decisions] for name, chunks in recorded.items()}
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
    slots_used = int(np.flatnonzero((jobs[rows] != 0).any(axis=(0, 2))).max(initial=0)) + 1
    chunk_size = max(1, PAIRS // (steps * slots_used * slots_used))
    chunks = [
        _attribute_chunk(network, decisions, rows[lo : lo + chunk_size], steps, spec)
        for lo in range(0, len(rows), chunk_size)
    ]
    return Attributions(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))


def _attribute_chunk(
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
    summary_end, summary_start = tensor(summary), tensor(np.broadcast_to(decisions.summary, summary.shape))
    job_at = (job_start[:, None] + path[:, None] * (job_end - job_start)[:, None]).requires_grad_()
    summary_at = (summary_start[:, None] + path[:, None] * (summary_end - summary_start)[:, None]).requires_grad_()
    queue = tensor(jobs)[:, None].repeat(1, points, 1, 1)
    index = tensor(slot)[:, None, None, None].expand(-1, points, 1, jobs.shape[2])
    queue = queue.scatter(2, index, job_at[:, :, None])
    inputs = {"jobs": queue.flatten(0, 1), "summary": summary_at.flatten(0, 1)}
    for name in set(decisions.observation) - set(inputs):
        inputs[name] = tensor(decisions.observation[name][rows]).repeat_interleave(points, dim=0)
    scores = network.scores(inputs).view(len(rows), points, -1)
    action_pair = tensor(np.stack([decisions.action[rows], decisions.other[rows]], axis=1))
    action_scores = scores.gather(2, action_pair[:, None].expand(-1, points, 2))
    margin = action_scores[..., 0] - action_scores[..., 1]
    job_slope, summary_slope = torch.autograd.grad(margin[:, 2:].sum(), (job_at, summary_at))

    def array(values: Tensor) -> Floats:
        return values.detach().cpu().numpy().astype(np.float64)

    return Attributions(
        array(job_slope[:, 2:].mean(1) * (job_end - job_start)),
        array(summary_slope[:, 2:].mean(1) * (summary_end - summary_start)),
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
    kind: str,
    row: int,
    attributions: Attributions,
    index: int,
    cluster: Cluster,
) -> ExplainedDecision:
    spec = network.spec
    jobs, summary = decisions.observation["jobs"][row], decisions.observation["summary"][row]
    slot, other = int(decisions.action[row]) // spec.choices, int(decisions.other[row])
    other_slot = other // spec.choices if other < spec.slots * spec.choices else None
    columns = [
        ("job", spec.features, jobs[slot], attributions.usual_job[index], attributions.job[index]),
        ("whole", spec.summary, summary, decisions.summary, attributions.summary[index]),
    ]
    return ExplainedDecision(
        which=kind,
        choices=int(_selectable(decisions.observation["mask"][row : row + 1], spec).sum()),
        margin=float(attributions.margin[index]),
        usual=float(attributions.usual[index]),
        chosen=_job_description(spec.features, jobs[slot], cluster),
        other={} if other_slot is None else _job_description(spec.features, jobs[other_slot], cluster),
        parts=tuple(
            FeatureContribution(name, of, float(value), float(usual), float(moved))
            for of, names, values, usuals, moves in columns
            for name, value, usual, moved in zip(names, values, usuals, moves, strict=True)
        ),
        attention=_attention(network, decisions, row, slot, other_slot, cluster),
    )


def _attention(
    network: Network, decisions: Decisions, row: int, slot: int, other_slot: int | None, cluster: Cluster
) -> Attention | None:
    """Attention weights of the last layer, mean over its heads; None for networks without attention."""
    attention = getattr(network.body, "attention", None)
    if attention is None:
        return None
    device = next(network.parameters()).device
    with torch.no_grad():
        observation = {
            name: torch.from_numpy(array[row : row + 1]).to(device) for name, array in decisions.observation.items()
        }
        layers = attention(observation)
    weights = layers[-1][0].mean(0).cpu().numpy().astype(np.float64)
    jobs = decisions.observation["jobs"][row]
    slots_used = int(np.flatnonzero((jobs != 0).any(axis=1)).max()) + 1
    extra = len(weights) - slots_used  # 1 where the summary is a token of its own
    jobs_shown = list(dict.fromkeys([slot, *([] if other_slot is None else [other_slot])]))
    most_attended = [
        int(job) for job in np.argsort(-weights[extra + slot, extra:], kind="stable") if job not in jobs_shown
    ]
    jobs_shown = [*jobs_shown, *most_attended][: min(ATTENTION_JOBS, slots_used)]
    tokens = [*range(extra), *(extra + job for job in jobs_shown)]
    inner = weights[np.ix_(tokens, tokens)]
    rest = np.clip(1.0 - inner.sum(axis=1, keepdims=True), 0.0, 1.0)
    return Attention(
        tuple(_job_description(network.spec.features, jobs[job], cluster) for job in jobs_shown),
        extra == 1,
        tuple(map(tuple, np.concatenate([inner, rest], axis=1).tolist())),
    )


def _job_description(features: tuple[str, ...], row: npt.NDArray[np.float32], cluster: Cluster) -> Mapping[str, float]:
    """A job in plain units (nodes or GPUs, seconds), from its features."""
    values = dict(zip(features, row.tolist(), strict=True))
    description: dict[str, float] = {}
    if "share" in values and "gpus" in values:
        description["gpus"] = round(values["share"] * sum(group.nodes * group.gpus for group in cluster.groups), 2)
    elif "share" in values:
        description["nodes"] = float(round(values["share"] * cluster.size))
    if "length" in values:
        description["estimate_s"] = round(3600.0 * float(np.exp(3.0 * values["length"])), 1)
    if "hour" in values and values["hour"] < 1:
        description["wait_s"] = round(3600.0 * values["hour"] / (1.0 - values["hour"]), 1)
    return description


def _meanings(spec: Any) -> dict[str, str]:
    """Meanings of the features, by name."""
    if "gpus" not in spec.features:
        return {**FEATURES, **PREDICTION_FEATURES, **REQUEST_FEATURES, **SUMMARY}
    meanings = {**GPU_SUMMARY, **GPU_CONSTANT_FEATURES, **GPU_VARYING_FEATURES}
    type_meanings = {"speed": "s / (1 + s), s: its speed on", "fits": "1 if it fits now on", "free": "free part of"}
    for name in (*spec.features, *spec.summary):
        kind, _, type_name = name.partition("_")
        if name not in meanings and kind in type_meanings:
            meanings[name] = f"{type_meanings[kind]} {type_name}"
    return meanings
