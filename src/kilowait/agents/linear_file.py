"""JSON files of linear agents: reading in bounded time and memory, and the fields that all kinds have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.fields import Anything, Field, Number, Record, Text, Values, check_fields
from kilowait.files.json_file import parse_json
from kilowait.files.regular_file import read_bytes

__all__ = ["check_agent_fields", "read_agent_document", "weights_in_order"]

MAX_BYTES = 2**26
"""Maximum size of a file, bytes."""
MAX_VALUES = 2**22
"""Maximum number of lists, objects and their members."""
MAX_WEIGHT = 1e100
"""Maximum absolute value of a weight: sums of weighted features stay finite."""
MAX_NAME = 200
"""Maximum length of an agent's name, characters."""


def read_agent_document(source: str | PathLike[str]) -> dict[str, Any]:
    """The JSON object of an agent's file; InputError if it has none.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b'{"format": "x"}')
    ...     file.flush()
    ...     read_agent_document(file.name)
    {'format': 'x'}
    """
    name = fspath(source)
    try:
        text = read_bytes(source, max_bytes=MAX_BYTES)
    except OSError as problem:
        raise InputError(
            f"cannot read the agent {name}: {problem.strerror or problem}; train one with kilowait train"
        ) from None
    if sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise InputError(f"{name} contains no agent: it has more than {MAX_VALUES:,} values")
    try:
        data = parse_json(text, source)
    except InputError as problem:
        raise InputError(
            f"{name} contains no agent: it is not JSON, or is cut off ({problem}); write it again with kilowait train"
        ) from None
    if not isinstance(data, dict):
        raise InputError(
            f"{name} contains no agent: its format is {type(data).__name__!r}; name the agent.json that kilowait train "
            "wrote"
        )
    return data


def check_agent_fields(
    data: Mapping[str, Any],
    version: int,
    fields: Mapping[str, Field],
    source: str | PathLike[str],
    *,
    optional: Mapping[str, Field] | None = None,
) -> None:
    """Raise an InputError if a linear agent has another version, or an invalid field.

    Args:
        data: contents of the file.
        version: the version that is read.
        fields: fields besides weights, name and provenance.
        source: the file, for the error.
        optional: fields that may be missing.
    """
    name = fspath(source)
    if data.get("version") != version:
        raise InputError(
            f"{name} is an agent of version {data.get('version')!r:.60}; this kilowait reads version {version}: "
            "train it again"
        )
    common: dict[str, Field] = {"weights": Values(Number()), "name": Text(), "provenance": Values(Anything())}
    check_fields(dict(data), Record({**common, **fields}, optional or {}), name, remedy="train it again")
    if len(data["name"]) > MAX_NAME:
        raise InputError(f"{name}: name has {len(data['name']):,} characters; at most {MAX_NAME} are read")


def weights_in_order(
    weights: Mapping[str, Any], features: Iterable[str], source: str | PathLike[str]
) -> npt.NDArray[np.float64]:
    """The weights of these features in their order; InputError if others are there.

    >>> weights_in_order({"b": 2, "a": 1.5}, ("a", "b"), "agent.json").tolist()
    [1.5, 2.0]
    """
    names = tuple(features)
    if set(weights) != set(names):
        raise InputError(
            f"{fspath(source)} has weights for {', '.join(weights)[:300]}; this agent needs {', '.join(names)}"
        )
    for name in names:
        if abs(weights[name]) > MAX_WEIGHT:
            raise InputError(f"{fspath(source)}: weights.{name} is {weights[name]:g}; at most {MAX_WEIGHT:g} is read")
    return np.array([float(weights[name]) for name in names])
