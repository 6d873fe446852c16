"""Model card of a saved predictor: target, training data, errors, hyperparameters, and file hashes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.files.fields import check_fields
from kilowait.files.json_file import parse_json
from kilowait.files.regular_file import read_bytes, sha256
from kilowait.predict.card_fields import CARD_FIELDS, check_card_values

__all__ = ["CARD_FILE", "ModelCard", "read_card", "read_predictor_files", "write_card"]

CARD_FILE = "card.json"
FORMAT = 2
"""Version of the folder format; other versions are rejected."""
KIND = "kilowait predictor"
MAX_CARD_BYTES = 2**24
MAX_FILE_BYTES = {"trees.txt": 2**28, "leaves.npz": 2**28, "levels.npz": 2**26}
"""Maximum size of the other files, bytes."""
_REFIT_HINT = "fit it again with kilowait predict fit"


@dataclass(frozen=True)
class ModelCard:
    """Model card as plain data. Times are seconds in log time."""

    model: str
    """As in `PredictionModel.of`."""
    target: str
    unit: str
    labels: str
    """Source of the training values."""
    data: str
    """Name of the log."""
    history: str
    """Source of start and end times, as in `JobHistory.name`."""
    nodes: int
    """Number of nodes of the machine."""
    first_s: float
    last_s: float
    """First and last submission."""
    unix_zero_s: float | None
    """Unix time of log time 0, where it is known."""
    jobs: int
    """Number of training jobs."""
    calibration_jobs: int
    """Number of later jobs used for calibration and errors."""
    requests: bool
    """Whether the log has walltime requests."""
    features: tuple[str, ...]
    codes: Mapping[str, tuple[str, ...]]
    """Names of the categorical codes (queues, qualities of service) of the training data."""
    settings: Mapping[str, Any]
    seed: int
    errors: Mapping[str, Mapping[str, float]]
    """Errors of the model and of baselines on the calibration jobs; see `scores.PredictionScores`."""
    coverage: Mapping[str, float]
    """Coverage of each quantile on the calibration jobs, before calibration."""
    importance: Mapping[str, float]
    """Share of each feature in the gain of the trees' splits, largest first."""
    drift: tuple[Mapping[str, float], ...]
    """Drift: number of jobs and errors by month of the second half, of a model fitted on the first half."""
    version: str
    """Version of kilowait."""
    personal: str
    """Personal data it contains."""
    power: Mapping[str, Any] = field(default_factory=dict)
    """Power model and utilization profile, where labels are not all measured."""


def write_card(card: ModelCard, folder: Path) -> None:
    """Write card.json, with the sha256 of the predictor's other files."""
    files = {name: sha256(folder / name) for name in sorted(MAX_FILE_BYTES) if (folder / name).exists()}
    content = {"kind": KIND, "format": FORMAT, **asdict(card), "files": files}
    text = json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / CARD_FILE).write_text(text + "\n", encoding="utf-8")


def read_card(folder: Path) -> ModelCard:
    """Read the card of a folder and verify the hashes of its other files."""
    return read_predictor_files(folder)[0]


def read_predictor_files(folder: Path) -> tuple[ModelCard, dict[str, bytes]]:
    """The card of a folder, and the contents of its other files by name, whose hashes are those in the card."""
    path = folder / CARD_FILE
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
    contents = {name: _content(folder, name, digest) for name, digest in content["files"].items()}
    values = {item.name: content[item.name] for item in fields(ModelCard)}
    codes = {name: tuple(names) for name, names in values["codes"].items()}
    card = ModelCard(
        **{**values, "features": tuple(values["features"]), "codes": codes, "drift": tuple(values["drift"])}
    )
    return card, contents


def _content(folder: Path, name: str, digest: str) -> bytes:
    """The contents of a file, whose hash must be the one in the card."""
    if name not in MAX_FILE_BYTES:
        raise InputError(
            f"{folder / CARD_FILE}: files has {name!r:.60}, which is not one of {', '.join(MAX_FILE_BYTES)}; "
            f"{_REFIT_HINT}"
        )
    try:
        data = read_bytes(folder / name, max_bytes=MAX_FILE_BYTES[name])
    except OSError:
        data = None
    if data is None or sha256_of(data).hexdigest() != digest:
        raise InputError(f"{folder / name} is missing or was changed since it was saved; {_REFIT_HINT}")
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
