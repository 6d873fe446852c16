"""Tables and sentences on a synthetic workload, as HTML; and all of it in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kilowait.report.figures import ReportFigure
from kilowait.report.format import capital, number, share
from kilowait.report.html import table, text, tile_row
from kilowait.report.synthetic import distribution_figures, figures, time_series_figures
from kilowait.report.synthetic.data import (
    SyntheticScoreData,
    calendar_sentence,
    change,
    doubts,
    tiles,
    verdict,
)
from kilowait.report.synthetic.labels import (
    MEASURES,
    column_words,
    measure_words,
    value_words,
)

__all__ = ["likened_parts"]

Add = Callable[[str, ReportFigure], str]
KINDS = {"pearson": "of logarithms", "spearman": "of ranks", "cramer": "of kinds"}
SHOWN_PAIRS = 8


def likened_parts(found: SyntheticScoreData, add: Add, level: int) -> Iterator[tuple[str, str, str]]:
    """Everything on one workload: anchor, heading and HTML.

    `add` takes a figure by name and gives its HTML, `level` is that of headings within the parts.
    """
    yield "verdict", "Verdict", _verdict(found)
    yield "columns", "Columns", add("columns", distribution_figures.columns(found)) + distance_table(found)
    together = add("correlations", figures.correlations(found)) if found.fidelity["pairs"] else ""
    yield "pairs", "What goes together", together + pair_table(found)
    yield "classifier", "Told apart", _classifier(found, add)
    yield "arrivals", "Arrivals", _arrivals(found, add)
    yield "users", "Users", _users(found, add)
    yield "scheduling", "In a scheduler", _scheduling(found, add, level)
    yield "privacy", "What is given away", _privacy(found, add)


def _verdict(found: SyntheticScoreData) -> str:
    said = "".join(f"<p>{text(sentence)}</p>" for sentence in verdict(found))
    notes = "".join(f"<li>{text(note)}</li>" for note in doubts(found))
    return (
        f'{tile_row(tiles(found))}<div class="lead">{said}</div>'
        f'<aside class="doubts"><p>Keep in mind</p><ul>{notes}</ul></aside>'
    )


def distance_table(found: SyntheticScoreData) -> str:
    """KS and Wasserstein, column by column."""
    rows = _distances(found.fidelity["distances"])
    note = (
        "KS: the largest difference of the shares. Moved by: how far values would have to be moved on average to be "
        "distributed alike (Wasserstein), and the same in standard deviations of the real column."
    )
    return _noted(
        table(
            "Columns, real against generated", ["column", "KS", "moved by", "of a standard deviation"], rows
        ),
        note,
    )


def pair_table(found: SyntheticScoreData) -> str:
    """The correlations that are farthest off."""
    pairs: Sequence[Mapping[str, Any]] = found.fidelity["pairs"]
    if not pairs:
        return "<p>No two columns could be compared.</p>"
    far = sorted(pairs, key=lambda pair: -abs(pair["made"] - pair["real"]))[:SHOWN_PAIRS]
    rows = [
        [
            text(f"{column_words(pair['one'])}, {column_words(pair['other'])}"),
            KINDS[pair["kind"]],
            _signed(pair["real"], plus=False),
            _signed(pair["made"], plus=False),
            _signed(pair["made"] - pair["real"]),
        ]
        for pair in far
    ]
    head = ["columns", "correlation", "real", "generated", "difference"]
    return table(f"The {len(rows)} correlations that are farthest off", head, rows, words=(1,))


def _classifier(found: SyntheticScoreData, add: Add) -> str:
    said = (
        "Trees of LightGBM learn to tell the jobs of both workloads apart, four fifths at a time, and are asked about "
        "the fifth they have not seen. AUC 0.5: a coin would do as well; 1: always right. They see the columns of a "
        "job, hour and weekday, the time since the last submission, and whether the job repeats what its user’s job "
        "before asked for."
    )
    return f'<p class="note">{text(said)}</p>{add("looked-at", figures.looked_at(found))}'


def _arrivals(found: SyntheticScoreData, add: Add) -> str:
    drawn = add("cycles", time_series_figures.cycles(found)) + add(
        "profiles", time_series_figures.profiles(found)
    )
    return drawn + _statistics("Submissions hour by hour", found.fidelity["arrivals"])


def _users(found: SyntheticScoreData, add: Add) -> str:
    if not found.fidelity["users"]:
        return "<p>One of the two workloads does not say whose jobs they are.</p>"
    drawn = add("users", distribution_figures.users(found)) if found.fidelity["user_distances"] else ""
    far = table(
        "Users, real against generated",
        ["of users", "KS", "moved by", "of a standard deviation"],
        _distances(found.fidelity["user_distances"]),
    )
    return drawn + _statistics("What users do", found.fidelity["users"]) + far


def _scheduling(found: SyntheticScoreData, add: Add, level: int) -> str:
    made = [outcome_table(found)]
    for place, (policy, rows) in enumerate(found.outcomes):
        made.append(f"<h{level}>{text(policy)} with EASY</h{level}>")
        if not rows:
            made.append("<p>No job of one of the two workloads could be started.</p>")
            continue
        made.append(add(f"outcome-{place + 1}", distribution_figures.outcome(found, place)))
        made.append(add(f"run-{place + 1}", time_series_figures.run(found, place)))
    return "".join(made)


def outcome_table(found: SyntheticScoreData) -> str:
    """What becomes of both in a simulation: means, their ratio, and distances."""
    rows: list[list[str]] = []
    far = []
    for policy, measures in found.outcomes:
        for row in measures:
            name = str(row["name"])
            if not row["near"]:
                far.append(len(rows))
            rows.append(
                [
                    text(f"{MEASURES[name]}, {policy}"),
                    text(value_words(name, float(row["real"]))),
                    text(value_words(name, float(row["made"]))),
                    text(change(float(row["ratio"]))),
                    f"{row['ks']:.3f}",
                    text(value_words(name, float(row["wasserstein"]))),
                    f"{row['wasserstein_share']:.3f}",
                ]
            )
    note = (
        "Both workloads on the same machine, under the same rule with EASY backfilling; jobs too large for it are left "
        "out. Waits and bounded slowdowns (runs below 10 s count as 10 s) are of jobs, the others of hours. Coloured: "
        "means that differ by more than 15 %."
    )
    head = ["mean", "real", "generated", "change", "KS", "moved by", "of a standard deviation"]
    return _noted(table("In a scheduler, real against generated", head, rows, marked=far), note)


def _privacy(found: SyntheticScoreData, add: Add) -> str:
    made = []
    gave = found.leaks
    if gave is None:
        made.append(
            "<p>There were no held-out jobs to compare with. A generated job that equals a real one may be a copy, or "
            "chance: small jobs are alike.</p>"
        )
    else:
        made.append(add("given-away", figures.given_away(found)))
        made.append(leak_table(gave, found.told["given_away"]))
    made.append(f"<p>{text(calendar_sentence(found))}</p>")
    made.append(anonymity_table(found))
    return "".join(made)


def leak_table(gave: Mapping[str, float], which: Sequence[str]) -> str:
    """What is given away, beside what is so by chance."""
    measures = (
        (
            "copies",
            "copies of seen jobs, time apart",
            share(gave["copies"]),
            share(gave["copies_of_held_out"]),
        ),
        (
            "copied_pairs",
            "copies together with the user’s job before",
            share(gave["copied_pairs"]),
            share(gave["copied_pairs_of_held_out"]),
        ),
        ("nearer_to_seen", "nearer to a seen than to a held-out job", share(gave["nearer_to_seen"]), "50 %"),
        (
            "closest",
            "distance to the closest seen job, and held-out one",
            number(gave["closest_seen"]),
            number(gave["closest_held_out"]),
        ),
        ("membership_auc", "who was seen, guessed: AUC", f"{gave['membership_auc']:.3f}", "0.500"),
        (
            "membership_advantage",
            "who was seen, guessed: advantage",
            share(gave["membership_advantage"]),
            "0 %",
        ),
    )
    rows = [[text(words), text(value), text(chance)] for _, words, value, chance in measures]
    marked = [place for place, (name, *_) in enumerate(measures) if name in which]
    note = (
        "Copies are equal in nodes, GPUs, request, run time, queue and status, as far as all have them. By chance: of "
        "held-out jobs, or where nothing was copied. Coloured: more than weeks of a log differ by (8 points). "
        "Advantage: seen jobs found less held-out ones taken for seen, at the best limit."
    )
    head = ["what is given away", "generated", "held out, or by chance"]
    return _noted(
        table("What is given away of the jobs that were learned from", head, rows, marked=marked), note
    )


def anonymity_table(found: SyntheticScoreData) -> str:
    """k-anonymity of both, for several k."""
    by_k, known = found.curves["anonymity"], found.told["anonymity"]
    if by_k is None or known is None:
        return "<p>Without users nothing can be said of k-anonymity.</p>"
    names = ", ".join(column_words(name) for name in known[0]["known"])
    rows = [
        [f"fewer than {k} users", text(share(float(by_k["real"][k]))), text(share(float(by_k["made"][k])))]
        for k in by_k["real"]
    ]
    note = (
        f"k-anonymity: jobs alike in what an outsider may know ({names}) form a class. The share of jobs whose class "
        "has few users: of the real log these could be traced to somebody; of the generated one they would be, were "
        "its users real."
    )
    return _noted(table("Jobs in classes of few users", ["class of", "real", "generated"], rows), note)


def _statistics(caption: str, rows: Mapping[str, Sequence[float]]) -> str:
    cells = [
        [
            text(capital(measure_words(name))),
            text(value_words(name, float(real))),
            text(value_words(name, float(made))),
        ]
        for name, (real, made) in rows.items()
    ]
    return table(caption, ["", "real", "generated"], cells)


def _distances(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            text(capital(column_words(row["column"]))),
            f"{row['ks']:.3f}",
            text(value_words(row["column"], float(row["wasserstein"]))),
            f"{row['wasserstein_share']:.3f}",
        ]
        for row in rows
    ]


def _signed(value: float, *, plus: bool = True) -> str:
    return (f"{value:+.3f}" if plus else f"{value:.3f}").replace("-", "−")


def _noted(made: str, note: str) -> str:
    return f'{made}<p class="note">{text(note)}</p>'
