"""Fields of a synthetic workload's score that the page shows."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from kilowait.errors import InputError
from kilowait.files.fields import Either, Field, Flag, Items, Null, Number, Record, Text, Values, check_fields

__all__ = ["check_score_results"]

LIMIT = 1e30
_NUMBER = Number(-LIMIT, LIMIT)
_POSITIVE = Number(0, LIMIT)
_NUMBER_OR_NULL = Either(Null(), _NUMBER)
_SHARE = Number(0, 1)
_COUNT = Number(0, 1e15, whole=True)


def _pair(item: Field) -> Items:
    """A value of the real jobs and one of the synthetic jobs."""
    return Items(item, 2, 2)


_CORRELATION = Number(-1.001, 1.001)
_DISTANCE = Record(
    {"column": Text(), "ks": _SHARE, "wasserstein": _POSITIVE, "wasserstein_share": Either(Null(), _NUMBER)}
)
_COLUMN_PAIR = Record(
    {
        "kind": Text(("pearson", "spearman", "cramer")),
        "one": Text(),
        "other": Text(),
        "real": _CORRELATION,
        "synthetic": _CORRELATION,
    }
)
_CURVE = Record(
    {
        "at": Items(_NUMBER, 1, ascending=True),
        "real": Items(_NUMBER, 1),
        "synthetic": Items(_NUMBER, 1),
        "widest": _NUMBER,
    },
    equally_long=("at", "real", "synthetic"),
)
_MEASURE = Record(
    {
        "name": Text(("wait_s", "bsld", "backlog_nodes", "utilization")),
        "real": _NUMBER_OR_NULL,
        "synthetic": _NUMBER_OR_NULL,
        "ks": Either(Null(), _SHARE),
        "wasserstein": _NUMBER_OR_NULL,
        "ratio": _NUMBER_OR_NULL,
        "near": Flag(),
    }
)
_FIDELITY = Record(
    {
        "distances": Items(_DISTANCE, 1),
        "pairs": Items(_COLUMN_PAIR),
        "auc": _SHARE,
        "auc_history": _SHARE,
        "arrivals": Values(_pair(_NUMBER_OR_NULL)),
        "users": Values(_pair(_NUMBER_OR_NULL)),
        "user_distances": Items(_DISTANCE),
        "feature_importance": Values(_SHARE, 1),
        "feature_importance_history": Values(_SHARE, 1),
    }
)
_PRIVACY = Record(
    dict.fromkeys(
        (
            "nearer_to_seen", "closest_seen", "closest_held_out", "copies", "copies_of_held_out", "copied_pairs",
            "copied_pairs_of_held_out", "membership_auc", "membership_advantage",
        ),
        _NUMBER_OR_NULL,
    )
)  # fmt: skip
_SERIES = Record(
    {"step_s": Number(1e-9, LIMIT), "backlog_nodes": Items(_POSITIVE), "utilization": Items(_POSITIVE)},
    equally_long=("backlog_nodes", "utilization"),
)
_OUTCOME_CURVES = Record(
    {"policy": Text(), "shares": Values(_CURVE), "series": Record({"real": _SERIES, "synthetic": _SERIES})}
)
_CLOSEST = dict.fromkeys(("at", "synthetic_to_seen", "synthetic_to_held_out", "held_out_to_seen"), Items(_NUMBER, 1))
_CURVES = Record(
    {
        "columns": Values(_CURVE),
        "users": Values(_CURVE),
        "anonymity": Either(Null(), Record({"real": Values(_SHARE), "synthetic": Values(_SHARE)})),
        "autocorrelation": Record(
            {"real": Items(_NUMBER_OR_NULL), "synthetic": Items(_NUMBER_OR_NULL)}, equally_long=("real", "synthetic")
        ),
        "spectrum": Record(
            {
                "edge_h": Items(Number(1e-9, LIMIT), 2, ascending=True),
                "real": Items(_NUMBER_OR_NULL, 1),
                "synthetic": Items(_NUMBER_OR_NULL, 1),
            },
            equally_long=("real", "synthetic"),
        ),
        "day": Record(dict.fromkeys(("real", "synthetic"), Items(_POSITIVE, 24, 24))),
        "week": Record(dict.fromkeys(("real", "synthetic"), Items(_POSITIVE, 168, 168))),
        "dated": Flag(),
        "outcomes": Items(_OUTCOME_CURVES),
        "closest": Either(Null(), Record(_CLOSEST, equally_long=tuple(_CLOSEST))),
        "membership": Either(
            Null(),
            Record(
                {
                    "true_positive_rate": Items(_SHARE, 1),
                    "false_positive_rate": Items(_SHARE, 1),
                    "best": _pair(_SHARE),
                },
                equally_long=("true_positive_rate", "false_positive_rate"),
            ),
        ),
    }
)
SYNTHETIC = Record(
    {
        "real": Text(),
        "synthetic": Text(),
        "jobs": _pair(_COUNT),
        "spans_s": _pair(_POSITIVE),
        "loads": _pair(_POSITIVE),
        "fidelity": _FIDELITY,
        "outcomes": Items(Record({"policy": Text(), "measures": Items(_MEASURE)})),
        "anonymity": Either(
            Null(),
            Items(Record({"known": Items(Text(), 1), "k": _COUNT, "jobs_below": _SHARE, "smallest": _COUNT}), 2, 2),
        ),
        "privacy": Either(Null(), _PRIVACY),
        "calendar": Either(Null(), _CORRELATION),
        "missing_columns": Values(Text(("both", "real", "synthetic"))),
        "worst_ks": _DISTANCE,
        "worst_pair": _COLUMN_PAIR,
        "curves": _CURVES,
    },
    {"exceeded_limits": Items(Text())},
)


def check_score_results(results: dict[str, Any], source: str | PathLike[str]) -> None:
    """Raise an InputError that names the field if the report cannot show the score."""
    remedy = "run kilowait synth score again"
    check_fields(results, Record({"synthetic": SYNTHETIC}), source, remedy=remedy)
    score, where = results["synthetic"], f"{fspath(source)}: synthetic"
    problem = _problem(score, score["curves"])
    if problem is not None:
        raise InputError(f"{where}: {problem}; {remedy}")


def _problem(score: dict[str, Any], curves: dict[str, Any]) -> str | None:
    """What is missing for the page; None if nothing is."""
    columns = [row["column"] for row in score["fidelity"]["distances"]]
    for name in (*columns, score["worst_ks"]["column"]):
        if name not in curves["columns"]:
            return f"curves.columns has no {name[:100]!r}"
    for row in score["fidelity"]["user_distances"]:
        if row["column"] not in curves["users"]:
            return f"curves.users has no {row['column'][:100]!r}"
    if len(columns) > len(set(columns)):
        return "fidelity.distances has a column twice"
    if [row["policy"] for row in score["outcomes"]] != [row["policy"] for row in curves["outcomes"]]:
        return "outcomes and curves.outcomes have different policies"
    for row, drawn in zip(score["outcomes"], curves["outcomes"], strict=True):
        for measure in row["measures"]:
            if measure["name"] not in drawn["shares"]:
                return f"curves.outcomes has no {measure['name']}"
    if score["privacy"] is not None and ("exceeded_limits" not in score or not curves["closest"]):
        return "exceeded_limits, curves.closest or curves.membership is missing"
    if score["privacy"] is not None and curves["membership"] is None:
        return "curves.membership is missing"
    if score["anonymity"] is not None and curves["anonymity"] is None:
        return "curves.anonymity is missing"
    if curves["anonymity"] is not None and set(curves["anonymity"]["real"]) != set(curves["anonymity"]["synthetic"]):
        return "curves.anonymity has different sizes of groups"
    if len(curves["spectrum"]["edge_h"]) != len(curves["spectrum"]["real"]) + 1:
        return "curves.spectrum has not one value between two edges"
    return None
