"""A predictor that `kilowait predict fit` kept in a folder, and which of the jobs that are judged it has seen.

One that was fitted on a log knows the jobs of that log: what it says of them is no prediction. So the end of the span
it was fitted on is looked for among the jobs, and a run that judges earlier ones says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.predict.model_card import CARD, ModelCard, read_card

__all__ = ["SavedPredictor", "check_kept", "kept_predictor"]


@dataclass(frozen=True)
class SavedPredictor:
    """Who predicts, and how far its own jobs reach into those it predicts."""

    folder: str
    """As it was written."""
    card_sha256: str
    """Of card.json, which holds the sha256 of the other files."""
    target: str
    model: str
    data: str
    """Name of the log it was fitted on."""
    seen: int | None
    """How many of the jobs, by submission, were submitted before the end of that log; None: dates do not tell."""
    judged: int = 0
    """Place of the first job, by submission, that is judged."""

    def judged_from(self, first: int) -> SavedPredictor:
        """The same where only jobs from a place on, by submission, are judged."""
        return replace(self, judged=first)

    @property
    def note(self) -> str | None:
        """What people are told where the predictor may have seen what it predicts; None: it has not.

        >>> kept = SavedPredictor("runs/p", "ab", "runtime", "forest", "kth.swf", seen=70)
        >>> kept.judged_from(70).note is None, kept.judged_from(60).note
        (True, 'the predictor runs/p was fitted on jobs of kth.swf up to a time when 10 of the judged jobs had been \
submitted: of these it knows more than a prediction may; judge later ones')
        """
        what = "predictor" if self.target == "runtime" else f"predictor of {self.target}"
        if self.seen is None:
            return (
                f"the {what} {self.folder} was fitted on {self.data}, and dates do not tell whether before these jobs: "
                "if after, it knows more than a prediction may"
            )
        seen = self.seen - self.judged
        if seen <= 0:
            return None
        return (
            f"the {what} {self.folder} was fitted on jobs of {self.data} up to a time when {seen:,} of the judged jobs "
            "had been submitted: of these it knows more than a prediction may; judge later ones"
        )

    def to_dict(self) -> dict[str, Any]:
        """For a manifest: which predictor, and how many of the judged jobs had come when it was fitted."""
        seen = None if self.seen is None else max(self.seen - self.judged, 0)
        own = ("folder", "card_sha256", "target", "model", "data")
        return {**{name: getattr(self, name) for name in own}, "judged_jobs_seen": seen, "note": self.note}


def check_kept(folder: str, target: str) -> ModelCard:
    """The card of a folder; an InputError where there is none, or it predicts something else."""
    place = Path(folder)
    if not place.is_dir():
        raise InputError(
            f"there is no folder {folder}; make a predictor with kilowait predict fit TRACE --target {target} --out "
            f"{folder}"
        )
    card = read_card(place)
    if card.target != target:
        raise InputError(
            f"the predictor {folder} says {card.target}, and {target} is asked for; fit one with kilowait predict fit "
            f"{card.data} --target {target}"
        )
    return card


def kept_predictor(folder: str, target: str, jobs: JobTable, trace: str) -> SavedPredictor:
    """What is known of a predictor before it is asked of jobs.

    Args:
        folder: as `kilowait predict fit` wrote it.
        target: what it has to say.
        jobs: of the log, on its own clock: before any other load.
        trace: the log as people write it.
    """
    card = check_kept(folder, target)
    sha256 = hashlib.sha256((Path(folder) / CARD).read_bytes()).hexdigest()
    end_s = _end_s(card, jobs, trace)
    seen = None if end_s is None else int(np.count_nonzero(jobs["submit_s"] <= end_s))
    return SavedPredictor(folder, sha256, target, card.model, card.data, seen)


def _end_s(card: ModelCard, jobs: JobTable, trace: str) -> float | None:
    """The last submission the predictor knows of on the clock of these jobs, seconds; None: clocks cannot be told."""
    zero = jobs.meta.get("unix_start_s")
    if card.unix_zero_s is not None and zero is not None:
        return card.last_s + card.unix_zero_s - float(zero)
    return card.last_s if Path(trace).name == card.data else None
