"""Settings of an algorithm in a TOML file: what ``kilowait tune`` found, or what somebody wrote.

::

    algo = "ppo"
    net = "kernel"

    [settings]
    learning_rate = 0.0007

    [settings.sizes]
    width = 128

``algo`` and ``net`` may be left out. A misspelt name, or a word where a number belongs, is an error, never ignored.
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
from kilowait.evaluation.storage.toml import to_toml
from kilowait.experiments.train_rl import ALGORITHMS, RLTraining

__all__ = ["FoundSettings", "read_settings", "settings_toml"]

ELSEWHERE = {"total_timesteps": "--total-timesteps", "network": "--network, or net = ... above [settings]"}
"""Fields of an algorithm's settings that have a place of their own."""
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word in quotes"}


@dataclass(frozen=True)
class FoundSettings:
    """What a file says."""

    algo: str
    net: str
    settings: Mapping[str, Any]


def settings_toml(found: FoundSettings) -> str:
    """The text of a file.

    >>> print(settings_toml(FoundSettings("ppo", "gat", {"sizes": {"width": 32}})))
    algo = "ppo"
    net = "gat"
    <BLANKLINE>
    [settings]
    <BLANKLINE>
    [settings.sizes]
    width = 32
    <BLANKLINE>
    """
    return to_toml({"algo": found.algo, "net": found.net, "settings": found.settings})


def read_settings(
    path: str | PathLike[str], *, algo: str | None = None, net: str | None = None
) -> FoundSettings:
    """The settings in a file, looked at closely.

    Args:
        path: the file.
        algo: an algorithm that was asked for: a file for another one is an error. None takes the file's, or ppo.
        net: a network that was asked for, likewise. None takes the file's, or the kernel network.
    """
    try:
        said = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"cannot read the settings {path}: {problem.strerror or problem}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"{path} is no TOML: {problem}; kilowait tune writes such a file") from None
    for name in said:
        if name not in ("algo", "net", "settings"):
            raise UnknownNameError(f"entry of {path}", name, ("algo", "net", "settings"))
    for name, asked in (("algo", algo), ("net", net)):
        if name in said and asked is not None and said[name] != asked:
            raise InputError(
                f"{path} is for --{name} {said[name]}, and --{name} {asked} was asked for; leave one of them out"
            )
    settings = said.get("settings", {})
    if not isinstance(settings, dict):
        raise InputError(f"{path}: settings is {settings!r}; write a table, [settings]")
    chosen, network = said.get("algo", algo or "ppo"), said.get("net", net or "kernel")
    if chosen not in ALGORITHMS:
        raise UnknownNameError("algorithm with a network", str(chosen), ALGORITHMS)
    if network not in agents.KINDS:
        raise UnknownNameError("network", str(network), agents.KINDS)
    found = FoundSettings(chosen, network, settings)
    try:
        _check(found)
    except InputError as problem:
        raise InputError(f"{path}: {problem}") from None
    return found


def _check(found: FoundSettings) -> None:
    """Raise unless the algorithm takes these."""
    kind = getattr(agents, f"{found.algo.upper()}Settings")
    hints = get_type_hints(kind)
    for name, value in found.settings.items():
        if name in ELSEWHERE:
            raise InputError(f"{name} is not a setting here; it is {ELSEWHERE[name]}")
        if name not in hints:
            raise UnknownNameError(f"setting of {found.algo}", name, hints)
        if name == "sizes":
            if not isinstance(value, dict):
                raise InputError(f"sizes is {value!r}; write a table, [settings.sizes]")
            for size, count in value.items():
                _check_type(size, count, int)
        else:
            _check_type(name, value, hints[name])
    RLTraining(algo=found.algo, net=found.net, settings=found.settings).algorithm_settings()


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Raise unless the value is of the field's type, a whole number being a number too; TOML has no None."""
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if not isinstance(value, list) or len(value) != len(inner):
            raise InputError(f"{name} is {value!r}; it must be a list of {len(inner)} numbers")
        for one, of in zip(value, inner, strict=True):
            _check_type(name, one, of)
        return
    if isinstance(kind, UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    fits = (
        isinstance(value, bool)
        if kind is bool
        else not isinstance(value, bool) and isinstance(value, (int, float) if kind is float else kind)
    )
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{name} is {value!r}; it must be {WORDS[kind]}")
