"""Saved predictors of `kilowait predict fit`, and detection of data leakage from their training log.

Predictions for jobs of the training log suffer from data leakage. Therefore the end of the training log is compared
with the submission times of the evaluated jobs, and a run that evaluates earlier jobs gets a note.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.predict.model_card import CARD_FILE, ModelCard, read_card

__all__ = ["SavedPredictor", "read_predictor_card", "saved_predictor"]


@dataclass(frozen=True)
class SavedPredictor:
    """A saved predictor, and the number of predicted jobs that were submitted during its training log."""

    folder: str
    """Path as given by the user."""
    card_sha256: str
    """Digest of card.json, which contains the sha256 of the other files."""
    target: str
    model: str
    data: str
    """Name of the log it was fitted on."""
    training_jobs: int | None
    """Number of jobs submitted before the end of that log; None: unknown, as the logs have no common dates."""
    first_evaluated: int = 0
    """Index of the first evaluated job, by submission."""

    def evaluated_from(self, first: int) -> SavedPredictor:
        """The same predictor, with evaluation from the job at index `first`, by submission."""
        return replace(self, first_evaluated=first)

    @property
    def note(self) -> str | None:
        """Warning about data leakage, if evaluated jobs may be in the training log; None: there is no leakage.

        >>> saved = SavedPredictor("runs/p", "ab", "runtime", "forest", "kth.swf", training_jobs=70)
        >>> saved.evaluated_from(70).note is None, saved.evaluated_from(60).note
        (True, 'the predictor runs/p was fitted on jobs of kth.swf up to a time by which 10 of the evaluated jobs had \
been submitted (data leakage); evaluate later jobs')
        """
        description = "predictor" if self.target == "runtime" else f"predictor of {self.target}"
        if self.training_jobs is None:
            return (
                f"the {description} {self.folder} was fitted on {self.data}, and without dates the "
                "order of those jobs and the evaluated ones is unknown: the results may contain data leakage"
            )
        overlapping = self.training_jobs - self.first_evaluated
        if overlapping <= 0:
            return None
        return (
            f"the {description} {self.folder} was fitted on jobs of {self.data} up to a time by which "
            f"{overlapping:,} of the evaluated jobs had been submitted (data leakage); evaluate later jobs"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a manifest: the predictor, and the number of evaluated jobs in its training span."""
        overlapping = None if self.training_jobs is None else max(self.training_jobs - self.first_evaluated, 0)
        fields = ("folder", "card_sha256", "target", "model", "data")
        return {**{name: getattr(self, name) for name in fields}, "leaked_test_jobs": overlapping, "note": self.note}


def read_predictor_card(folder: str, target: str) -> ModelCard:
    """Model card of a folder; InputError if there is none or it predicts another target."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(
            f"there is no folder {folder}; create a predictor with kilowait predict fit TRACE --target {target} --out "
            f"{folder}"
        )
    card = read_card(path)
    if card.target != target:
        raise InputError(
            f"the predictor {folder} predicts {card.target}, not {target}; fit one with kilowait predict fit "
            f"{card.data} --target {target}"
        )
    return card


def saved_predictor(folder: str, target: str, jobs: JobTable, trace: str) -> SavedPredictor:
    """Metadata of a saved predictor, with its data leakage for these jobs.

    Args:
        folder: as `kilowait predict fit` wrote it.
        target: what it must predict.
        jobs: jobs of the log, in log time (before rescaling).
        trace: the log as given by the user.
    """
    card = read_predictor_card(folder, target)
    sha256 = hashlib.sha256((Path(folder) / CARD_FILE).read_bytes()).hexdigest()
    end_s = _end_s(card, jobs, trace)
    overlapping = None if end_s is None else int(np.count_nonzero(jobs["submit_s"] <= end_s))
    return SavedPredictor(folder, sha256, target, card.model, card.data, overlapping)


def _end_s(card: ModelCard, jobs: JobTable, trace: str) -> float | None:
    """Last submission of the training log, in seconds of the time of these jobs; None: not comparable."""
    zero = jobs.meta.get("unix_start_s")
    if card.unix_zero_s is not None and zero is not None:
        return card.last_s + card.unix_zero_s - float(zero)
    return card.last_s if Path(trace).name == card.data else None
