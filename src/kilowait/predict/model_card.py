"""What a saved predictor says of itself: what it predicts, what it learned from, how good it was, what it holds."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kilowait.errors import InputError

__all__ = ["CARD", "FORMAT", "ModelCard", "read_card", "write_card"]

CARD = "card.json"
FORMAT = 1
"""Number of this layout of folders; one of another number is refused."""
KIND = "kilowait predictor"
_AGAIN = "fit it again with kilowait predict fit"


@dataclass(frozen=True)
class ModelCard:
    """All of it is plain data. Times are seconds on the log's clock."""

    model: str
    """As in `Model.of`."""
    target: str
    unit: str
    labels: str
    """Where the values it learned from come from."""
    data: str
    """Name of the log."""
    world: str
    nodes: int
    """Of the machine."""
    first_s: float
    last_s: float
    """First and last submission."""
    unix_zero_s: float | None
    """Of the log's clock, where it is known."""
    jobs: int
    """It learned from."""
    calibrated: int
    """Later jobs its levels were calibrated on, and its errors found."""
    requests: bool
    """Whether users asked for a time."""
    features: tuple[str, ...]
    codes: Mapping[str, tuple[str, ...]]
    """Names behind the numbers of queues and qualities of service, as it learned them."""
    settings: Mapping[str, Any]
    seed: int
    errors: Mapping[str, Mapping[str, float]]
    """On the calibration part, of the model and of simple ones; see `scores.Scores`."""
    held: Mapping[str, float]
    """Share of the calibration part within the quantile of each level, before levels were calibrated on it."""
    importance: Mapping[str, float]
    """Share of each feature in what splits of the trees gained, largest first."""
    drift: tuple[Mapping[str, float], ...]
    """A model fitted on the first half of the span, asked of the second: jobs and errors by month."""
    version: str
    """Of kilowait."""
    personal: str
    """What of persons it holds."""
    power: Mapping[str, Any] = field(default_factory=dict)
    """Power model and profile, where labels are not all measured."""


def write_card(card: ModelCard, folder: Path) -> None:
    """Write card.json, with the sha256 of every other file of the folder."""
    files = {file.name: _sha256(file) for file in sorted(folder.iterdir()) if file.name != CARD}
    said = {"kind": KIND, "format": FORMAT, **asdict(card), "files": files}
    text = json.dumps(_plain(said), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / CARD).write_text(text + "\n", encoding="utf-8")


def read_card(folder: Path) -> ModelCard:
    """The card of a folder, its other files having been seen to be as they were written."""
    path = folder / CARD
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no predictor: it has no {CARD}; make one with kilowait predict fit"
        ) from None
    except (OSError, ValueError) as problem:
        raise InputError(f"{path} is damaged ({problem}); {_AGAIN}") from None
    if not isinstance(said, dict) or said.get("kind") != KIND:
        raise InputError(f"{path} is not the card of a predictor; make one with kilowait predict fit")
    if said.get("format") != FORMAT:
        raise InputError(
            f"{folder} is of format {said.get('format')}, written by kilowait {said.get('version')}; this one reads "
            f"format {FORMAT}: {_AGAIN}"
        )
    wanted = {one.name for one in fields(ModelCard)}
    absent = sorted(wanted - said.keys())
    if absent or not isinstance(said.get("files"), dict):
        raise InputError(f"{path} is damaged (it lacks {', '.join(absent) or 'files'}); {_AGAIN}")
    for name, sha256 in said["files"].items():
        if Path(name).name != name or not (folder / name).is_file() or _sha256(folder / name) != sha256:
            raise InputError(f"{folder / name} is not there or is not what was written; {_AGAIN}")
    own = {name: said[name] for name in wanted}
    codes = {name: tuple(names) for name, names in own["codes"].items()}
    return ModelCard(
        **{**own, "features": tuple(own["features"]), "codes": codes, "drift": tuple(own["drift"])}
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    """Without what JSON has no word for: NaN is null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
