"""Model card of a saved predictor: target, training data, errors, hyperparameters, and file hashes.

The types, ranges and relations of its fields are checked before its values are used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256 as sha256_of
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from kilowait.errors import InputError, KilowaitError
from kilowait.files.documents import parse_json
from kilowait.files.fields import Either, Field, Flag, Items, Null, Number, Record, Text, Values, check_fields
from kilowait.files.regular_file import read_bytes, sha256
from kilowait.predict.dataset import MIN_NODE_W
from kilowait.predict.features import feature_meaning
from kilowait.predict.models import PredictionModel
from kilowait.predict.targets import LABELS, TARGETS

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

_POWER = Record(
    {},
    {
        "labels": Either(Text(tuple(LABELS)), Null()),
        "power": _TEXT_OR_NULL,
        "utilization": _TEXT_OR_NULL,
        "node_w": Number(MIN_NODE_W, 1e9),
    },
)


def _checked(contents: Field) -> Any:
    """Field of a card, and what its entry in card.json must be."""
    return field(metadata={"contents": contents})


@dataclass(frozen=True)
class ModelCard:
    """Model card as plain data. Times are seconds in log time."""

    model: str = _checked(Text())
    """As in `PredictionModel.of`."""
    target: str = _checked(Text(tuple(TARGETS)))
    unit: str = _checked(Text())
    labels: str = _checked(Text())
    """Source of the training values."""
    data: str = _checked(Text())
    """Name of the log."""
    history: str = _checked(Text())
    """Source of start and end times, as in `JobHistory.name`."""
    nodes: int = _checked(Number(1, 10**9, whole=True))
    """Number of nodes of the machine."""
    first_s: float = _checked(_TIME)
    last_s: float = _checked(_TIME)
    """First and last submission."""
    unix_zero_s: float | None = _checked(Either(_TIME, Null()))
    """Unix time of log time 0, where it is known."""
    jobs: int = _checked(_COUNT)
    """Number of training jobs."""
    calibration_jobs: int = _checked(Number(1, 10**8, whole=True))
    """Number of later jobs used for calibration and errors."""
    requests: bool = _checked(Flag())
    """Whether the log has walltime requests."""
    features: tuple[str, ...] = _checked(Items(Text(), maximum=10_000))
    codes: Mapping[str, tuple[str, ...]] = _checked(Values(Items(Text(), maximum=100_000)))
    """Names of the categorical codes (queues, qualities of service) of the training data."""
    settings: Mapping[str, Any] = _checked(Values(_SETTING))
    seed: int = _checked(Number(whole=True))
    errors: Mapping[str, Mapping[str, float]] = _checked(
        Values(Record({**_ERRORS, "median_ae": _ERROR}, {"mape": Either(_ERROR, Null())}))
    )
    """Errors of the model and of baselines on the calibration jobs; see `scores.PredictionScores`."""
    coverage: Mapping[str, float] = _checked(Values(_SHARE))
    """Coverage of each quantile on the calibration jobs, before calibration."""
    importance: Mapping[str, float] = _checked(Values(_SHARE))
    """Share of each feature in the gain of the trees' splits, largest first."""
    drift: tuple[Mapping[str, float], ...] = _checked(Items(Record({"month": _COUNT, **_ERRORS}), maximum=10_000))
    """Drift: number of jobs and errors by month of the second half, of a model fitted on the first half."""
    version: str = _checked(Text())
    """Version of kilowait."""
    personal: str = _checked(Text())
    """Personal data it contains."""
    power: Mapping[str, Any] = _checked(_POWER)
    """Power model and utilization profile, where labels are not all measured; of a model for logs without measurements
    also the power of a node in the anchor (`node_w`, watts)."""


CARD_FIELDS = Record({item.name: item.metadata["contents"] for item in fields(ModelCard)} | {"files": Values(Text())})
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


CARD_FILE = "card.json"
FORMAT = 2
"""Version of the folder format; other versions are rejected."""
KIND = "kilowait predictor"
MAX_CARD_BYTES = 2**24
UNMETERED = "unmetered_"
"""Prefix of the files of the model for logs without measured values; their own card has no such files."""
MAX_FILE_BYTES = {
    "trees.txt": 2**28,
    "leaves.npz": 2**28,
    "levels.npz": 2**26,
    f"{UNMETERED}{CARD_FILE}": MAX_CARD_BYTES,
}
"""Maximum size of the other files, bytes."""
_REFIT_HINT = "fit it again with kilowait predict fit"


def write_card(card: ModelCard, folder: Path, prefix: str = "") -> None:
    """Write card.json, with the sha256 of the predictor's other files; `prefix` is that of the names of all files."""
    paths = {name: folder / f"{prefix}{name}" for name in sorted(MAX_FILE_BYTES)}
    files = {name: sha256(path) for name, path in paths.items() if path.exists()}
    content = {"kind": KIND, "format": FORMAT, **asdict(card), "files": files}
    text = json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / f"{prefix}{CARD_FILE}").write_text(text + "\n", encoding="utf-8")


def read_card(folder: Path) -> ModelCard:
    """Read the card of a folder and verify the hashes of its other files."""
    return read_predictor_files(folder)[0]


def read_predictor_files(folder: Path, prefix: str = "") -> tuple[ModelCard, dict[str, bytes]]:
    """The card of a folder, and the contents of its other files by name, whose hashes are those in the card.

    Args:
        folder: of the predictor.
        prefix: of the names of the files; the names in the card and in the result are without it.
    """
    path = folder / f"{prefix}{CARD_FILE}"
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_CARD_BYTES), path, remedy=_REFIT_HINT)
    except FileNotFoundError:
        raise InputError(
            f"{folder} contains no predictor: it has no {CARD_FILE}; create one with kilowait predict fit"
        ) from None
    except OSError as problem:
        raise InputError(f"{path} cannot be read ({problem.strerror or problem}); {_REFIT_HINT}") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError(f"{path} is not a predictor's model card; create one with kilowait predict fit")
    if content.get("format") != FORMAT:
        raise InputError(
            f"{folder} has format {content.get('format')!r:.40}, written by kilowait {content.get('version')!s:.40}; "
            f"this one reads format {FORMAT}: {_REFIT_HINT}"
        )
    check_fields(content, CARD_FIELDS, path, remedy=_REFIT_HINT)
    check_card_values(content, path, remedy=_REFIT_HINT)
    contents = {name: _content(folder, prefix, name, digest) for name, digest in content["files"].items()}
    values = {item.name: content[item.name] for item in fields(ModelCard)}
    codes = {name: tuple(names) for name, names in values["codes"].items()}
    card = ModelCard(
        **{**values, "features": tuple(values["features"]), "codes": codes, "drift": tuple(values["drift"])}
    )
    return card, contents


def _content(folder: Path, prefix: str, name: str, digest: str) -> bytes:
    """The contents of a file, whose hash must be the one in the card."""
    if name not in MAX_FILE_BYTES:
        card = folder / f"{prefix}{CARD_FILE}"
        raise InputError(
            f"{card}: files has {name!r:.60}, which is not one of {', '.join(MAX_FILE_BYTES)}; {_REFIT_HINT}"
        )
    try:
        data = read_bytes(folder / f"{prefix}{name}", max_bytes=MAX_FILE_BYTES[name])
    except OSError:
        data = None
    if data is None or sha256_of(data).hexdigest() != digest:
        raise InputError(f"{folder / f'{prefix}{name}'} is missing or was changed since it was saved; {_REFIT_HINT}")
    return data


def _plain(value: Any) -> Any:
    """Convert to plain JSON values: NaN becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
