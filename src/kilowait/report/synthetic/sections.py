"""HTML tables, sentences and section order of the report on a synthetic workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kilowait.report.figures import ReportFigure
from kilowait.report.format import capital, number, share
from kilowait.report.html import table, text, tile_row
from kilowait.report.synthetic import distribution_figures, figures, time_series_figures
from kilowait.report.synthetic.data import SyntheticScoreData, calendar_sentence, caveats, change, summary, tiles
from kilowait.report.synthetic.labels import SIMULATION_METRICS, column_label, statistic_label, value_text

__all__ = ["synthetic_sections"]

Add = Callable[[str, ReportFigure], str]
KINDS = {
    "pearson": "of logarithms (Pearson)",
    "spearman": "of ranks (Spearman)",
    "cramer": "of categories (Cramér’s V)",
}
SHOWN_PAIRS = 8


def synthetic_sections(score: SyntheticScoreData, add: Add, level: int) -> Iterator[tuple[str, str, str]]:
    """All sections on one workload: anchor, heading and HTML.

    `add` registers a figure by name and returns its HTML; `level` is the heading level within the sections.
    """
    yield "summary", "Summary", _summary(score)
    yield (
        "columns",
        "Columns",
        add("columns", distribution_figures.column_distribution_figure(score)) + distance_table(score),
    )
    heat_maps = add("correlations", figures.correlations(score)) if score.fidelity["pairs"] else ""
    yield "pairs", "Correlations between columns", heat_maps + pair_table(score)
    yield "classifier", "Classifier: real or generated", _classifier(score, add)
    yield "arrivals", "Arrivals", _arrivals(score, add)
    yield "users", "Users", _users(score, add)
    yield "scheduling", "Scheduling simulations", _scheduling(score, add, level)
    yield "privacy", "Privacy", _privacy(score, add)


def _summary(score: SyntheticScoreData) -> str:
    paragraphs = "".join(f"<p>{text(sentence)}</p>" for sentence in summary(score))
    notes = "".join(f"<li>{text(note)}</li>" for note in caveats(score))
    return (
        f'{tile_row(tiles(score))}<div class="lead">{paragraphs}</div>'
        f'<aside class="caveats"><p>Caveats</p><ul>{notes}</ul></aside>'
    )


def distance_table(score: SyntheticScoreData) -> str:
    """Kolmogorov-Smirnov and Wasserstein distances by column."""
    rows = _distances(score.fidelity["distances"])
    note = (
        "KS: Kolmogorov-Smirnov distance, the largest difference of the cumulative shares. Wasserstein: mean "
        "distance by "
        "which values would have to be moved to obtain the same distribution, also in standard deviations (SD) of the "
        "real column."
    )
    return _noted(
        table("Columns, real against generated", ["column", "KS", "Wasserstein", "Wasserstein / SD"], rows), note
    )


def pair_table(score: SyntheticScoreData) -> str:
    """The correlations with the largest differences."""
    pairs: Sequence[Mapping[str, Any]] = score.fidelity["pairs"]
    if not pairs:
        return "<p>No two columns could be compared.</p>"
    largest = sorted(pairs, key=lambda pair: -abs(pair["synthetic"] - pair["real"]))[:SHOWN_PAIRS]
    rows = [
        [
            text(f"{column_label(pair['one'])}, {column_label(pair['other'])}"),
            KINDS[pair["kind"]],
            _signed(pair["real"], plus=False),
            _signed(pair["synthetic"], plus=False),
            _signed(pair["synthetic"] - pair["real"]),
        ]
        for pair in largest
    ]
    head = ["columns", "correlation", "real", "generated", "difference"]
    return table(f"The {len(rows)} correlations with the largest differences", head, rows, text_columns=(1,))


def _classifier(score: SyntheticScoreData, add: Add) -> str:
    note = (
        "A LightGBM classifier is trained to distinguish the jobs of both workloads (five-fold cross-validation). AUC "
        "0.5: chance; 1: always right. Features: the columns of a job, hour and weekday, the interarrival time, and "
        "whether the job repeats the request of its user’s previous job."
    )
    return f'<p class="note">{text(note)}</p>{add("feature-importance", figures.feature_importance(score))}'


def _arrivals(score: SyntheticScoreData, add: Add) -> str:
    drawn = add("cycles", time_series_figures.arrival_cycles(score)) + add(
        "profiles", time_series_figures.profiles(score)
    )
    return drawn + _statistics("Submissions per hour", score.fidelity["arrivals"])


def _users(score: SyntheticScoreData, add: Add) -> str:
    if not score.fidelity["users"]:
        return "<p>One of the two workloads contains no users.</p>"
    drawn = (
        add("users", distribution_figures.user_distribution_figure(score)) if score.fidelity["user_distances"] else ""
    )
    largest = table(
        "Users, real against generated",
        ["quantity", "KS", "Wasserstein", "Wasserstein / SD"],
        _distances(score.fidelity["user_distances"]),
    )
    return drawn + _statistics("User behaviour", score.fidelity["users"]) + largest


def _scheduling(score: SyntheticScoreData, add: Add, level: int) -> str:
    parts = [outcome_table(score)]
    for place, (policy, rows) in enumerate(score.outcomes):
        parts.append(f"<h{level}>{text(policy)} with EASY</h{level}>")
        if not rows:
            parts.append("<p>No job of one of the two workloads could be started.</p>")
            continue
        parts.append(add(f"simulation-{place + 1}", distribution_figures.simulation_distribution_figure(score, place)))
        parts.append(add(f"run-{place + 1}", time_series_figures.simulated_load(score, place)))
    return "".join(parts)


def outcome_table(score: SyntheticScoreData) -> str:
    """Simulation metrics of both workloads: means, their ratio, and distances."""
    rows: list[list[str]] = []
    largest = []
    for policy, metrics in score.outcomes:
        for row in metrics:
            name = str(row["name"])
            if not row["near"]:
                largest.append(len(rows))
            rows.append(
                [
                    text(f"{SIMULATION_METRICS[name]}, {policy}"),
                    text(value_text(name, float(row["real"]))),
                    text(value_text(name, float(row["synthetic"]))),
                    text(change(float(row["ratio"]))),
                    f"{row['ks']:.3f}",
                    text(value_text(name, float(row["wasserstein"]))),
                    f"{row['wasserstein_share']:.3f}",
                ]
            )
    note = (
        "Both workloads on the same cluster, under the same policy with EASY backfilling; jobs larger than the "
        "cluster are "
        "left out. Waits and bounded slowdowns (runs below 10 s count as 10 s) are per job, the other metrics per "
        "hour. "
        "Coloured: means that differ by more than 15 %."
    )
    head = ["mean", "real", "generated", "change", "KS", "Wasserstein", "Wasserstein / SD"]
    return _noted(table("Scheduling simulations, real against generated", head, rows, marked=largest), note)


def _privacy(score: SyntheticScoreData, add: Add) -> str:
    parts = []
    privacy = score.privacy
    if privacy is None:
        parts.append(
            "<p>There are no held-out jobs to compare with. A generated job that equals a real one may be a copy or "
            "coincidence: small jobs are similar.</p>"
        )
    else:
        parts.append(add("privacy", figures.privacy(score)))
        parts.append(privacy_table(privacy, score.results["exceeded_limits"]))
    parts.append(f"<p>{text(calendar_sentence(score))}</p>")
    parts.append(anonymity_table(score))
    return "".join(parts)


def privacy_table(privacy: Mapping[str, float], exceeded: Sequence[str]) -> str:
    """Privacy metrics with the values expected by chance."""
    metrics = (
        (
            "copies",
            "copies of training jobs, except for times",
            share(privacy["copies"]),
            share(privacy["copies_of_held_out"]),
        ),
        (
            "copied_pairs",
            "copies together with the user’s previous job",
            share(privacy["copied_pairs"]),
            share(privacy["copied_pairs_of_held_out"]),
        ),
        ("nearer_to_seen", "nearer to a training job than to a held-out job", share(privacy["nearer_to_seen"]), "50 %"),
        (
            "closest",
            "distance to the closest training job, and held-out job",
            number(privacy["closest_seen"]),
            number(privacy["closest_held_out"]),
        ),
        ("membership_auc", "membership inference: AUC", f"{privacy['membership_auc']:.3f}", "0.500"),
        ("membership_advantage", "membership inference: advantage", share(privacy["membership_advantage"]), "0 %"),
    )
    rows = [[text(label), text(value), text(chance)] for _, label, value, chance in metrics]
    marked = [place for place, (name, *_) in enumerate(metrics) if name in exceeded]
    note = (
        "Copies are equal in nodes, GPUs, request, run time, queue and status, as far as all workloads have them. "
        "Chance: "
        "the value of held-out jobs, or the value without copying. Coloured: above the difference between weeks "
        "of a log "
        "(8 percentage points). Advantage: true positive rate minus false positive rate at the best threshold."
    )
    head = ["metric", "generated", "held out, or chance"]
    return _noted(table("Privacy of the training jobs", head, rows, marked=marked), note)


def anonymity_table(score: SyntheticScoreData) -> str:
    """k-anonymity of both workloads, for several k."""
    shares, classes = score.curves["anonymity"], score.results["anonymity"]
    if shares is None or classes is None:
        return "<p>k-anonymity requires users.</p>"
    names = ", ".join(column_label(name) for name in classes[0]["known"])
    rows = [
        [f"fewer than {k} users", text(share(float(shares["real"][k]))), text(share(float(shares["synthetic"][k])))]
        for k in shares["real"]
    ]
    note = (
        f"k-anonymity: jobs with equal quasi-identifiers ({names}) form a class. The table shows the share of jobs in "
        "classes with few users: jobs of the real log could be traced to a person; those of the generated log could be "
        "traced if its users were real."
    )
    return _noted(table("Jobs in classes of few users", ["class size", "real", "generated"], rows), note)


def _statistics(caption: str, rows: Mapping[str, Sequence[float]]) -> str:
    cells = [
        [text(capital(statistic_label(name))), text(value_text(name, float(real))), text(value_text(name, float(made)))]
        for name, (real, made) in rows.items()
    ]
    return table(caption, ["", "real", "generated"], cells)


def _distances(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            text(capital(column_label(row["column"]))),
            f"{row['ks']:.3f}",
            text(value_text(row["column"], float(row["wasserstein"]))),
            f"{row['wasserstein_share']:.3f}",
        ]
        for row in rows
    ]


def _signed(value: float, *, plus: bool = True) -> str:
    return (f"{value:+.3f}" if plus else f"{value:.3f}").replace("-", "−")


def _noted(html_table: str, note: str) -> str:
    return f'{html_table}<p class="note">{text(note)}</p>'
