"""Load result folders and sort them by kind; the provenance of each."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.evaluation.comparison import Comparison
from kilowait.evaluation.metric_definitions import metric_name
from kilowait.evaluation.storage import (
    AgentFolder,
    ComparisonFolder,
    PredictionFolder,
    RunFolder,
    SyntheticScoreFolder,
    comparison_of_runs,
    open_folder,
)
from kilowait.files.fields import check_fields
from kilowait.report.data.predictions import PredictionReportData
from kilowait.report.data.synthetic import SyntheticScoreData
from kilowait.report.data.training import TrainingData
from kilowait.report.fields import AGENT_SCENARIO, check_agent_results, check_prediction_results, check_score_results
from kilowait.report.format import Cell, ReportTable


@dataclass(frozen=True)
class LoadedComparison:
    """A comparison with what its folder says about it."""

    comparison: Comparison
    bounds: Mapping[str, float] = field(default_factory=dict)
    """The lower bound of each metric."""
    seed: int = 0
    """The seed of the confidence intervals that the command printed."""


@dataclass(frozen=True)
class RunSource:
    """A folder whose results the report shows."""

    folder: str
    kind: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    scenario: Mapping[str, Any] = field(default_factory=dict)

    def manifest_table(self) -> ReportTable:
        """Versions, seeds, command and checksums."""
        rows: list[list[Cell | str]] = [["folder", Cell(self.folder, kind="code")], ["kind", self.kind]]
        for key, value in self.manifest.items():
            if key in ("kind", "files", "inputs"):
                continue
            if isinstance(value, Mapping):
                shown = ", ".join(f"{name} {_scalar(item)}" for name, item in value.items())
            elif isinstance(value, (list, tuple)):
                items = [_scalar(item) for item in value]
                shown = shlex.join(items) if key == "command" else ", ".join(items)
            else:
                shown = _scalar(value)
            rows.append([str(key), Cell(shown, kind="code") if key == "command" else shown])
        for key, words in (("inputs", "input"), ("files", "file")):
            for name, digest in (self.manifest.get(key) or {}).items():
                rows.append([f"{words}: {name}", Cell(f"sha256 {_scalar(digest)}", kind="code")])
        return ReportTable(f"Manifest of {self.folder}", ["item", "value"], rows, text_columns=(1,))

    def scenario_text(self) -> str:
        """The scenario as indented JSON."""
        return json.dumps(self.scenario, indent=2, ensure_ascii=False, default=str)


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class LoadedRuns:
    """The contents of the folders by kind, each in input order."""

    comparisons: list[LoadedComparison] = field(default_factory=list)
    """All single runs together form the first comparison."""
    training: list[TrainingData] = field(default_factory=list)
    predictions: list[PredictionReportData] = field(default_factory=list)
    synthetic_scores: list[SyntheticScoreData] = field(default_factory=list)
    sources: list[RunSource] = field(default_factory=list)


def load_runs(folders: Sequence[str | PathLike[str]], report_progress: Callable[[str], None]) -> LoadedRuns:
    """Open the folders; `report_progress` is called with a message for each."""
    if not folders:
        raise InputError(
            "no folder to report on; give a folder that simulate, compare, train, predict report or synth score wrote"
        )
    runs: list[RunFolder] = []
    loaded = LoadedRuns()
    for folder in folders:
        report_progress(f"opening {os.fspath(folder)}")
        _check_finished(Path(folder))
        content = open_folder(folder)
        kind = str(content.manifest.get("kind", "run"))
        loaded.sources.append(RunSource(os.fspath(folder), kind, content.manifest, content.scenario))
        if isinstance(content, RunFolder):
            runs.append(content)
        elif isinstance(content, ComparisonFolder):
            seed = _seed(content)
            pairs = zip(content.comparisons, _bounds(content), strict=True)
            loaded.comparisons.extend(LoadedComparison(comparison, bounds, seed) for comparison, bounds in pairs)
        elif isinstance(content, PredictionFolder):
            check_prediction_results(content.results, content.path / "results.json")
            loaded.predictions.append(PredictionReportData(content.path.name, content.results["predictions"]))
        elif isinstance(content, SyntheticScoreFolder):
            check_score_results(content.results, content.path / "results.json")
            loaded.synthetic_scores.append(SyntheticScoreData(content.path.name, content.results["synthetic"]))
        else:
            check_agent_results(content.results, content.path / "results.json")
            check_fields(content.scenario, AGENT_SCENARIO, content.path / "scenario.toml")
            loaded.training.append(_training_data(content))
    if runs:
        loaded.comparisons.insert(0, LoadedComparison(comparison_of_runs(runs)))
    return loaded


def _check_finished(folder: Path) -> None:
    """Raise if the folder is a training checkpoint, which lies beside the agent's folder, instead of the agent's."""
    if (folder / "last.safetensors").exists() and not (folder / "manifest.json").exists():
        raise InputError(
            f"{folder} holds a training checkpoint, not a trained agent; report on "
            f"{folder.with_suffix('')}, which kilowait train writes at the end"
        )


def _bounds(folder: ComparisonFolder) -> list[Mapping[str, float]]:
    """The lower bounds of each trace, where the comparison computed them."""
    traces = folder.results.get("traces") or [{}] * len(folder.comparisons)
    return [
        {name: value for name, value in (trace.get("lower_bounds") or {}).items() if value is not None}
        for trace in traces
    ]


def _seed(folder: ComparisonFolder) -> int:
    """The seed of the comparison, so that the page has the intervals that the command printed; 0 if it is unknown."""
    seeds = folder.manifest.get("seeds")
    seed = seeds.get("comparison") if isinstance(seeds, Mapping) else None
    return seed if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 else 0


def _training_data(folder: AgentFolder) -> TrainingData:
    results = folder.results
    objective = str(results.get("objective") or "objective")
    return TrainingData(
        folder.path.name,
        metric_name(objective),
        results.get("training") or (),
        results.get("weights") or (),
        results.get("judged") or {},
        results.get("explained") or {},
        folder.scenario.get("training") or {},
        results.get("search_outcome"),
        results.get("front") or {},
    )
