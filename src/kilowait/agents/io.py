"""Files of agents: loading an agent of any kind from its file or folder, and the JSON files of linear agents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files import write_text
from kilowait.files.documents import parse_json
from kilowait.files.fields import Anything, Field, Number, Record, Text, Values, check_fields
from kilowait.files.regular_file import open_regular, read_bytes

if TYPE_CHECKING:
    from kilowait.agents.linear_batch import LinearAgent
    from kilowait.agents.linear_gpu import LinearGpuAgent
    from kilowait.agents.linear_power import LinearPowerAgent
    from kilowait.agents.network_policies import EnergyNetworkAgent, GpuNetworkAgent, NetworkAgent

LINEAR_POWER_FORMAT = "kilowait linear power agent"
"""Format of the files of `agents.linear_power`."""
LINEAR_POWER_VERSION_1_FORMAT = "kilowait steering agent"
"""Name of that format up to version 1."""
MAX_BYTES = 2**26
"""Maximum size of a file, bytes."""
MAX_VALUES = 2**22
"""Maximum number of lists, objects and their members."""
MAX_WEIGHT = 1e100
"""Maximum absolute value of a weight: sums of weighted features stay finite."""
MAX_NAME = 200
"""Maximum length of an agent's name, characters."""


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
    from kilowait.agents.network_policies import network_agent

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
    from kilowait.agents import linear_batch, linear_gpu  # here, as they import this module

    data = read_agent_document(source)
    if data.get("format") in (linear_gpu.FORMAT, linear_gpu.VERSION_1_FORMAT):
        return linear_gpu.gpu_agent_from_dict(data, source)
    if data.get("format") in (LINEAR_POWER_FORMAT, LINEAR_POWER_VERSION_1_FORMAT):
        from kilowait.agents.linear_power import power_agent_from_dict  # here, as envs need an extra

        return power_agent_from_dict(data, source)
    return linear_batch.linear_agent_from_dict(data, source)


def read_agent_document(source: str | PathLike[str]) -> dict[str, Any]:
    """The JSON object of an agent's file; InputError if it has none.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b'{"format": "x"}')
    ...     file.flush()
    ...     read_agent_document(file.name)
    {'format': 'x'}
    """
    name = fspath(source)
    try:
        text = read_bytes(source, max_bytes=MAX_BYTES)
    except OSError as problem:
        raise InputError(
            f"cannot read the agent {name}: {problem.strerror or problem}; train one with kilowait train"
        ) from None
    if sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise InputError(f"{name} contains no agent: it has more than {MAX_VALUES:,} values")
    try:
        data = parse_json(text, source)
    except InputError as problem:
        raise InputError(
            f"{name} contains no agent: it is not JSON, or is cut off ({problem}); write it again with kilowait train"
        ) from None
    if not isinstance(data, dict):
        raise InputError(
            f"{name} contains no agent: its format is {type(data).__name__!r}; name the agent.json that kilowait train "
            "wrote"
        )
    return data


def check_agent_fields(
    data: Mapping[str, Any],
    version: int,
    fields: Mapping[str, Field],
    source: str | PathLike[str],
    *,
    optional: Mapping[str, Field] | None = None,
) -> None:
    """Raise an InputError if a linear agent has another version, or an invalid field.

    Args:
        data: contents of the file.
        version: the version that is read.
        fields: fields besides weights, name and provenance.
        source: the file, for the error.
        optional: fields that may be missing.
    """
    name = fspath(source)
    if data.get("version") != version:
        raise InputError(
            f"{name} is an agent of version {data.get('version')!r:.60}; this kilowait reads version {version}: "
            "train it again"
        )
    common: dict[str, Field] = {"weights": Values(Number()), "name": Text(), "provenance": Values(Anything())}
    check_fields(dict(data), Record({**common, **fields}, optional or {}), name, remedy="train it again")
    if len(data["name"]) > MAX_NAME:
        raise InputError(f"{name}: name has {len(data['name']):,} characters; at most {MAX_NAME} are read")


def weights_in_order(
    weights: Mapping[str, Any], features: Iterable[str], source: str | PathLike[str]
) -> npt.NDArray[np.float64]:
    """The weights of these features in their order; InputError if others are there.

    >>> weights_in_order({"b": 2, "a": 1.5}, ("a", "b"), "agent.json").tolist()
    [1.5, 2.0]
    """
    names = tuple(features)
    if set(weights) != set(names):
        raise InputError(
            f"{fspath(source)} has weights for {', '.join(weights)[:300]}; this agent needs {', '.join(names)}"
        )
    for name in names:
        if abs(weights[name]) > MAX_WEIGHT:
            raise InputError(f"{fspath(source)}: weights.{name} is {weights[name]:g}; at most {MAX_WEIGHT:g} is read")
    return np.array([float(weights[name]) for name in names])


def write_agent(path: str | PathLike[str], data: Mapping[str, Any], *, text: str | None = None) -> Path:
    """Write the JSON file of a linear agent: `data`, or a `text` of the same content in another layout."""
    target = Path(path)
    try:
        write_text(target, (json.dumps(data, indent=2, allow_nan=False) if text is None else text) + "\n")
    except OSError as problem:
        raise InputError(f"cannot write the agent to {target}: {problem.strerror or problem}") from None
    return target


class LinearWeights:
    """Base class of linear agents: weights by name."""

    weights: npt.NDArray[np.float64]
    weight_names: ClassVar[tuple[str, ...]]
    """Names of the weights, in order."""

    def explain(self) -> list[tuple[str, float]]:
        """Names and weights, the largest first; a positive weight of a feature moves jobs, or GPU types, back."""
        return sorted(self.weights_by_name().items(), key=lambda pair: -abs(pair[1]))

    def weights_by_name(self) -> dict[str, float]:
        """The weights as plain data, for the file."""
        return dict(zip(self.weight_names, self.weights.tolist(), strict=True))

    def check_weights(self) -> None:
        """Make the weights an array that cannot be written to; InputError if they are not one finite number a name."""
        weights, names = np.array(self.weights, np.float64), self.weight_names
        if weights.shape != (len(names),) or not np.isfinite(weights).all():
            raise InputError(
                f"the weights are {self.weights!r}; give {len(names)} finite numbers, one for each of "
                f"{', '.join(names)}"
            )
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)
