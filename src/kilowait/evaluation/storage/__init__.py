"""Folders of runs, comparisons, agents, predictions and synthetic-workload scores; read without Numba or torch."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from kilowait.errors import InputError
from kilowait.evaluation.storage.comparison import ComparisonFolder, load_comparison, save_comparison
from kilowait.evaluation.storage.folder import (
    ResultFolder,
    check_files,
    check_writable,
    checked_manifest,
    plain_json,
    read_json,
    results_writer,
    save_folder,
    writable_folder,
)
from kilowait.evaluation.storage.run import RunFolder, comparison_of_runs, load_run, save_run
from kilowait.files.documents import read_toml

__all__ = [
    "ComparisonFolder",
    "PredictionFolder",
    "RunFolder",
    "SyntheticScoreFolder",
    "AgentFolder",
    "check_writable",
    "comparison_of_runs",
    "load_comparison",
    "load_run",
    "open_folder",
    "plain_json",
    "results_writer",
    "save_comparison",
    "save_folder",
    "save_run",
    "writable_folder",
]


class AgentFolder(ResultFolder):
    """Opened folder of a trained agent: its training results, not the agent itself."""


class PredictionFolder(ResultFolder):
    """Opened folder of run-time predictions of a log."""


class SyntheticScoreFolder(ResultFolder):
    """Opened folder of a synthetic workload's similarity scores."""


_OF_RESULTS: dict[str, type[AgentFolder | PredictionFolder | SyntheticScoreFolder]] = {
    "agent": AgentFolder,
    "predictions": PredictionFolder,
    "synthetic": SyntheticScoreFolder,
}
"""Folder kinds that have a scenario and results, but no logs."""


def open_folder(
    path: str | PathLike[str],
) -> RunFolder | ComparisonFolder | AgentFolder | PredictionFolder | SyntheticScoreFolder:
    """Open a folder written by kilowait, whatever its kind.

    A foreign, incomplete or modified folder raises an InputError with the reason.
    """
    folder = Path(path)
    manifest = checked_manifest(folder)
    kind = manifest.get("kind")
    if kind == "run":
        return load_run(folder)
    if kind == "comparison":
        return load_comparison(folder)
    if kind in _OF_RESULTS:
        check_files(manifest, ("scenario.toml", "results.json"), folder)
        scenario = read_toml(folder / "scenario.toml", remedy="write the folder again")
        return _OF_RESULTS[kind](folder, scenario, manifest, read_json(folder / "results.json", folder))
    raise InputError(
        f"{folder} holds a {str(kind)[:100]!r}, which is neither a run, a comparison, an agent, predictions nor the "
        "score of a synthetic workload"
    )
