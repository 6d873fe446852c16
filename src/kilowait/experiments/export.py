"""Export of a trained agent's network to a file for other programs."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from kilowait.agents import load_agent
from kilowait.errors import InputError, UnknownNameError

__all__ = ["export_agent"]

EXTENSIONS = {"onnx": "onnx", "torchscript": "ts", "pt2": "pt2"}
"""Formats and their usual file extensions."""


def export_agent(
    agent: str | PathLike[str], *, to: str = "onnx", out: str | PathLike[str] | None = None, force: bool = False
) -> tuple[Path, dict[str, str]]:
    """Write the network of an agent's folder or file; returns the path, and the network's inputs with their shapes.

    Without `out` the file is written beside the agent's folder, with the folder's name.
    An existing file is replaced only with `force`.
    """
    if to not in EXTENSIONS:
        raise UnknownNameError("format of a network", to, EXTENSIONS)
    loaded = load_agent(agent)
    network = getattr(loaded, "network", None)
    if network is None:
        raise InputError(
            f"{agent} is a linear agent, not a network: its weights are in agent.json; "
            "export an agent that was trained with --algo ppo, a2c, d3qn or sac"
        )
    from kilowait.agents.export import export_network

    agent_folder = Path(agent) if Path(agent).is_dir() else Path(agent).absolute().parent
    path = (
        agent_folder.absolute().with_name(f"{agent_folder.absolute().name}.{EXTENSIONS[to]}")
        if out is None
        else Path(out)
    )
    if path.exists() and not force:
        raise InputError(f"{path} already exists; name another file, or replace it with --force")
    return path, export_network(network, path, to=to)
