"""Fields of the results of a trained agent that the report shows."""

from __future__ import annotations

from dataclasses import fields
from os import PathLike, fspath
from typing import Any

from kilowait.errors import InputError
from kilowait.evaluation.comparison import PairwiseResult
from kilowait.files.fields import Anything, Either, Field, Flag, Items, Null, Number, Record, Text, Values, check_fields

__all__ = ["AGENT_SCENARIO", "check_agent_results"]

LIMIT = 1e30
"""Largest absolute value that is drawn."""
_NUMBER = Number(-LIMIT, LIMIT)
_NUMBER_OR_NULL = Either(Null(), _NUMBER)
_COUNT = Number(0, 1e15, whole=True)
_METRICS = Values(_NUMBER_OR_NULL)
_INTERVAL = Items(_NUMBER_OR_NULL, 2, 2)
_RATIO = Items(_NUMBER_OR_NULL, 3, 3)
_FACTS = Values(_NUMBER_OR_NULL)
_PAIR_TEXTS = {
    "ours": Text(),
    "theirs": Text(),
    "verdict": Text(("better", "worse", "same", "undecided")),
    "metric": Text(),
    "better": Text(("less", "more")),
    "unit": Text(),
}
_PAIR_COUNTS = dict.fromkeys(("wins", "ties", "losses", "windows"), _COUNT)
_PAIR = Record(
    {
        column.name: _PAIR_TEXTS.get(column.name) or _PAIR_COUNTS.get(column.name) or _NUMBER_OR_NULL
        for column in fields(PairwiseResult)
    }
)
_HISTORY = Items(
    Record(
        {},
        {
            "number": _COUNT,
            "steps": _COUNT,
            "losses": Either(Null(), _METRICS),
            **dict.fromkeys(
                ("training", "validation", "mean_return", "metric", "entropy", "kl"), Either(Null(), _NUMBER)
            ),
        },
    )
)
_PART = Record({"name": Text(), "of": Text(("job", "whole")), "value": _NUMBER, "usual": _NUMBER, "moved": _NUMBER})
_ATTENTION = Record({"jobs": Items(_FACTS, 1, 100), "whole": Flag(), "weights": Items(Items(Number(0, 1), 1), 1)})
_CASE = Record(
    {
        "which": Text(),
        "choices": _COUNT,
        "margin": _NUMBER,
        "usual": _NUMBER,
        "chosen": _FACTS,
        "other": Either(Null(), _FACTS),
        "parts": Items(_PART),
    },
    {"attention": Either(Null(), _ATTENTION)},
)
_USUAL = Record(
    {"name": Text(), "of": Text(("job", "whole")), "meaning": Text(), "mean": Number(0, LIMIT), "leaning": _NUMBER}
)
_EXPLAINED = Record(
    {"score": Text(), "choices": _COUNT, "measured": _COUNT, "usual": Items(_USUAL, 1), "cases": Items(_CASE)}
)
_POLICY = Record(
    {
        "label": Text(),
        "kind": Text(("rule", "agent", "clairvoyant")),
        "metrics": _METRICS,
        "intervals": Values(_METRICS),
    }
)
_BATCH_EVALUATION = Record(
    {
        "trace": Text(),
        "cut": Text(),
        "metric": Text(),
        "rows": Items(_POLICY, 1),
        "judgement": Record({"pairs": Items(_PAIR)}),
    },
    {"sentences": Items(Text()), "gap_closed": Either(Null(), _METRICS), "notes": Either(Null(), Items(Text()))},
)
_GPU_EVALUATION = Record(
    {
        "windows": _COUNT,
        "window_jobs": _COUNT,
        "policies": Values(Record({"mean_jct_s": _NUMBER_OR_NULL})),
        "ratios": Values(_RATIO),
    }
)
_POWER_EVALUATION = Record(
    {
        "windows": _COUNT,
        "window_jobs": _COUNT,
        "objective": Text(),
        "policies": Values(_METRICS),
        "front": Items(Text()),
        "margin": Record({"objective_ratio": _RATIO, "delay_ratio": _RATIO}, {"nondominated_share": _NUMBER_OR_NULL}),
    }
)
_POINT = Record(
    {"preference": Values(_NUMBER, 1), "metrics": Values(_NUMBER), "dominated": Flag(), "intervals": Values(_INTERVAL)}
)
_FRONT = Record(
    {
        "terms": Values(Text(), 1),
        "units": Values(_NUMBER),
        "points": Items(_POINT, 1),
        "reference": Record(
            {"name": Text(), "metrics": Values(_NUMBER)},
            {"intervals": Either(Null(), Values(Either(Null(), _INTERVAL)))},
        ),
        "windows": _COUNT,
        "window_jobs": _COUNT,
    }
)
_SECTION = Either(Null(), Values(Anything()))
AGENT_SCENARIO = Record({}, {"training": Values(Anything())})
_RESULTS = Record(
    {},
    {
        "objective": Either(Null(), Text()),
        "training": Either(Null(), _HISTORY),
        "weights": Either(Null(), Items(Items(Anything(), 3, 3))),
        "plain_rule": Either(Null(), Text()),
        "judged": _SECTION,
        "explained": _SECTION,
        "front": _SECTION,
    },
)


