"""Differentially private training of the transformer, with user-level (epsilon, delta) privacy.

A fit uses the log through two mechanisms only: noisy counts over users, and clipped, noisy gradients of users (`train`,
which also splits and accounts epsilon, with Opacus). Everything else is public or derived: codes on fixed grids
(`public_codes`) and a calendar generated from the noisy counts (`calendar`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from kilowait.errors import InputError
from kilowait.synth.dp.calendar import (
    Count,
    calendar_counts,
    calendar_without_jobs,
    noisy_counts,
    sample_calendar,
    shares,
    smooth,
    without_job_content,
)
from kilowait.synth.dp.public_codes import public_schema
from kilowait.synth.dp.train import PrivacyBudget, PrivateDataset, noise_multiplier, private_train, spent_epsilon
from kilowait.synth.log_schema import Columns, Floats, Ints, LogSchema
from kilowait.synth.trainer import Training
from kilowait.synth.transformer.calendar import Calendar, by_user
from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork

__all__ = ["PrivateFit", "PublicLog", "private_fit"]


UNIT = "user: all jobs of any one user, added to the log or taken out of it"
PUBLIC = (
    "the name of the log, its columns and whether it has requests",
    "the machine: its size, its time zero, the names of its queues",
    "the first and the last week of the log",
    "settings and seed",
)
NOT_COVERED = (
    "other fits to the same log, including those that settings were chosen by: each spends its own epsilon",
    "one person with several user names, or users whose jobs depend on each other: each name is a separate user",
    "accounts, which are left out, and access to the log itself or to the state of an unfinished fit",
    "attacks on floating-point noise; noise is from NumPy's and torch's generators, not cryptographic",
)


@dataclass(frozen=True)
class PublicLog:
    """A log on the public grid."""

    rows: Columns
    codes: Ints
    """Public codes of its jobs, by user."""
    schema: LogSchema
    session_s: float
    """The longest time within a session."""
    bins: Mapping[int, int]
    """For columns with ordered bins, the number of leading codes that are bins."""


@dataclass(frozen=True)
class PrivateFit:
    """Result of a private fit."""

    calendar: Calendar
    network: TransformerNetwork
    schema: LogSchema
    statement: dict[str, Any]
    """Privacy guarantee, its unit, and what it does not cover; for the card."""


def private_fit(log: PublicLog, shape: NetworkShape, budget: PrivacyBudget, training: Training) -> PrivateFit:
    """Fit on a log on the public grid within the privacy budget.

    Args:
        log: the log on the grid.
        shape: of the network.
        budget: epsilon, delta and steps.
        training: seed of the initial weights, device and checkpoints. The noise is secret, so two fits with the same
            seed differ. A checkpoint contains the noise: it is as secret as the log.
    """
    if "user" not in log.rows:
        raise InputError("dp_epsilon protects users, and this log has no users; fit without dp_epsilon")
    public = public_schema(log.schema)
    noise = noise_multiplier(budget)
    state = None if training.checkpoints is None else training.checkpoints.read_if_exists()
    secret_seeds = (
        [secrets.randbits(64) for _ in range(2)] if state is None else [int(number) for number in state["secret"]]
    )
    rng = np.random.default_rng([*secret_seeds, 0])
    order, user = by_user(log.rows)
    counts = calendar_counts(log.rows, public.zero_s, log.session_s)
    log_calendar = calendar_without_jobs(log.rows, public.zero_s, log.session_s)
    for column, size in enumerate(shape.sizes):
        counted = ~log_calendar.start if column == 0 else np.ones(len(order), np.bool_)
        counts[f"column {column}"] = Count(log.codes[counted, column], user[counted], size)
    noisy, deviation = noisy_counts(counts, noise, rng)
    calendar = without_job_content(
        sample_calendar(noisy, deviation, public, log.session_s, rng), shape.copied, shape.sizes
    )
    dataset = PrivateDataset(
        without_job_content(log_calendar, shape.copied, shape.sizes),
        log.codes,
        user,
        shape,
        [
            _frequencies(noisy[f"column {column}"], deviation, log.bins.get(column, 0))
            for column in range(len(shape.sizes))
        ],
        max(1.0, float(noisy["sessions"].sum())),
    )
    network, history = private_train(dataset, budget, noise, secret_seeds, training)
    return PrivateFit(
        calendar,
        network,
        replace(public, jobs=len(calendar.first), numbered={"user": int(calendar.first.sum())}),
        _statement(budget, noise, spent_epsilon([(noise, 1.0, 1), *history], budget.delta)),
    )


def _statement(budget: PrivacyBudget, noise: float, epsilon: float) -> dict[str, Any]:
    """The privacy guarantee of a fit, for the card."""
    return {
        "epsilon": round(epsilon, 3),
        "delta": budget.delta,
        "unit": UNIT,
        "mechanisms": {
            "counts of users": {"noise": noise, "times": 1},
            "gradients of users": {"noise": noise, "times": budget.steps, "rate": budget.rate},
        },
        "accountant": f"Renyi, of Opacus {version('opacus')}",
        "taken as public": list(PUBLIC),
        "not covered": list(NOT_COVERED),
    }


def _frequencies(noisy: Floats, deviation: float, bins: int) -> Floats:
    """Frequencies of a column's codes: bins smoothed with their neighbors, other codes thresholded above the noise.

    Many bins with few users each are within the noise but large together, such as long run times: none is dropped.
    """
    if not bins:
        return shares(noisy, deviation)
    return shares(np.concatenate((smooth(noisy[:bins]), noisy[bins:])), 0.0)
