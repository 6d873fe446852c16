"""Hyperparameters of an RL algorithm in a TOML file, written by ``kilowait tune`` or by the user.

::

    algo = "ppo"
    network = "kernel"

    [hyperparameters]
    learning_rate = 0.0007

    [hyperparameters.sizes]
    width = 128

``algo`` and ``network`` are optional. An unknown name, or a value of the wrong type, is an error.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from kilowait import agents
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.train_rl import ALGORITHMS, RLTraining
from kilowait.files.toml_file import to_toml

__all__ = ["HyperparameterFile", "read_hyperparameters", "hyperparameters_toml"]

OPTION_OF_FIELD = {
    "total_timesteps": "--total-timesteps",
    "network": "--network, or network = ... above [hyperparameters]",
}
"""Fields of an algorithm's settings that are not hyperparameters, and the option that sets each."""
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a string in quotes"}


@dataclass(frozen=True)
class HyperparameterFile:
    """Content of a hyperparameter file."""

    algo: str
    network: str
    hyperparameters: Mapping[str, Any]


def hyperparameters_toml(file: HyperparameterFile) -> str:
    """Text of a hyperparameter file.

    >>> print(hyperparameters_toml(HyperparameterFile("ppo", "gat", {"sizes": {"width": 32}})))
    algo = "ppo"
    network = "gat"
    <BLANKLINE>
    [hyperparameters.sizes]
    width = 32
    <BLANKLINE>
    """
    return to_toml({"algo": file.algo, "network": file.network, "hyperparameters": file.hyperparameters})


def read_hyperparameters(
    path: str | PathLike[str], *, algo: str | None = None, network: str | None = None
) -> HyperparameterFile:
    """The hyperparameters in a file, checked.

    Args:
        path: the file.
        algo: the requested algorithm; a file for another one is an error. None: the file's algorithm, or ppo.
        network: the requested network; a file for another one is an error. None: the file's network, or kernel.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"cannot read the hyperparameters in {path}: {problem.strerror or problem}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"{path} is not TOML: {problem}; kilowait tune writes such a file") from None
    for name in data:
        if name not in ("algo", "network", "hyperparameters"):
            raise UnknownNameError(f"entry of {path}", name, ("algo", "network", "hyperparameters"))
    for name, option, requested in (("algo", "--algo", algo), ("network", "--network", network)):
        if name in data and requested is not None and data[name] != requested:
            raise InputError(
                f"{path} is for {option} {data[name]}, and {option} {requested} is requested; leave one of them out"
            )
    settings = data.get("hyperparameters", {})
    if not isinstance(settings, dict):
        raise InputError(f"{path}: hyperparameters is {settings!r}; write a table, [hyperparameters]")
    chosen_algo, chosen_network = (data.get("algo", algo or "ppo"), data.get("network", network or "kernel"))
    if chosen_algo not in ALGORITHMS:
        raise UnknownNameError("algorithm with a network", str(chosen_algo), ALGORITHMS)
    if chosen_network not in agents.FEATURE_EXTRACTORS:
        raise UnknownNameError("network", str(chosen_network), agents.FEATURE_EXTRACTORS)
    file = HyperparameterFile(chosen_algo, chosen_network, settings)
    try:
        _check(file)
    except InputError as problem:
        raise InputError(f"{path}: {problem}") from None
    return file


def _check(file: HyperparameterFile) -> None:
    """Raise an error unless the algorithm accepts these hyperparameters."""
    kind = getattr(agents, f"{file.algo.upper()}Settings")
    hints = get_type_hints(kind)
    for name, value in file.hyperparameters.items():
        if name in OPTION_OF_FIELD:
            raise InputError(f"{name} is not a hyperparameter; set it with {OPTION_OF_FIELD[name]}")
        if name not in hints:
            raise UnknownNameError(f"hyperparameter of {file.algo}", name, hints)
        if name == "sizes":
            if not isinstance(value, dict):
                raise InputError(f"sizes is {value!r}; write a table, [hyperparameters.sizes]")
            for size, count in value.items():
                _check_type(size, count, int)
        else:
            _check_type(name, value, hints[name])
    RLTraining(algo=file.algo, network=file.network, hyperparameters=file.hyperparameters).algorithm_settings()


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Raise an error unless the value has the field's type; a float may be an integer, and TOML has no None."""
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if not isinstance(value, list) or len(value) != len(inner):
            raise InputError(f"{name} is {value!r}; it must be a list of {len(inner)} numbers")
        for item, item_type in zip(value, inner, strict=True):
            _check_type(name, item, item_type)
        return
    if isinstance(kind, UnionType):
        kind = next(item for item in get_args(kind) if item is not type(None))
    fits = (
        isinstance(value, bool)
        if kind is bool
        else not isinstance(value, bool) and isinstance(value, (int, float) if kind is float else kind)
    )
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{name} is {value!r}; it must be {TYPE_NAMES[kind]}")
