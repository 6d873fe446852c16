"""Help texts and examples name only options that their command has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kilowait.cli import app
from kilowait.cli.app import command

OPTION = re.compile(r"(?<![\w-])--?[a-z](?:[\w-]*\w)?")
COMMAND = re.compile(r"kilowait((?: [a-z][a-z-]*)+)")
OTHER_PROGRAMS = re.compile(r"pip install \S+|\$\(.*?\)[\w.-]*|sacct -P")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and subcommand with its path."""
    yield path, group
    for name in getattr(group, "commands", ()):
        yield from commands(group.commands[name], (*path, name))


ALL = dict(commands(command()))


def options(path: tuple[str, ...]) -> set[str]:
    """The options of a command, and those of kilowait itself."""
    names = {"--help", "-h", "-v", "--debug"}
    for option in ALL[path].params:
        names |= {*option.opts, *option.secondary_opts}
    return names


def path_of(words: list[str]) -> tuple[str, ...]:
    """The longest command that these words begin with."""
    while words and tuple(words) not in ALL:
        words = words[:-1]
    return tuple(words)


def wrong_options(path: tuple[str, ...], text: str) -> list[str]:
    """Options in the text that belong neither to this command nor to the ``kilowait VERB`` right before them.

    A ``kilowait VERB`` counts up to the end of its line or the next ``;``, ``.`` or ``)`` followed by a blank.
    """
    wrong = []
    text = re.sub(r"\\\n\s*", "", OTHER_PROGRAMS.sub("", text))
    for part in re.split(r"\n|; |\. |\) |\(|, ", text):
        named: list[tuple[str, ...]] = [path]
        for match in re.finditer(rf"{COMMAND.pattern}|{OPTION.pattern}", part):
            if match[0].startswith("kilowait"):
                named = [path_of(match[0].split()[1:]) or path]
            elif not any(match[0] in options(command_path) for command_path in named):
                wrong.append(f"{' '.join(named[0])} {match[0]}")
    return wrong


def texts(path: tuple[str, ...]) -> list[str]:
    """All help texts of a command."""
    definition = ALL[path]
    parts = [
        definition.help or "",
        getattr(definition, "epilog", None) or "",
        getattr(definition, "short_help", None) or "",
    ]
    return parts + [getattr(option, "help", None) or "" for option in definition.params]


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "kilowait")
def test_help_names_only_options_of_the_command(path):
    assert [wrong for text in texts(path) for wrong in wrong_options(path, text)] == []


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "kilowait")
def test_every_option_and_command_has_a_help_text(path):
    definition = ALL[path]
    assert definition.help or definition.callback is None
    assert [option.name for option in definition.params if not getattr(option, "help", None)] == []
    if not getattr(definition, "commands", None):
        assert f"  kilowait {' '.join(path)}" in (definition.epilog or "")


def test_each_option_has_one_parameter_name():
    """One parameter name for each option, and one place for the options of several commands."""
    names: dict[str, set[str]] = {}
    for path in ALL:
        for option in ALL[path].params:
            if option.param_type_name == "option":
                names.setdefault(max(option.opts, key=len), set()).add(option.name)
    several = {option: parameters for option, parameters in names.items() if len(parameters) > 1}
    assert several == {}


def test_the_check_finds_a_wrong_option():
    assert wrong_options(("train",), "With --power: needs --weather.") == ["train --weather"]
    assert wrong_options(("train",), "written by kilowait compare --clairvoyant") == []
    assert wrong_options(("train",), "kilowait energy describe polaris --power") == ["energy describe --power"]


def test_summaries_of_the_root_help_are_short():
    assert max(len(summary) for _, summary in app.VERBS.values()) <= 80
