"""The commands by name, checks of their arguments, and the wording of errors with their options.

Each module of a command is imported only when the command is used, so that ``kilowait --help`` is quick.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import kilowait
from kilowait.cli.console import PLAIN
from kilowait.errors import InputError

VERBS: dict[str, tuple[str, str]] = {
    "quickstart": ("kilowait.cli.report", "Run a first comparison and training on a synthetic workload."),
    "simulate": ("kilowait.cli.simulate", "Replay a job log under one scheduling policy; print waits."),
    "compare": ("kilowait.cli.compare", "Compare several policies on the same jobs, with significance tests."),
    "report": ("kilowait.cli.report", "Write an HTML page with tables and figures from result folders."),
    "energy": ("kilowait.cli.energy", "Power of a cluster, and what power controls save on a log."),
    "train": ("kilowait.cli.train", "Train a scheduling agent on a job log."),
    "tune": ("kilowait.cli.train", "Search for hyperparameters of a training algorithm."),
    "evaluate": ("kilowait.cli.evaluate", "Test a trained agent against policies on a log."),
    "export": ("kilowait.cli.evaluate", "Export a trained network as ONNX or TorchScript."),
    "pareto": ("kilowait.cli.evaluate", "Pareto front of an agent over preferences between objectives."),
    "predict": ("kilowait.cli.predict", "Predict run time, wait, power or energy of jobs."),
    "traces": ("kilowait.cli.traces", "Job logs: describe, convert, anonymize, list, fetch."),
    "telemetry": ("kilowait.cli.telemetry", "Measure power and carbon intensity; assign energy to jobs."),
    "synth": ("kilowait.cli.synth", "Synthetic workloads: fit a generator to a log, sample, score."),
    "policies": ("kilowait.cli.listings", "List the scheduling policies."),
    "clusters": ("kilowait.cli.listings", "List the preset clusters and GPU types."),
    "bench": ("kilowait.cli.simulate", "Measure the speed of kilowait on this machine."),
}
"""Name of a command to its module and its line in the help.

The module has `app`, a typer.Typer, which is the command or has a command of this name. The command of a missing module
is left out."""

_DEBUG = ("-v", "--debug")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PARTS = re.compile(r"[,=:+]")
ALIASES: Mapping[str, str] = {
    "window_jobs": "window",
    "min_run_before_preempt_s": "preempt_min_runtime",
    "round_interval_s": "round_interval",
    "checkpoint_s": "checkpoint_interval",
    "checkpoint_load_s": "checkpoint_load_time",
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


class Interrupted(Exception):
    """Ctrl-C, passed through typer, whose versions handle KeyboardInterrupt differently."""


class _Verbs(MutableMapping[str, Any]):
    """The commands by name, each built when typer first asks for it."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}
        self._names = [verb for verb, (module, _) in VERBS.items() if find_spec(module) is not None]

    def __getitem__(self, verb: str) -> Any:
        if verb not in self._names:
            raise KeyError(verb)
        if verb not in self._built:
            built = get_command(import_module(VERBS[verb][0]).app)
            self._built[verb] = getattr(built, "commands", {}).get(verb, built)
            self._built[verb].name = verb
        return self._built[verb]

    def __setitem__(self, verb: str, built: Any) -> None:
        self._built[verb] = built

    def __delitem__(self, verb: str) -> None:
        del self._built[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, verb: object) -> bool:
        return verb in self._names


class _Root(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Verbs()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, VERBS[verb][1]) for verb in self.commands])

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Parse the arguments; Ctrl-C is passed on as `Interrupted`."""
        try:
            return super().make_context(*args, **settings)
        except KeyboardInterrupt:
            raise Interrupted from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C is passed on as `Interrupted`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


_EPILOG = """\b
Example, without any data:
  kilowait compare lublin:5000:128:0.9 --policies fcfs,sjf,saf

-v or --debug, anywhere, prints the traceback of an error."""

_root = typer.Typer(
    cls=_Root,
    add_completion=False,
    no_args_is_help=True,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    **PLAIN,
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"kilowait {kilowait.__version__}")
        raise typer.Exit


@_root.callback()
def _kilowait(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Simulate batch scheduling on HPC and GPU clusters: replay job logs, train schedulers, account for energy."""


def command() -> Any:
    """The root command."""
    return get_command(_root)


def options_of(arguments: list[str]) -> dict[str, Any]:
    """The options, by parameter name, of the command that these arguments run."""
    current: Any = command()
    for argument in arguments:
        if argument in getattr(current, "commands", ()):
            current = current.commands[argument]
    return {option.name: option for option in current.params if option.param_type_name == "option"}


def without_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without -v and --debug, which may be anywhere before ``--``, and whether one was given."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    remaining = [argument for argument in arguments[:end] if argument not in _DEBUG]
    return [*remaining, *arguments[end:]], len(remaining) < end


# -- checks of arguments and wording of errors --------------------------------------------------------


def check_arguments(arguments: Sequence[str]) -> None:
    """InputError if an argument names a pipe, or one with bytes that are no UTF-8 would be written to a result folder.

    Result folders store the command and the names of its inputs as UTF-8, and training would fail only at its end.
    Pipes of the shell (``<(zcat log.gz)``) are below /dev or /proc and stay allowed; opening any other waits for a
    writer, perhaps for ever.

    >>> check_arguments(["simulate", "log.swf", "--out", "runs/a"])
    """
    name = undecodable_name(arguments)
    if name is not None and any(re.match(r"--out\b|-o", argument) for argument in arguments):
        raise InputError(f"the name {name} has bytes that are no UTF-8, and result files are UTF-8; rename it")
    for argument in arguments:
        for part in {argument, *_PARTS.split(argument)}:
            if _is_named_pipe(part):
                raise InputError(f"{part} is a named pipe; write its content to a file first, and name that")


def undecodable_name(arguments: Sequence[str]) -> str | None:
    """The first argument with bytes that are no UTF-8, if any."""
    return next((argument for argument in arguments if _SURROGATE.search(argument)), None)


def _is_named_pipe(name: str) -> bool:
    if not name or "\0" in name or name.startswith(("/dev/", "/proc/")):
        return False
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False


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
