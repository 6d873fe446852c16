"""Error messages that name arguments of Python functions, reworded with the options of the command that ran."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["with_option_names"]

ALIASES: Mapping[str, str] = {
    "window_jobs": "window",
    "reward": "objective",
    "promise": "max_slowdown_ratio",
    "n_envs": "num_envs",
    "quasi": "quasi_identifiers",
    "trust": "allow_pickle_with",
    "grow": "scale_jobs",
    "mix": "job_mix",
}
"""Argument or field of a Python function to the parameter of a command that sets it, where the two differ."""
_VALUE = r"'[^']*'|\"[^\"]*\"|True|False|-?\d[\w.]*%?"
_ARGUMENT = re.compile(rf"(?<![\w:.,=+'\"/-])(--)?([a-z]\w*(?:-\w+)*)(?:=({_VALUE}))?(?![\w=(:/'\"-]|\.\w)")


def with_option_names(text: str, options: Mapping[str, Any]) -> str:
    """The text with arguments spelled as options: ``at_limit='kill'`` becomes ``--at-limit kill``.

    Only arguments that the command has an option for are replaced: ``name=value`` where the value is a literal, names
    with an underscore, and options spelled after a field (``--scope``).

    Args:
        text: the message of an error.
        options: the command's click parameters by name; see `app.options_of`.
    """

    def replaced(match: re.Match[str]) -> str:
        dashes, word, value = match.groups()
        name = word.replace("-", "_")
        if dashes and name in options:
            return match[0]
        if not dashes and value is None and "_" not in word:
            return match[0]
        option = options.get(name, options.get(ALIASES.get(name, "")))
        return match[0] if option is None else _spelled(option, value)

    return _ARGUMENT.sub(replaced, text)


def _spelled(option: Any, value: str | None) -> str:
    """An option with its value, as written on a command line."""
    name = _longest(option.opts)
    if value is None:
        return name
    if option.is_flag:
        return name if value == "True" or not option.secondary_opts else _longest(option.secondary_opts)
    return f"{name} {value.strip(chr(39) + chr(34))}"


def _longest(names: Sequence[str]) -> str:
    return max(names, key=len)
