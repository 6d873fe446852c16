"""Loading an agent of any kind from its file or folder."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilowait.agents.linear_batch import agent as linear_batch
from kilowait.agents.linear_gpu import agent as linear_gpu
from kilowait.errors import InputError

if TYPE_CHECKING:
    from kilowait.agents.linear_batch.agent import LinearAgent
    from kilowait.agents.linear_gpu.agent import LinearGpuAgent
    from kilowait.agents.linear_power.agent import LinearPowerAgent
    from kilowait.agents.network_policies.batch import NetworkAgent
    from kilowait.agents.network_policies.gpu import GpuNetworkAgent
    from kilowait.agents.network_policies.power import EnergyNetworkAgent

__all__ = ["load_agent"]

LINEAR_POWER_FORMAT = "kilowait linear power agent"
"""Format of the files of `agents.linear_power`."""
LINEAR_POWER_VERSION_1_FORMAT = "kilowait steering agent"
"""Name of that format up to version 1."""


def load_agent(
    path: str | PathLike[str],
) -> LinearAgent | LinearGpuAgent | LinearPowerAgent | NetworkAgent | GpuNetworkAgent | EnergyNetworkAgent:
    """The agent in a file, or in a folder written by ``kilowait train``: a linear agent or a network.

    A damaged file, or one of another program, raises an InputError with the reason.
    """
    source = Path(path)
    if source.is_dir():
        candidates = [source / name for name in ("agent.pt", "agent.json") if (source / name).exists()]
        if not candidates:
            raise InputError(f"{source} contains no agent.pt or agent.json; train one with kilowait train")
        source = candidates[0]
    try:
        with source.open("rb") as file:
            beginning = file.read(1)
    except OSError:
        beginning = b"{"  # the JSON reader below raises the error
    if beginning == b"{" or source.suffix == ".json":
        return _linear_agent(source)
    from kilowait.agents.network_policies.batch import network_agent

    return network_agent(source)


def _linear_agent(source: Path) -> LinearAgent | LinearGpuAgent | LinearPowerAgent:
    """The agent of a JSON file: a linear batch agent, GPU agent or power agent."""
    data = _document(source)
    if data.get("format") in (linear_gpu.FORMAT, linear_gpu.VERSION_1_FORMAT):
        return linear_gpu.agent_from(data, source)
    if data.get("format") in (LINEAR_POWER_FORMAT, LINEAR_POWER_VERSION_1_FORMAT):
        from kilowait.agents.linear_power.agent import power_agent_from_dict  # here, as envs need an extra

        return power_agent_from_dict(data, source)
    return linear_batch.load_agent(source)


def _document(source: Path) -> dict[str, Any]:
    """The JSON object of the file; an empty one if it has none, for which the reader of agents raises the error."""
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
