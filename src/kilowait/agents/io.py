"""Loading an agent of any kind from its file or folder."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from kilowait.agents.linear_batch import agent as linear_batch
from kilowait.agents.linear_file import read_agent_document
from kilowait.agents.linear_gpu import agent as linear_gpu
from kilowait.errors import InputError
from kilowait.files.regular_file import open_regular

if TYPE_CHECKING:
    from kilowait.agents.linear_batch.agent import LinearAgent
    from kilowait.agents.linear_gpu.agent import LinearGpuAgent
    from kilowait.agents.linear_power.agent import LinearPowerAgent
    from kilowait.agents.network_policies.batch import NetworkAgent
    from kilowait.agents.network_policies.gpu import GpuNetworkAgent
    from kilowait.agents.network_policies.power import EnergyNetworkAgent

__all__ = ["agent_file", "load_agent"]

LINEAR_POWER_FORMAT = "kilowait linear power agent"
"""Format of the files of `agents.linear_power`."""
LINEAR_POWER_VERSION_1_FORMAT = "kilowait steering agent"
"""Name of that format up to version 1."""


def load_agent(
    path: str | PathLike[str],
) -> LinearAgent | LinearGpuAgent | LinearPowerAgent | NetworkAgent | GpuNetworkAgent | EnergyNetworkAgent:
    """The agent in a file, or in a folder written by ``kilowait train``: a linear agent or a network.

    A damaged file, or one of another program, raises an InputError with the reason.

    >>> import tempfile, kilowait as kw
    >>> jobs, cluster = kw.lublin(600, nodes=16, load=0.9, seed=1), kw.Cluster.from_nodes(16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     settings = {"generations": 1, "population": 4, "windows": 2, "window_jobs": 50}
    ...     trained = kw.train(jobs, cluster, out=folder, **settings)
    ...     agent = load_agent(folder)
    >>> agent.weights.tolist() == trained.weights.tolist()
    True
    >>> kw.simulate(jobs[:50], cluster, agent).run["policy"]
    'agent'
    """
    source = agent_file(path)
    try:
        with open_regular(source) as file:
            beginning = file.read(1)
    except FileNotFoundError:
        raise InputError(
            f"cannot read the agent {source}: No such file or directory; train one with kilowait train"
        ) from None
    except OSError as problem:
        raise InputError(f"cannot read the agent {source}: {problem.strerror or problem}") from None
    if beginning in (b"{", b"[") or source.suffix == ".json":
        return _linear_agent(source)
    from kilowait.agents.network_policies.batch import network_agent

    return network_agent(source)


def agent_file(path: str | PathLike[str]) -> Path:
    """The file of an agent: the path itself, or the agent.pt or agent.json in a folder."""
    source = Path(path)
    if not source.is_dir():
        return Path(os.path.realpath(source)) if source.is_symlink() else source
    for name in ("agent.pt", "agent.json"):
        if (source / name).exists():
            return source / name
    raise InputError(f"{source} contains no agent.pt or agent.json; train one with kilowait train")


def _linear_agent(source: Path) -> LinearAgent | LinearGpuAgent | LinearPowerAgent:
    """The agent of a JSON file: a linear batch agent, GPU agent or power agent."""
    data = read_agent_document(source)
    if data.get("format") in (linear_gpu.FORMAT, linear_gpu.VERSION_1_FORMAT):
        return linear_gpu.gpu_agent_from_dict(data, source)
    if data.get("format") in (LINEAR_POWER_FORMAT, LINEAR_POWER_VERSION_1_FORMAT):
        from kilowait.agents.linear_power.agent import power_agent_from_dict  # here, as envs need an extra

        return power_agent_from_dict(data, source)
    return linear_batch.linear_agent_from_dict(data, source)
