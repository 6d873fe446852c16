"""Run folders opened, and sorted by what a page makes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.evaluation.comparison import WORDS, Comparison
from kilowait.evaluation.storage import (
    AgentFolder,
    ComparisonFolder,
    PredictionFolder,
    RunFolder,
    SyntheticScoreFolder,
    contest_of_runs,
    open_folder,
)
from kilowait.report.predictions.data import PredictionReportData
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.training.data import TrainingData

__all__ = ["LoadedRuns", "RunSource", "opened"]

Bounded = tuple[Comparison, Mapping[str, float]]
"""A contest, and what no schedule can go below."""


@dataclass(frozen=True)
class RunSource:
    """A folder the numbers come from."""

    folder: str
    kind: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    scenario: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadedRuns:
    """What the folders hold, kind by kind, each in the order in which it was given."""

    contests: list[Bounded] = field(default_factory=list)
    """All single runs together are the first."""
    training: list[TrainingData] = field(default_factory=list)
    foretold: list[PredictionReportData] = field(default_factory=list)
    likened: list[SyntheticScoreData] = field(default_factory=list)
    sources: list[RunSource] = field(default_factory=list)


def opened(folders: Sequence[str | PathLike[str]], say: Callable[[str], None]) -> LoadedRuns:
    """Open the folders; `say` is told which."""
    if not folders:
        raise InputError(
            "no folder to report on; give what simulate, compare, train, predict report or synth score wrote"
        )
    runs: list[RunFolder] = []
    found = LoadedRuns()
    for folder in folders:
        say(f"opening {os.fspath(folder)}")
        _check_finished(Path(folder))
        one = open_folder(folder)
        kind = str(one.manifest.get("kind", "run"))
        found.sources.append(RunSource(os.fspath(folder), kind, one.manifest, one.scenario))
        if isinstance(one, RunFolder):
            runs.append(one)
        elif isinstance(one, ComparisonFolder):
            found.contests.extend(zip(one.contests, _bounds(one), strict=True))
        elif isinstance(one, PredictionFolder):
            found.foretold.append(PredictionReportData(one.path.name, one.results["foresight"]))
        elif isinstance(one, SyntheticScoreFolder):
            found.likened.append(SyntheticScoreData(one.path.name, one.results["synthetic"]))
        else:
            found.training.append(_trained(one))
    if runs:
        found.contests.insert(0, (contest_of_runs(runs), {}))
    return found


def _check_finished(folder: Path) -> None:
    """The state of a training lies beside the folder of its agent, and is easily named instead."""
    if (folder / "last.safetensors").exists() and not (folder / "manifest.json").exists():
        raise InputError(
            f"{folder} holds the state of a training, not what came out of it; report on "
            f"{folder.with_suffix('')}, which kilowait train writes at the end"
        )


def _bounds(opened: ComparisonFolder) -> list[Mapping[str, float]]:
    """Of each trace: what no schedule can go below, where the comparison worked it out."""
    traces = opened.results.get("traces") or [{}] * len(opened.contests)
    return [
        {name: value for name, value in (trace.get("lower_bounds") or {}).items() if value is not None}
        for trace in traces
    ]


def _trained(opened: AgentFolder) -> TrainingData:
    results = opened.results
    objective = str(results.get("objective") or "objective")
    return TrainingData(
        opened.path.name,
        WORDS.get(objective, objective),
        results.get("training") or (),
        results.get("weights") or (),
        results.get("judged") or {},
        results.get("explained") or {},
        opened.scenario.get("training") or {},
        results.get("plain_rule"),
        results.get("front") or {},
    )
