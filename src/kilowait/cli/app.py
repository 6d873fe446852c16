"""The verbs by name, each imported when it is used and not before, so that ``kilowait --help`` is quick."""

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

__all__ = ["VERBS", "Interrupted", "command", "without_debug"]

VERBS: dict[str, tuple[str, str]] = {
    "quickstart": ("kilowait.cli.quickstart", "A first simulation, on a workload made on the spot."),
    "simulate": ("kilowait.cli.simulate", "Replay a job log under one rule and print what users would wait."),
    "compare": ("kilowait.cli.compare", "The same jobs under several rules, with a verdict."),
    "report": ("kilowait.cli.report", "A page with tables and pictures from run folders."),
    "energy": ("kilowait.cli.energy", "What a machine draws, and what levers save on a log."),
    "train": ("kilowait.cli.train", "Search for a rule that beats the known ones on a log."),
    "tune": ("kilowait.cli.tune", "Search for the settings of a learner, on the earlier jobs of a log."),
    "evaluate": ("kilowait.cli.evaluate", "A trained agent against the rules, on a log."),
    "export": ("kilowait.cli.export", "A trained network as ONNX or TorchScript, for other programs."),
    "front": ("kilowait.cli.pareto", "One agent under every preference between two terms or more."),
    "predict": (
        "kilowait.cli.predict",
        "What jobs will take, wait or draw: models compared, fitted, explained.",
    ),
    "traces": ("kilowait.cli.traces", "Job logs: describe, convert, anonymize, list, fetch."),
    "telemetry": ("kilowait.cli.telemetry", "Meters: GPUs, processors, the grid; and the energy of jobs."),
    "synth": ("kilowait.cli.synth", "Workloads learned from a log: fit, sample, score, list."),
    "policies": ("kilowait.cli.policies", "The rules one can simulate, one line each."),
    "clusters": ("kilowait.cli.clusters", "The machines known by name."),
    "bench": ("kilowait.cli.bench", "How fast this kilowait is on this machine."),
}
"""Verb to its module, which has `app`, a typer.Typer, and its line in the help. A missing module's verb is absent."""

_DEBUG = ("-v", "--debug")


class Interrupted(Exception):
    """Ctrl-C, carried past typer, whose versions differ on what to make of it."""


class _Verbs(MutableMapping[str, Any]):
    """The commands typer asks for, made on demand."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._names = [verb for verb, (module, _) in VERBS.items() if find_spec(module) is not None]

    def __getitem__(self, verb: str) -> Any:
        if verb not in self._names:
            raise KeyError(verb)
        if verb not in self._made:
            self._made[verb] = get_command(import_module(VERBS[verb][0]).app)
            self._made[verb].name = verb
        return self._made[verb]

    def __setitem__(self, verb: str, made: Any) -> None:
        self._made[verb] = made

    def __delitem__(self, verb: str) -> None:
        del self._made[verb]

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
        """The list of verbs, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, VERBS[verb][1]) for verb in self.commands])

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; what typer would make of Ctrl-C is none of its business."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


_EPILOG = """\b
A first step, with nothing at hand but kilowait:
  kilowait compare lublin:5000:128:0.9 --policies fcfs,sjf,saf

-v or --debug, anywhere, shows where an error came from."""

_root = typer.Typer(
    cls=_Root,
    add_completion=False,
    no_args_is_help=True,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    **PLAIN,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kilowait {kilowait.__version__}")
        raise typer.Exit


@_root.callback()
def _kilowait(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Replay job logs of batch systems under any scheduling rule, exactly and fast."""


def command() -> Any:
    """The root command."""
    return get_command(_root)


def without_debug(words: list[str]) -> tuple[list[str], bool]:
    """The words without -v and --debug, which may stand anywhere before ``--``, and whether one was there."""
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word not in _DEBUG]
    return [*kept, *words[end:]], len(kept) < end
