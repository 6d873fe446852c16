"""An agent from its file, whatever it is made of."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilowait.agents.linear_batch import agent as linear
from kilowait.agents.linear_gpu import agent as placed
from kilowait.errors import InputError

if TYPE_CHECKING:
    from kilowait.agents.linear_batch.agent import LinearAgent
    from kilowait.agents.linear_gpu.agent import LinearGpuAgent
    from kilowait.agents.linear_power.agent import LinearPowerAgent
    from kilowait.agents.network_policies.batch import NetworkAgent
    from kilowait.agents.network_policies.gpu import GpuNetworkAgent
    from kilowait.agents.network_policies.power import EnergyNetworkAgent

__all__ = ["load_agent"]

STEERING = "kilowait steering agent"
"""Format of the files of `agents.linear_power`."""


def load_agent(
    path: str | PathLike[str],
) -> LinearAgent | LinearGpuAgent | LinearPowerAgent | NetworkAgent | GpuNetworkAgent | EnergyNetworkAgent:
    """The agent a file, or the folder that ``kilowait train`` wrote, holds: weights of a score, or a network.

    A file that is not one, or is damaged, is an InputError that says why.
    """
    source = Path(path)
    if source.is_dir():
        found = [source / name for name in ("agent.pt", "agent.json") if (source / name).exists()]
        if not found:
            raise InputError(f"{source} holds no agent.pt or agent.json; train one with kilowait train")
        source = found[0]
    try:
        with source.open("rb") as file:
            beginning = file.read(1)
    except OSError:
        beginning = b"{"  # the reader below has the words for it
    if beginning == b"{" or source.suffix == ".json":
        return _of_weights(source)
    from kilowait.agents.network_policies.batch import network_agent

    return network_agent(source)


def _of_weights(source: Path) -> LinearAgent | LinearGpuAgent | LinearPowerAgent:
    """The agent of a JSON file: one that orders jobs, on placed nodes their GPU types, or steers power too."""
    data = _document(source)
    if data.get("format") == placed.FORMAT:
        return placed.agent_from(data, source)
    if data.get("format") == STEERING:
        from kilowait.agents.linear_power.agent import steered_agent  # envs want an extra

        return steered_agent(data, source)
    return linear.load_agent(source)


def _document(source: Path) -> dict[str, Any]:
    """The JSON object of the file; an empty one where it is none, for which the reader of agents has the words."""
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
