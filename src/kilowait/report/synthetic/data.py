"""What the folder on a synthetic workload tells, read back and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kilowait.evaluation.storage.folder import known
from kilowait.report.format import (
    capital,
    listed,
    share,
    short_name,
)
from kilowait.report.synthetic.labels import column_words, value_words
from kilowait.units import format_span

__all__ = ["SyntheticScoreData", "calendar_sentence", "change", "doubts", "tiles", "verdict"]

TOLD_APART = (
    (0.55, "They cannot be told apart job by job"),
    (0.65, "They can hardly be told apart job by job"),
    (0.8, "They can often be told apart job by job"),
    (math.inf, "They are easily told apart job by job"),
)
"""Up to which AUC which words hold."""
SHORT_WEEKS = 20
"""Shorter logs have weeks that differ so much that measures of privacy accuse too easily."""
WEIGHTY = 0.1
"""Part of what a classifier gains that is worth naming."""
SAME_JOBS = 0.45
"""A classifier below this has seen the same rows with the other name."""
SAME_HOURS = 0.5
"""Correlation of submissions, the rhythm of the week taken off, above which two logs have one calendar."""
MUCH = 0.5
"""So much more than by chance is copying, whatever the weeks."""


@dataclass(frozen=True)
class SyntheticScoreData:
    """A synthetic workload beside a real one."""

    name: str
    """Of the folder."""
    told: Mapping[str, Any]
    """As it stands in results.json under ``synthetic``."""

    @property
    def real(self) -> str:
        """Name of the real log."""
        return short_name(str(self.told["real"]))

    @property
    def made(self) -> str:
        """Name of the synthetic one."""
        return short_name(str(self.told["synthetic"]))

    @property
    def fidelity(self) -> Mapping[str, Any]:
        """Distances, pairs, classifier, arrivals and users."""
        found: Mapping[str, Any] = self.told["fidelity"]
        return found

    @property
    def curves(self) -> Mapping[str, Any]:
        """What is drawn."""
        found: Mapping[str, Any] = self.told["curves"]
        return found

    @property
    def leaks(self) -> dict[str, float] | None:
        """What is given away; None where there were no held-out jobs."""
        return None if self.told["leaks"] is None else known(self.told["leaks"])

    @property
    def outcomes(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """Rules, and what was measured of both under each."""
        return [
            (str(one["policy"]), [known(row) for row in one["measures"]]) for one in self.told["outcomes"]
        ]

    @property
    def waits(self) -> list[tuple[str, dict[str, Any]]]:
        """Rules, and waits under each."""
        return [(policy, row) for policy, rows in self.outcomes for row in rows if row["name"] == "wait_s"]

    @property
    def keeps_calendar(self) -> bool:
        """Whether jobs come in the very hours of the real log."""
        return self.told["calendar"] is not None and float(self.told["calendar"]) > SAME_HOURS


def verdict(found: SyntheticScoreData) -> list[str]:
    """The answers people ask for, in sentences."""
    real, made = found.told["jobs"]
    spans, loads = found.told["spans_s"], found.told["loads"]
    return [
        f"{made:,} generated jobs over {format_span(spans[1])}, offered load {loads[1]:.2f}, beside {real:,} real jobs "
        f"over {format_span(spans[0])}, offered load {loads[0]:.2f}.",
        _told_apart(found),
        _columns(found),
        _waits(found),
        _given_away(found),
        *([calendar_sentence(found)] if found.keeps_calendar else []),
    ]


def _told_apart(found: SyntheticScoreData) -> str:
    auc, history = float(found.fidelity["auc"]), float(found.fidelity["auc_history"])
    if auc < SAME_JOBS:
        return (
            f"A classifier that is to tell them apart errs more often than a coin would (AUC {auc:.3f}): that happens "
            "where the same jobs are in both."
        )
    words = next(words for limit, words in TOLD_APART if auc < limit)
    most = [(column_words(name), float(part)) for name, part in found.fidelity["looked_at"].items()]
    weighty = [f"{name} ({share(part)})" for name, part in most[:2] if part > WEIGHTY]
    return (
        f"{words}: a classifier takes the right one of a real and a generated job for the real one in {share(auc)} of "
        f"such pairs (AUC {auc:.3f}), where a coin would in 50 %, and in {share(history)} if it also sees what the "
        "user did before."
        + (f" It looks most at {listed(weighty)}." if weighty and auc > TOLD_APART[0][0] else "")
    )


def _columns(found: SyntheticScoreData) -> str:
    worst, pair = found.told["worst_ks"], found.told["worst_pair"]
    name, ks = str(worst["column"]), float(worst["ks"])
    if ks == 0:
        return "Every column has exactly the values of the real log."
    widest = float(found.curves["columns"][name]["widest"])
    at = f"before {widest + 1:.0f}:00" if name == "hour" else f"up to {value_words(name, widest)}"
    return (
        f"The column that is worst is {column_words(name)} (KS {ks:.3f}): the shares of jobs {at} differ by "
        f"{100 * ks:.1f} points. Of the pairs of columns it is {column_words(str(pair['one']))} and "
        f"{column_words(str(pair['other']))}, which correlate by {_signed(pair['made'])} instead of "
        f"{_signed(pair['real'])}."
    )


def _waits(found: SyntheticScoreData) -> str:
    if not found.waits:
        return "No job of one of the two could be started, so waits cannot be compared."
    near, far = (
        [f"{policy} ({change(row['ratio'])})" for policy, row in found.waits if row["near"] is wanted]
        for wanted in (True, False)
    )
    said = "Simulated on the same machine with EASY backfilling, "
    if not far:
        return f"{said}mean waits are within 15 % of the real ones: {listed(near)}."
    if not near:
        return f"{said}mean waits are not within 15 % of the real ones: {listed(far)}."
    return f"{said}mean waits are within 15 % of the real ones under {listed(near)}, but not under {listed(far)}."


def _given_away(found: SyntheticScoreData) -> str:
    gave = found.leaks
    if gave is None:
        return "Whether jobs were copied cannot be told: there were no held-out jobs, which the generator has not seen."
    copies = (
        f"{share(gave['copies'])} of the generated jobs equal a seen one in all but the time, as do "
        f"{share(gave['copies_of_held_out'])} of the held-out jobs, by chance"
    )
    pairs = (
        f"together with their user’s job before {share(gave['copied_pairs'])} do, and "
        f"{share(gave['copied_pairs_of_held_out'])}"
    )
    guess = (
        "whoever guesses from the generated jobs which real ones were seen finds "
        f"{100 * gave['membership_advantage']:.1f} points more of them than of others"
    )
    which: Sequence[str] = found.told["given_away"]
    if not which:
        return f"No more is given away than weeks of a log differ by: {copies}; {guess}."
    excess = {name: gave[name] - gave[f"{name}_of_held_out"] for name in ("copies", "copied_pairs")}
    if "copied_pairs" in which or excess["copies"] > MUCH:
        return f"Real jobs were copied: {copies}; {pairs}; {guess}."
    nearer = (
        f"{share(gave['nearer_to_seen'])} of the generated jobs are nearer to a seen than to a held-out job"
    )
    return (
        f"Something is given away, though no runs of jobs were copied: {copies}; {nearer} (50 % if nothing were "
        f"learned by heart); {guess}."
    )


def calendar_sentence(found: SyntheticScoreData) -> str:
    """Whether jobs come when the real ones did."""
    same = found.told["calendar"]
    if same is None:
        return (
            "Whether the calendar is the real log’s cannot be told: the two have less than a week in common."
        )
    measured = f"correlation {_signed(same)}, the rhythm of the week taken off"
    if not found.keeps_calendar:
        return (
            f"The calendar is its own: submissions do not rise and fall in the hours in which they do in the real log "
            f"({measured})."
        )
    return (
        "The calendar is the real log’s: submissions rise and fall in the very hours in which they do there "
        f"({measured}; a calendar of its own would have about 0). Who knows when somebody worked may find that here, "
        "whatever the jobs are."
    )


def tiles(found: SyntheticScoreData) -> list[tuple[str, str, str]]:
    """Key numbers: value, what it is, how to read it."""
    alike, gave = found.fidelity, found.leaks
    worst = found.told["worst_ks"]
    made = [
        (f"{alike['auc']:.3f}", "classifier’s AUC", "0.5: cannot be told apart; 1: always"),
        (f"{worst['ks']:.3f}", "worst column’s KS", f"{column_words(str(worst['column']))}; 0: the same"),
    ]
    made += [
        (change(row["ratio"]), "mean wait", f"{policy}, against the real jobs") for policy, row in found.waits
    ]
    if gave is not None:
        advantage = f"{100 * gave['membership_advantage']:.1f} points"
        made.append((advantage, "membership advantage", "0: nobody can tell who was seen; 100: everybody"))
    return made


def doubts(found: SyntheticScoreData) -> list[str]:
    """What to keep in mind."""
    kept = []
    who = {
        "both": "neither workload says",
        "real": "the real log does not say",
        "synthetic": "the synthetic one does not say",
    }
    lacking: Mapping[str, str] = found.told["lacking"]
    for side, words in who.items():
        names = [column_words(name) for name, lacks in lacking.items() if lacks == side]
        if names:
            kept.append(f"Not compared, because {words} it: {listed(names)}.")
    if not found.fidelity["users"]:
        kept.append(
            "Without users there are no figures of users, and no k-anonymity; all jobs count as one user’s."
        )
    if found.leaks is None:
        kept.append(
            "For measures of privacy, score with --held-out: real jobs of the same machine, such as every second week "
            "of the log, that the generator was not fitted to."
        )
    else:
        kept.append(
            "Measures of privacy are measures, not promises: an attacker who knows more may find more."
        )
        weeks = float(found.told["spans_s"][0]) / (7 * 86400)
        if weeks < SHORT_WEEKS:
            kept.append(
                f"The real log has {weeks:.0f} weeks. Weeks of so short a log differ by more than these measures allow "
                "for, so that jobs nobody copied may be taken for copies."
            )
    if found.told["jobs"][0] < 1000 or found.told["jobs"][1] < 1000:
        kept.append("There are fewer than 1,000 jobs on one side: small differences are chance.")
    return [capital(note) for note in kept]


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def change(ratio: float) -> str:
    """A ratio of means as a step from 1.

    >>> change(1.148), change(0.26), change(float("nan"))
    ('+14.8 %', '−74.0 %', 'no ratio')
    """
    if not math.isfinite(ratio):
        return "no ratio"
    return f"{'−' if ratio < 1 else '+'}{100 * abs(ratio - 1):.1f} %"
