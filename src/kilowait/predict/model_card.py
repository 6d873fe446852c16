"""Model card of a saved predictor: target, training data, errors, hyperparameters, and file hashes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kilowait.errors import InputError

__all__ = ["CARD_FILE", "ModelCard", "read_card", "write_card"]

CARD_FILE = "card.json"
FORMAT = 2
"""Version of the folder format; other versions are rejected."""
KIND = "kilowait predictor"
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
    """Write card.json, with the sha256 of every other file of the folder."""
    files = {file.name: _sha256(file) for file in sorted(folder.iterdir()) if file.name != CARD_FILE}
    content = {"kind": KIND, "format": FORMAT, **asdict(card), "files": files}
    text = json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / CARD_FILE).write_text(text + "\n", encoding="utf-8")


def read_card(folder: Path) -> ModelCard:
    """Read the card of a folder and verify the hashes of its other files."""
    path = folder / CARD_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder} contains no predictor: it has no {CARD_FILE}; create one with kilowait predict fit"
        ) from None
    except (OSError, ValueError) as problem:
        raise InputError(f"{path} is damaged ({problem}); {_REFIT_HINT}") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError(f"{path} is not a predictor's model card; create one with kilowait predict fit")
    if content.get("format") != FORMAT:
        raise InputError(
            f"{folder} has format {content.get('format')}, written by kilowait "
            f"{content.get('version')}; this one reads "
            f"format {FORMAT}: {_REFIT_HINT}"
        )
    field_names = {item.name for item in fields(ModelCard)}
    missing = sorted(field_names - content.keys())
    if missing or not isinstance(content.get("files"), dict):
        raise InputError(f"{path} is damaged (it lacks {', '.join(missing) or 'files'}); {_REFIT_HINT}")
    for name, sha256 in content["files"].items():
        if Path(name).name != name or not (folder / name).is_file() or _sha256(folder / name) != sha256:
            raise InputError(f"{folder / name} is missing or was changed since it was saved; {_REFIT_HINT}")
    values = {name: content[name] for name in field_names}
    codes = {name: tuple(names) for name, names in values["codes"].items()}
    return ModelCard(
        **{**values, "features": tuple(values["features"]), "codes": codes, "drift": tuple(values["drift"])}
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    """Convert to plain JSON values: NaN becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