def check_agent_results(results: dict[str, Any], source: str | PathLike[str]) -> None:
    """Raise an InputError that names the field if the report cannot show the results of an agent."""
    remedy = "train the agent again"
    check_fields(results, _RESULTS, source, remedy=remedy)
    check_fields(results.get("weights") or [], Items(_Weight()), f"{fspath(source)}: weights", remedy=remedy)
    history = results.get("training") or []
    abscissa = "steps" if any("steps" in row for row in history) else "number"
    check_fields(history, Items(Record({abscissa: _COUNT})), f"{fspath(source)}: training", remedy=remedy)
    evaluation = results.get("judged")
    if evaluation:
        kind = _POWER_EVALUATION if "front" in evaluation else _BATCH_EVALUATION
        kind = _GPU_EVALUATION if "front" not in evaluation and "policies" in evaluation else kind
        check_fields(evaluation, kind, f"{fspath(source)}: judged", remedy=remedy)
        if kind is _POWER_EVALUATION:
            missing = [name for name in ("agent", *evaluation["front"]) if name not in evaluation["policies"]]
            if missing:
                raise InputError(f"{fspath(source)}: judged.policies has no {missing[0][:100]!r}; {remedy}")
    if results.get("explained"):
        check_fields(results["explained"], _EXPLAINED, f"{fspath(source)}: explained", remedy=remedy)
        for number, case in enumerate(results["explained"]["cases"]):
            if case.get("attention"):
                _check_attention(case["attention"], f"{fspath(source)}: explained.cases[{number}].attention")
    if results.get("front"):
        check_fields(results["front"], _FRONT, f"{fspath(source)}: front", remedy=remedy)
        _check_front(results["front"], f"{fspath(source)}: front")


class _Weight(Field):
    """A feature, its weight and its meaning."""

    expected = "a feature, its weight and its meaning"

    def check(self, value: Any) -> None:
        """Accept a list of text, number and text."""
        if not isinstance(value, list) or len(value) != 3:
            raise self.refuse(value)
        for item, description in zip(value, (Text(), _NUMBER, Text()), strict=True):
            description.check(item)


def _check_attention(attention: dict[str, Any], where: str) -> None:
    """Raise unless every job, and the state, has one weight for each of them and one for all others."""
    rows = len(attention["jobs"]) + int(attention["whole"])
    lengths = {len(line) for line in attention["weights"]}
    if len(attention["weights"]) != rows or lengths != {rows + 1}:
        raise InputError(f"{where}: weights is no list of {rows} lists of {rows + 1} numbers; train the agent again")


def _check_front(front: dict[str, Any], where: str) -> None:
    """Raise unless every point and the reference have a number for each term."""
    for name in front["terms"]:
        rows = [front["units"], front["reference"]["metrics"]]
        for point in front["points"]:
            rows += [point["metrics"], point["preference"], point["intervals"]]
        if any(name not in row for row in rows):
            raise InputError(f"{where} has no number of the term {name[:100]!r} for every point; train the agent again")
