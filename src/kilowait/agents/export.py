"""Export of a trained network: ONNX, TorchScript, or the file format of torch.export.

The inputs have the names and shapes of an observation (`kilowait.envs.observation_spec`), one row an environment, with
any number of rows; the output is `scores`, one an action, -inf where the mask forbids. The greedy action is their
argmax.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kilowait.agents.networks.heads import Network
from kilowait.agents.networks.spec import spec_to_dict
from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.files import write_bytes

OPSET = 20
"""ONNX opset: supported by onnxruntime 1.17 and later."""


class Exportable(nn.Module):
    """A network with the arrays of an observation as separate arguments, and without data-dependent shapes."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = deepcopy(network).cpu().eval()
        self.network.body.all_slots = True

    def forward(self, jobs: Tensor, mask: Tensor, summary: Tensor, edges: Tensor | None = None) -> Tensor:
        """(B, actions) scores; larger is better, -inf where the mask forbids."""
        observation = {"jobs": jobs, "mask": mask, "summary": summary}
        return self.network.scores(observation if edges is None else {**observation, "edges": edges})


def export_network(network: Network, path: str | PathLike[str], *, to: str = "onnx") -> dict[str, str]:
    """Write a network in one of FORMATS; returns the names of its inputs with their shapes, in order.

    The file also contains the names of the columns of ``jobs`` and ``summary``, and the encoding of actions.

    >>> import tempfile
    >>> from kilowait.agents.networks import network
    >>> from kilowait.agents.networks.spec import LoadedSpec
    >>> agent = network(LoadedSpec(("length",), ("free",), slots=2, choices=1, extra=0, graph=False))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_network(agent, f"{folder}/agent.onnx")
    {'jobs': 'float32 (batch, 2, 1)', 'mask': 'int8 (batch, 2)', 'summary': 'float32 (batch, 1)'}
    """
    if to not in FORMATS:
        raise UnknownNameError("format of a network", to, FORMATS)
    path = Path(path)
    inputs = _example(network)
    metadata = json.dumps({**spec_to_dict(network.spec), "config": network.config})
    with _quiet(), torch.no_grad():
        content = FORMATS[to](Exportable(network), inputs, metadata)
    try:
        write_bytes(path, content)
    except OSError as problem:
        raise InputError(f"cannot write {path}: {problem.strerror}; name another file") from None
    return {
        name: f"{str(array.dtype).removeprefix('torch.')} (batch, {', '.join(map(str, array.shape[1:]))})"
        for name, array in inputs.items()
    }


def _onnx(network: Exportable, inputs: dict[str, Tensor], metadata: str) -> bytes:
    """ONNX file with opset OPSET, named inputs, a dynamic first dimension, and one output."""
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "export")
    program = torch.onnx.export(
        network,
        kwargs=inputs,
        input_names=list(inputs),
        output_names=["scores"],
        opset_version=OPSET,
        dynamic_shapes=_dynamic(inputs),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    model = program.model_proto
    model.metadata_props.add(key="kilowait", value=metadata)
    content: bytes = model.SerializeToString()
    return content


def _torchscript(network: Exportable, inputs: dict[str, Tensor], metadata: str) -> bytes:
    """TorchScript file, which libtorch loads without Python."""
    traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
        network, tuple(inputs.values()), check_trace=False
    )
    file = io.BytesIO()
    torch.jit.save(traced, file, _extra_files={"kilowait.json": metadata.encode()})
    return file.getvalue()


def _pt2(network: Exportable, inputs: dict[str, Tensor], metadata: str) -> bytes:
    """Program of torch.export, the successor of TorchScript."""
    program = torch.export.export(network, (), inputs, dynamic_shapes=_dynamic(inputs))
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={"kilowait.json": metadata})
    return file.getvalue()


FORMATS: dict[str, Callable[[Exportable, dict[str, Tensor], str], bytes]] = {
    "onnx": _onnx,
    "torchscript": _torchscript,
    "pt2": _pt2,
}
"""Writers of the formats, by name."""


def _example(network: Network) -> dict[str, Tensor]:
    """Example inputs; two rows, as the exporters would take a batch of one for a constant."""
    spec = network.spec
    inputs = {
        "jobs": torch.rand(2, spec.slots, len(spec.features), generator=torch.Generator().manual_seed(0)),
        "mask": torch.ones(2, spec.slots * spec.choices + spec.extra, dtype=torch.int8),
        "summary": torch.zeros(2, len(spec.summary)),
    }
    if spec.graph:
        inputs["edges"] = torch.ones(2, spec.slots, spec.slots, dtype=torch.uint8)
    return inputs


def _dynamic(inputs: dict[str, Tensor]) -> dict[str, Any]:
    batch = torch.export.Dim("batch")
    return {name: {0: batch} for name in inputs}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence deprecation warnings of TorchScript and progress messages of onnxscript."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
