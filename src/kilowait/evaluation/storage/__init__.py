"""What runs, comparisons, trained agents, predictions and scores leave behind; opened without Numba or torch."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.evaluation.storage.comparison import ComparisonFolder, load_comparison, save_comparison
from kilowait.evaluation.storage.folder import (
    check_writable,
    checked_manifest,
    plain_json,
    read_json,
    save_folder,
)
from kilowait.evaluation.storage.run import (
    RunFolder,
    contest_of_runs,
    load_run,
    save_run,
)

__all__ = [
    "ComparisonFolder",
    "PredictionFolder",
    "RunFolder",
    "SyntheticScoreFolder",
    "AgentFolder",
    "check_writable",
    "contest_of_runs",
    "load_comparison",
    "load_run",
    "open_folder",
    "plain_json",
    "save_comparison",
    "save_folder",
    "save_run",
]


@dataclass(frozen=True)
class AgentFolder:
    """The folder of a trained agent, opened: how the training went, not the agent itself."""

    path: Path
    scenario: dict[str, Any]
    manifest: dict[str, Any]
    results: dict[str, Any]


@dataclass(frozen=True)
class PredictionFolder:
    """The folder on a log's predicted run times, opened."""

    path: Path
    scenario: dict[str, Any]
    manifest: dict[str, Any]
    results: dict[str, Any]


@dataclass(frozen=True)
class SyntheticScoreFolder:
    """The folder on how like a synthetic workload is to a real one, opened."""

    path: Path
    scenario: dict[str, Any]
    manifest: dict[str, Any]
    results: dict[str, Any]


_OF_RESULTS: dict[str, type[AgentFolder] | type[PredictionFolder] | type[SyntheticScoreFolder]] = {
    "agent": AgentFolder,
    "foresight": PredictionFolder,
    "synthetic": SyntheticScoreFolder,
}
"""Kinds that are a scenario and results, no logs."""


def open_folder(
    path: str | PathLike[str],
) -> RunFolder | ComparisonFolder | AgentFolder | PredictionFolder | SyntheticScoreFolder:
    """Whatever kilowait wrote there.

    A folder of something else, half there or changed is an InputError that says what is wrong.
    """
    folder = Path(path)
    manifest = checked_manifest(folder)
    kind = manifest.get("kind")
    if kind == "run":
        return load_run(folder)
    if kind == "comparison":
        return load_comparison(folder)
    if kind in _OF_RESULTS:
        scenario = tomllib.loads((folder / "scenario.toml").read_text(encoding="utf-8"))
        return _OF_RESULTS[kind](folder, scenario, manifest, read_json(folder / "results.json", folder))
    raise InputError(
        f"{folder} holds a {kind!r}, which is neither a run, a comparison, an agent, predictions (foresight) nor the "
        "score of a synthetic workload"
    )
