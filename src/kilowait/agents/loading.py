"""An agent from its file, whatever it is made of."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from kilowait.agents import linear
from kilowait.errors import InputError

if TYPE_CHECKING:
    from kilowait.agents.gpu_player import GpuNetworkAgent
    from kilowait.agents.linear import LinearAgent
    from kilowait.agents.player import NetworkAgent

__all__ = ["load_agent"]


def load_agent(path: str | PathLike[str]) -> LinearAgent | NetworkAgent | GpuNetworkAgent:
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
        return linear.load_agent(source)
    from kilowait.agents.player import network_agent

    return network_agent(source)
