"""The folder of a trained agent: its file, the scenario, the training history and the test results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.evaluation.storage import plain_json, save_folder
from kilowait.files.toml_file import to_toml

__all__ = ["save_agent_folder"]


def save_agent_folder(
    out: str | PathLike[str],
    write_agent: Callable[[Path], object],
    results: Mapping[str, Any],
    *,
    scenario: Mapping[str, Any],
    manifest: Mapping[str, Any],
    force: bool = False,
) -> Path:
    """Write the folder atomically; `write_agent` writes the agent's file into the folder it is given."""

    def fill(folder: Path) -> None:
        write_agent(folder)
        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    return save_folder(out, fill, kind="agent", manifest=manifest, force=force)
