"""The folder of a linear agent: agent.json, the training history, and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.evaluation.storage import plain_json, save_folder
from kilowait.files.toml_file import to_toml

__all__ = ["save_weights"]


def save_weights(
    out: str | PathLike[str],
    agent: Any,
    history: Sequence[Any],
    meanings: Mapping[str, str],
    *,
    scenario: Mapping[str, Any],
    results: Mapping[str, Any],
    manifest: Mapping[str, Any],
    force: bool = False,
) -> Path:
    """Write the folder; `meanings` describes each weight."""
    content = {
        "objective": agent.provenance.get("objective"),
        "training": [asdict(generation) for generation in history],
        "weights": [[name, weight, meanings[name]] for name, weight in agent.explain()],
        **results,
    }

    def fill(folder: Path) -> None:
        agent.save(folder / "agent.json")
        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        (folder / "results.json").write_text(plain_json(content) + "\n", encoding="utf-8")

    return save_folder(out, fill, kind="agent", manifest=manifest, force=force)
