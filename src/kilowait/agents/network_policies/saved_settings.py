"""Decision settings and provenance of saved networks: types and ranges, before they are used."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from kilowait.agents.networks.saved_config import MAX_QUEUE_WINDOW
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.errors import InputError, KilowaitError
from kilowait.files.fields import Anything, Either, Field, Flag, Items, Null, Number, Record, Text, Values, check_fields

__all__ = ["check_provenance"]

MAX_SECONDS = 1e12
MAX_STARTS = 10_000
"""Maximum number of preemptions of a job: the engine needs memory for every start."""

_SECONDS = Number(0, MAX_SECONDS)
_INTERVAL = Either(Number(0, 0), Number(1, MAX_SECONDS))
"""Seconds between scheduling passes: none, or at least 1, as a run needs time for each of them."""
_WINDOW = Number(1, MAX_QUEUE_WINDOW, whole=True)
_COMMON: dict[str, Field] = {
    "queue_window": _WINDOW,
    "max_wait_s": Either(Null(), _SECONDS),
    "hold": Flag(),
    "graph": Flag(),
}
_BATCH: dict[str, Field] = {
    **_COMMON,
    "backfill": Either(Text(), Number(0, 1_000_000, whole=True)),
    "backfill_order": Text(),
    "at_limit": Text(),
    "placement": Text(),
    "overrun": Text(),
}
_OPTIONAL: dict[str, Field] = {"prediction_features": Flag()}
_SETTINGS: dict[str, tuple[dict[str, Field], dict[str, Field]]] = {
    "kilowait/Gpu-v0": (
        {
            **_COMMON,
            "by_type": Flag(),
            "placements": Items(Text(), maximum=100),
            "preempt": Flag(),
            "victims": _WINDOW,
            "max_preemptions": Number(1, MAX_STARTS, whole=True),
        },
        {},
    ),
    "kilowait/Energy-v0": (
        {**_BATCH, "hold_s": Number(1, MAX_SECONDS), "max_wait_for_hold_s": Number(0, 1e7), "sleep_actions": Flag()},
        _OPTIONAL,
    ),
}
"""Required and optional decision settings by environment."""
_GPU_SETTINGS: dict[str, Field] = {
    **dict.fromkeys(("head_of_line_blocking", "preempt", "migrate"), Flag()),
    **dict.fromkeys(("min_run_before_preempt_s", "grace_s", "checkpoint_write_s", "checkpoint_load_s"), _SECONDS),
    **dict.fromkeys(("placement", "gpu_type_order", "at_limit", "on_oversized"), Text()),
    "checkpoint_s": _SECONDS,
    "round_interval_s": _INTERVAL,
}


def check_provenance(provenance: Mapping[str, Any], source: str | PathLike[str]) -> None:
    """Raise an InputError that names the invalid field of a network's provenance, which has decision settings.

    Args:
        provenance: of the network.
        source: the file, for the error.
    """
    required, optional = _SETTINGS.get(str(provenance.get("env")), (_BATCH, _OPTIONAL))
    fields: dict[str, Field] = {"decision_settings": Record(required, optional)}
    if provenance.get("env") == "kilowait/Energy-v0":
        fields["power_controls"] = Text()
    others = {
        "env": Text(),
        "gpu_settings": Record({}, _GPU_SETTINGS),
        "training": Values(Anything()),
        "units": Values(Number(0)),
    }
    check_fields(dict(provenance), Record(fields, others), source, remedy="train it again")
    found = {"decision_settings": {**required, **optional}, "gpu_settings": _GPU_SETTINGS}
    for field, known in found.items():
        for name in provenance.get(field, {}):
            if name not in known:
                raise InputError(f"{source}: {field} has the unknown field {str(name)[:60]!r}; train it again")
    try:
        GpuSettings(**provenance.get("gpu_settings", {}))
    except KilowaitError as problem:
        raise InputError(f"{source}: gpu_settings: {problem}; train it again") from None
