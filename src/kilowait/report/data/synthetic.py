"""Data of a synthetic-workload score: key numbers, verdict and caveats as sentences, names of columns, and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kilowait.evaluation.storage.folder import null_to_nan
from kilowait.report.data.synthetic_columns import SIMULATION_METRICS, column_label, statistic_label, value_text
from kilowait.report.format import ReportTable, capital, listed, number, share, short_name
from kilowait.units import format_duration

KINDS = {"pearson": "logarithms (Pearson)", "spearman": "ranks (Spearman)", "cramer": "categories (Cramér’s V)"}
"""Display names of the kinds of correlation."""
SHOWN_PAIRS = 8

AUC_SENTENCES = (
    (0.55, "Single jobs cannot be distinguished"),
    (0.65, "Single jobs can hardly be distinguished"),
    (0.8, "Single jobs can often be distinguished"),
    (math.inf, "Single jobs are easily distinguished"),
)
"""Upper limit of the AUC and the sentence for it."""
SHORT_WEEKS = 20
"""In logs with fewer weeks, differences between weeks can look like privacy leaks."""
IMPORTANT = 0.1
"""The minimum feature importance to be mentioned."""
SAME_JOBS_AUC = 0.45
"""An AUC below this means that both workloads contain the same rows."""
SAME_CALENDAR_CORRELATION = 0.5
"""Correlation of deseasonalized submissions above which two logs share the same calendar."""
COPYING_EXCESS = 0.5
"""An excess of copies over chance above this counts as copying, regardless of the length of the log."""


@dataclass(frozen=True)
class SyntheticScoreData:
    """The comparison of a synthetic workload with a real one."""

    name: str
    """The name of the folder."""
    results: Mapping[str, Any]
    """The entry ``synthetic`` of results.json."""

    @property
    def real(self) -> str:
        """Name of the real log."""
        return short_name(str(self.results["real"]))

    @property
    def synthetic(self) -> str:
        """Name of the synthetic workload."""
        return short_name(str(self.results["synthetic"]))

    @property
    def fidelity(self) -> Mapping[str, Any]:
        """Similarity results: distances, pairs of columns, classifier, arrivals and users."""
        fidelity: Mapping[str, Any] = self.results["fidelity"]
        return fidelity

    @property
    def curves(self) -> Mapping[str, Any]:
        """The curves for figures."""
        curves: Mapping[str, Any] = self.results["curves"]
        return curves

    @property
    def privacy(self) -> dict[str, float] | None:
        """Privacy metrics; None where there were no held-out jobs."""
        return None if self.results["privacy"] is None else null_to_nan(self.results["privacy"])

    @property
    def outcomes(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """Scheduling policies, and the simulation metrics of both workloads under each."""
        return [
            (str(result["policy"]), [null_to_nan(row) for row in result["measures"]])
            for result in self.results["outcomes"]
        ]

    @property
    def waits(self) -> list[tuple[str, dict[str, Any]]]:
        """Scheduling policies, and the comparison of waits under each."""
        return [(policy, row) for policy, rows in self.outcomes for row in rows if row["name"] == "wait_s"]

    @property
    def same_calendar(self) -> bool:
        """Whether the synthetic jobs are submitted at the same times as in the real log."""
        return self.results["calendar"] is not None and float(self.results["calendar"]) > SAME_CALENDAR_CORRELATION


def summary(score: SyntheticScoreData) -> list[str]:
    """The main results in sentences."""
    real, synthetic = score.results["jobs"]
    spans, loads = score.results["spans_s"], score.results["loads"]
    return [
        f"{synthetic:,} generated jobs over {format_duration(spans[1])}, offered load {loads[1]:.2f}, against {real:,} "
        f"real jobs over {format_duration(spans[0])}, offered load {loads[0]:.2f}.",
        _classifier(score),
        _columns(score),
        _waits(score),
        _privacy(score),
        *([calendar_sentence(score)] if score.same_calendar else []),
    ]


def _classifier(score: SyntheticScoreData) -> str:
    auc, history = float(score.fidelity["auc"]), float(score.fidelity["auc_history"])
    if auc < SAME_JOBS_AUC:
        return (
            f"A classifier that separates the two workloads is worse than chance (AUC {auc:.3f}): this happens when "
            "both contain the same jobs."
        )
    words = next(words for limit, words in AUC_SENTENCES if auc < limit)
    features = [(column_label(name), float(part)) for name, part in score.fidelity["feature_importance"].items()]
    important = [f"{name} ({share(part)})" for name, part in features[:2] if part > IMPORTANT]
    return (
        f"{words}: given a real and a generated job, a classifier identifies the real one in {share(auc)} of the pairs "
        f"(AUC {auc:.3f}; chance: 50 %), and in {share(history)} if it also uses the user’s history."
        + (f" The most important features are {listed(important)}." if important and auc > AUC_SENTENCES[0][0] else "")
    )


def _columns(score: SyntheticScoreData) -> str:
    worst, pair = score.results["worst_ks"], score.results["worst_pair"]
    name, ks = str(worst["column"]), float(worst["ks"])
    if ks == 0:
        return "Every column has exactly the values of the real log."
    widest = float(score.curves["columns"][name]["widest"])
    value_range = f"before {widest + 1:.0f}:00" if name == "hour" else f"up to {value_text(name, widest)}"
    return (
        f"The least similar column is {column_label(name)} (KS {ks:.3f}): the shares of jobs {value_range} differ by "
        f"{100 * ks:.1f} percentage points. The least similar pair of columns is {column_label(str(pair['one']))} and "
        f"{column_label(str(pair['other']))} with a correlation of {_signed(pair['synthetic'])} instead of "
        f"{_signed(pair['real'])}."
    )


def _waits(score: SyntheticScoreData) -> str:
    if not score.waits:
        return "No job of one of the two workloads could be started, so waits cannot be compared."
    near, far = (
        [f"{policy} ({change(row['ratio'])})" for policy, row in score.waits if row["near"] is wanted]
        for wanted in (True, False)
    )
    start = "In simulations of the same cluster with EASY backfilling, "
    if not far:
        return f"{start}mean waits are within 15 % of the real ones: {listed(near)}."
    if not near:
        return f"{start}mean waits are not within 15 % of the real ones: {listed(far)}."
    return f"{start}mean waits are within 15 % of the real ones under {listed(near)}, but not under {listed(far)}."


def _privacy(score: SyntheticScoreData) -> str:
    leaks = score.privacy
    if leaks is None:
        return (
            "Whether jobs were copied is unknown: there are no held-out jobs, that is, real jobs not used for training."
        )
    copies = (
        f"{share(leaks['copies'])} of the generated jobs equal a training job in all but the time, as do "
        f"{share(leaks['copies_of_held_out'])} of the held-out jobs by chance"
    )
    pairs = (
        f"together with their user’s previous job the shares are {share(leaks['copied_pairs'])} and "
        f"{share(leaks['copied_pairs_of_held_out'])}"
    )
    attack = (
        "a membership-inference attack from the generated jobs finds "
        f"{100 * leaks['membership_advantage']:.1f} percentage points more of the training jobs than of other jobs"
    )
    exceeded: Sequence[str] = score.results["exceeded_limits"]
    if not exceeded:
        return f"No privacy leak beyond the differences between weeks of a log: {copies}; {attack}."
    excess = {name: leaks[name] - leaks[f"{name}_of_held_out"] for name in ("copies", "copied_pairs")}
    if "copied_pairs" in exceeded or excess["copies"] > COPYING_EXCESS:
        return f"Real jobs were copied: {copies}; {pairs}; {attack}."
    nearer = (
        f"{share(leaks['nearer_to_seen'])} of the generated jobs are nearer to a training job than to a held-out job"
    )
    return (
        f"Some information leaks, but no sequences of jobs were copied: {copies}; {nearer} (50 % without "
        f"memorization); {attack}."
    )


def calendar_sentence(score: SyntheticScoreData) -> str:
    """Whether the generated jobs are submitted when the real ones were."""
    correlation = score.results["calendar"]
    if correlation is None:
        return "Whether the calendar is that of the real log is unknown: the two overlap by less than a week."
    measured = f"correlation {_signed(correlation)} without the weekly cycle"
    if not score.same_calendar:
        return (
            f"The calendar is not that of the real log: busy and quiet hours differ from those of the real log "
            f"({measured})."
        )
    return (
        "The calendar is that of the real log: busy and quiet hours are the same "
        f"({measured}; an independent calendar would have about 0). Knowledge of when a person worked can therefore be "
        "matched with this workload, whatever its jobs are."
    )


def key_numbers(score: SyntheticScoreData) -> list[tuple[str, str, str]]:
    """Key numbers: value, label, explanation."""
    fidelity, leaks = score.fidelity, score.privacy
    worst = score.results["worst_ks"]
    numbers = [
        (f"{fidelity['auc']:.3f}", "classifier’s AUC", "0.5: indistinguishable; 1: always distinguished"),
        (f"{worst['ks']:.3f}", "largest KS of a column", f"{column_label(str(worst['column']))}; 0: identical"),
    ]
    numbers += [
        (change(row["ratio"]), "mean wait", f"{policy}, relative to the real jobs") for policy, row in score.waits
    ]
    if leaks is not None:
        advantage = f"{100 * leaks['membership_advantage']:.1f} percentage points"
        numbers.append((advantage, "membership advantage", "0: training jobs cannot be identified; 100: all can"))
    return numbers


def caveats(score: SyntheticScoreData) -> list[str]:
    """The limitations of the comparison."""
    notes = []
    reasons = {
        "both": "neither workload contains",
        "real": "the real log does not contain",
        "synthetic": "the synthetic workload does not contain",
    }
    missing: Mapping[str, str] = score.results["missing_columns"]
    for side, words in reasons.items():
        names = [column_label(name) for name, side_without in missing.items() if side_without == side]
        if names:
            notes.append(f"Not compared, because {words} them: {listed(names)}.")
    if not score.fidelity["users"]:
        notes.append(
            "Without users there are no user statistics and no k-anonymity; all jobs count as those of one user."
        )
    if score.privacy is None:
        notes.append(
            "For privacy metrics, score with --held-out-log: real jobs of the same cluster, such as every second week "
            "of the log, that the generator was not fitted to."
        )
    else:
        notes.append("Privacy metrics are no guarantees: an attacker with more knowledge may find more.")
        weeks = float(score.results["spans_s"][0]) / (7 * 86400)
        if weeks < SHORT_WEEKS:
            notes.append(
                f"The real log has {weeks:.0f} weeks. Differences between the weeks of so short a log exceed the "
                "tolerance of the privacy metrics, so that jobs may be taken for copies although none were copied."
            )
    if score.results["jobs"][0] < 1000 or score.results["jobs"][1] < 1000:
        notes.append("One of the workloads has fewer than 1,000 jobs: small differences are due to chance.")
    return [capital(note) for note in notes]


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def change(ratio: float) -> str:
    """A ratio of means as a relative change.

    >>> change(1.148), change(0.26), change(float("nan"))
    ('+14.8 %', '−74.0 %', 'no ratio')
    """
    if not math.isfinite(ratio):
        return "no ratio"
    return f"{'−' if ratio < 1 else '+'}{100 * abs(ratio - 1):.1f} %"


# -- tables ------------------------------------------------------------------------------------------


def distance_table(caption: str, head: str, rows: Sequence[Mapping[str, Any]]) -> ReportTable:
    """Kolmogorov-Smirnov and Wasserstein distances, one row for each quantity."""
    cells = [
        [
            capital(column_label(row["column"])),
            f"{row['ks']:.3f}",
            value_text(row["column"], float(row["wasserstein"])),
            f"{row['wasserstein_share']:.3f}",
        ]
        for row in rows
    ]
    return ReportTable(caption, [head, "KS", "Wasserstein", "Wasserstein / SD"], cells)


def pair_table(score: SyntheticScoreData) -> ReportTable:
    """The correlations with the largest differences."""
    pairs: Sequence[Mapping[str, Any]] = score.fidelity["pairs"]
    largest = sorted(pairs, key=lambda pair: -abs(pair["synthetic"] - pair["real"]))[:SHOWN_PAIRS]
    rows = [
        [
            f"{column_label(pair['one'])}, {column_label(pair['other'])}",
            f"of {KINDS[pair['kind']]}",
            f"{pair['real']:.3f}".replace("-", "−"),
            f"{pair['synthetic']:.3f}".replace("-", "−"),
            f"{pair['synthetic'] - pair['real']:+.3f}".replace("-", "−"),
        ]
        for pair in largest
    ]
    head = ["columns", "correlation", "real", "generated", "difference"]
    return ReportTable(f"The {len(rows)} correlations with the largest differences", head, rows, text_columns=(1,))


def statistics_table(caption: str, rows: Mapping[str, Sequence[float]]) -> ReportTable:
    """Statistics of both workloads."""
    cells = [
        [capital(statistic_label(name)), *(value_text(name, float(value)) for value in values)]
        for name, values in rows.items()
    ]
    return ReportTable(caption, ["", "real", "generated"], cells)


def outcome_table(score: SyntheticScoreData) -> ReportTable:
    """Simulation metrics of both workloads: means, their ratio, and distances."""
    rows = [(policy, row) for policy, metrics in score.outcomes for row in metrics]
    cells = [
        [
            f"{SIMULATION_METRICS[row['name']]}, {policy}",
            *(value_text(row["name"], float(row[side])) for side in ("real", "synthetic")),
            change(float(row["ratio"])),
            f"{row['ks']:.3f}",
            value_text(row["name"], float(row["wasserstein"])),
            f"{row['wasserstein_share']:.3f}",
        ]
        for policy, row in rows
    ]
    head = ["mean", "real", "generated", "change", "KS", "Wasserstein", "Wasserstein / SD"]
    marked = [place for place, (_, row) in enumerate(rows) if not row["near"]]
    return ReportTable("Scheduling simulations, real against generated", head, cells, marked=marked)


def privacy_table(score: SyntheticScoreData) -> ReportTable:
    """Privacy metrics with the values expected by chance; only with held-out jobs."""
    leaks = score.privacy
    assert leaks is not None
    metrics = {
        "copies": (
            "copies of training jobs, except for times",
            share(leaks["copies"]),
            share(leaks["copies_of_held_out"]),
        ),
        "copied_pairs": (
            "copies together with the user’s previous job",
            share(leaks["copied_pairs"]),
            share(leaks["copied_pairs_of_held_out"]),
        ),
        "nearer_to_seen": ("nearer to a training job than to a held-out job", share(leaks["nearer_to_seen"]), "50 %"),
        "closest": (
            "distance to the closest training job, and held-out job",
            number(leaks["closest_seen"]),
            number(leaks["closest_held_out"]),
        ),
        "membership_auc": ("membership inference: AUC", f"{leaks['membership_auc']:.3f}", "0.500"),
        "membership_advantage": ("membership inference: advantage", share(leaks["membership_advantage"]), "0 %"),
    }
    marked = [place for place, name in enumerate(metrics) if name in score.results["exceeded_limits"]]
    head = ["metric", "generated", "held out, or chance"]
    return ReportTable("Privacy of the training jobs", head, list(metrics.values()), marked=marked)


def anonymity_table(score: SyntheticScoreData) -> tuple[str, ReportTable] | None:
    """The quasi-identifiers, and k-anonymity of both workloads for several k; None without users."""
    shares, classes = score.curves["anonymity"], score.results["anonymity"]
    if shares is None or classes is None:
        return None
    rows = [
        [f"fewer than {k} users", *(share(float(shares[side][k])) for side in ("real", "synthetic"))]
        for k in shares["real"]
    ]
    names = ", ".join(column_label(name) for name in classes[0]["known"])
    return names, ReportTable("Jobs in classes of few users", ["class size", "real", "generated"], rows)
