"""Fields of a model card: types, ranges and relations that a card must have before its values are used."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from kilowait.errors import InputError, KilowaitError
from kilowait.files.fields import Either, Field, Flag, Items, Null, Number, Record, Text, Values
from kilowait.predict.models import PredictionModel
from kilowait.predict.target_features import feature_meaning
from kilowait.predict.targets import LABELS, TARGETS

__all__ = ["CARD_FIELDS", "check_card_values"]

MAX_TIME_S = 1e11
"""Maximum absolute time, seconds: about 3000 years."""
MAX_NAME = 200
"""Maximum length of names, characters."""
MAX_TEXT = 5_000
"""Maximum length of other text, characters."""
UNITS = {"runtime": "s", "wait": "s", "power": "W", "energy": "J"}
"""Unit by target."""

_COUNT = Number(0, 10**12, whole=True)
_TIME = Number(-MAX_TIME_S, MAX_TIME_S)
_SHARE = Number(0, 1.000001)
_SETTING = Either(Number(-1e12, 1e12), Text(), Flag(), Null())
_TEXT_OR_NULL = Either(Text(), Null())
_ERROR = Number(0, 1e300)
_ERRORS: dict[str, Field] = {
    "jobs": _COUNT, "accuracy": _SHARE, "log_rmse": _ERROR, "mae": _ERROR, "underprediction_rate": _SHARE,
}  # fmt: skip

CARD_FIELDS = Record(
    {
        "model": Text(),
        "target": Text(tuple(TARGETS)),
        "unit": Text(),
        "labels": Text(),
        "data": Text(),
        "history": Text(),
        "nodes": Number(1, 10**9, whole=True),
        "first_s": _TIME,
        "last_s": _TIME,
        "unix_zero_s": Either(_TIME, Null()),
        "jobs": _COUNT,
        "calibration_jobs": Number(1, 10**8, whole=True),
        "requests": Flag(),
        "features": Items(Text(), maximum=10_000),
        "codes": Values(Items(Text(), maximum=100_000)),
        "settings": Values(_SETTING),
        "seed": Number(whole=True),
        "errors": Values(Record({**_ERRORS, "median_ae": _ERROR}, {"mape": Either(_ERROR, Null())})),
        "coverage": Values(_SHARE),
        "importance": Values(_SHARE),
        "drift": Items(Record({"month": _COUNT, **_ERRORS}), maximum=10_000),
        "version": Text(),
        "personal": Text(),
        "power": Record(
            {}, {"labels": Either(Text(tuple(LABELS)), Null()), "power": _TEXT_OR_NULL, "utilization": _TEXT_OR_NULL}
        ),
        "files": Values(Text()),
    }
)
"""Fields of card.json, besides its kind and format."""


def check_card_values(card: Mapping[str, Any], source: str | PathLike[str], *, remedy: str) -> None:
    """Raise an InputError if a card whose fields have valid types contradicts itself.

    Args:
        card: contents of card.json.
        source: the file, for the error.
        remedy: what to do about it, for the error.
    """

    def refuse(problem: str) -> InputError:
        return InputError(f"{fspath(source)}: {problem}; {remedy}")

    for name in ("labels", "data", "history", "version", "personal"):
        if len(card[name]) > MAX_TEXT:
            raise refuse(f"{name} has {len(card[name]):,} characters; at most {MAX_TEXT:,} are read")
    for name in ("settings", "codes", "errors", "coverage", "importance"):
        if any(len(key) > MAX_NAME for key in card[name]):
            raise refuse(f"{name} has a name of more than {MAX_NAME} characters")
    if len(card["model"]) > MAX_NAME:
        raise refuse(f"model has {len(card['model']):,} characters; at most {MAX_NAME} are read")
    try:
        model = PredictionModel.of(card["model"])
    except KilowaitError as problem:
        raise refuse(f"model: {problem}") from None
    if card["unit"] != UNITS[card["target"]]:
        raise refuse(f"unit is {card['unit']!r:.40}; that of {card['target']} is {UNITS[card['target']]}")
    if card["first_s"] > card["last_s"]:
        raise refuse(f"first_s is {card['first_s']}, after last_s, which is {card['last_s']}")
    zero_s = card["unix_zero_s"]
    if zero_s is not None and not -5e10 < zero_s + card["first_s"] <= zero_s + card["last_s"] < MAX_TIME_S:
        raise refuse(f"unix_zero_s is {zero_s}, with which first_s and last_s are not dates")
    if model.family != "baseline":
        _check_features(card, refuse)
    names = sorted(card["files"])
    needed = {"baseline": ["levels.npz"], "forest": ["leaves.npz", "levels.npz", "trees.txt"]}
    expected = needed.get(model.family, ["levels.npz", "trees.txt"])
    if not set(expected) <= set(names):
        raise refuse(f"files lacks {', '.join(sorted(set(expected) - set(names)))}")


def _check_features(card: Mapping[str, Any], refuse: Any) -> None:
    features = card["features"]
    if len(set(features)) != len(features):
        raise refuse("features has a name twice")
    for name in features:
        try:
            feature_meaning(name)
        except (KilowaitError, LookupError):
            raise refuse(f"features has {name!r:.60}, which is not the name of a feature") from None
    for name in card["importance"]:
        if name not in features:
            raise refuse(f"importance has {name!r:.60}, which is not in features")
