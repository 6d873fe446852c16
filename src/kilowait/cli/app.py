"""The commands by name. Each module is imported only when its command is used, so that ``kilowait --help`` is quick."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import kilowait
from kilowait.cli.console import PLAIN

__all__ = ["VERBS", "Interrupted", "command", "options_of", "without_debug"]

VERBS: dict[str, tuple[str, str]] = {
    "quickstart": ("kilowait.cli.quickstart", "Run a first comparison and training on a synthetic workload."),
    "simulate": ("kilowait.cli.simulate", "Replay a job log under one scheduling policy; print waits."),
    "compare": ("kilowait.cli.compare", "Compare several policies on the same jobs, with significance tests."),
    "report": ("kilowait.cli.report", "Write an HTML page with tables and figures from result folders."),
    "energy": ("kilowait.cli.energy", "Power of a cluster, and what power controls save on a log."),
    "train": ("kilowait.cli.train", "Train a scheduling agent on a job log."),
    "tune": ("kilowait.cli.tune", "Search for hyperparameters of a training algorithm."),
    "evaluate": ("kilowait.cli.evaluate", "Test a trained agent against policies on a log."),
    "export": ("kilowait.cli.export", "Export a trained network as ONNX or TorchScript."),
    "pareto": ("kilowait.cli.pareto", "Pareto front of an agent over preferences between objectives."),
    "predict": ("kilowait.cli.predict", "Predict run time, wait, power or energy of jobs."),
    "traces": ("kilowait.cli.traces", "Job logs: describe, convert, anonymize, list, fetch."),
    "telemetry": ("kilowait.cli.telemetry", "Measure power and carbon intensity; assign energy to jobs."),
    "synth": ("kilowait.cli.synth", "Synthetic workloads: fit a generator to a log, sample, score."),
    "policies": ("kilowait.cli.policies", "List the scheduling policies."),
    "clusters": ("kilowait.cli.clusters", "List the preset clusters and GPU types."),
    "bench": ("kilowait.cli.bench", "Measure the speed of kilowait on this machine."),
}
"""Name of a command to its module, which has `app`, a typer.Typer, and its line in the help. The command of a missing
module is left out."""

_DEBUG = ("-v", "--debug")


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
            self._built[verb] = get_command(import_module(VERBS[verb][0]).app)
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
