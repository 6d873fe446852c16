"""GPU catalogue: memory, bandwidth, FLOPS and power of GPU types, with sources (data in gpus.toml).

It also has measured training throughputs by workload and GPU type, in Gavel's file format.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError, UnknownNameError
from kilowait.files.compression import decompressed

IDLE_SHARE = 0.15
"""Idle power as a share of the TDP, where it is not known."""

FLOPS_PRECISIONS = ("fp64", "fp32", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """One GPU type. NaN: unknown; `unsure` names fields that are estimates or unconfirmed.

    >>> gpu("V100").tdp_w, gpu("G2").tdp_w, gpu("rtx 4090").unsure[0]
    (300.0, nan, 'memory_gb')
    """

    name: str
    memory_gb: float
    bandwidth_gb_per_s: float = math.nan
    fp64_tflops: float = math.nan
    fp32_tflops: float = math.nan
    fp16_tflops: float = math.nan
    """With 32-bit accumulation, on tensor cores if present; NaN: no faster half precision."""
    tdp_w: float = math.nan
    idle_w: float = math.nan
    family: str = ""
    """Types of one family share measured speeds; default: the name."""
    aliases: tuple[str, ...] = ()
    source: str = ""
    unsure: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for rule in fields(self):
            value = getattr(self, rule.name)
            if isinstance(value, float) and not (math.isnan(value) or 0 < value < math.inf):
                raise InputError(
                    f"{rule.name} of the GPU type {self.name!r} is {value}; it must be above 0, or NaN if not known"
                )

    def tflops(self, precision: str) -> float:
        """Dense TFLOPS; half precision is at least as fast as single. NaN: unknown.

        >>> gpu("K80").tflops("fp16"), gpu("T4").tflops("fp16")
        (4.113, 65.0)
        """
        if precision not in FLOPS_PRECISIONS:
            raise UnknownNameError("precision", precision, FLOPS_PRECISIONS)
        rate = float(getattr(self, f"{precision}_tflops"))
        return self.fp32_tflops if precision == "fp16" and math.isnan(rate) else rate


def gpu(name: str) -> GpuType:
    """Look up a GPU type by name or alias; case, blanks and dashes are ignored, and so are the words of nvidia-smi.

    >>> gpu("v100m32").memory_gb, gpu("A100-SXM4-40").name, gpu("NVIDIA A100-SXM4-80GB").name
    (32.0, 'A100-SXM4-40', 'A100-SXM4-80')
    >>> gpu("H20")
    Traceback (most recent call last):
    ...
    kilowait.errors.UnknownNameError: unknown GPU type 'H20'; did you mean 'h200'? known: 1080ti, ...
    """
    gpu_type = _BY_NAME.get(_plain(name))
    if gpu_type is None:
        raise UnknownNameError("GPU type", name, _NAMES)
    return gpu_type


ANY_GPU = ("*", "all", "any")
"""Texts, in lower case, that stand for every GPU type."""


def is_gpu_type(text: str, name: str) -> bool:
    """Whether a text, such as the request of a job, means the GPU type `name`; some texts mean every type.

    >>> is_gpu_type("Tesla V100-SXM2-32GB", "V100M32"), is_gpu_type("T4", "V100"), is_gpu_type("any", "V100")
    (True, False, True)
    """
    if text.strip().lower() in ANY_GPU:
        return True
    plain, other = _plain(text), _plain(name)
    return plain != "" and (plain == other or (plain in _BY_NAME and _BY_NAME[plain] is _BY_NAME.get(other)))


_MAKER = re.compile(r"\b(nvidia|amd|intel|tesla|geforce|instinct)\b")
_GIGABYTES = re.compile(r"(?<=\d)\s*gi?b\b")


def _plain(name: str) -> str:
    """A name without makers, product lines and units, as in the names that nvidia-smi prints."""
    text = _GIGABYTES.sub("", _MAKER.sub("", name.lower()))
    return "".join(letter for letter in text if letter.isalnum())


def _gpu_type(row: dict[str, Any]) -> GpuType:
    values: dict[str, Any] = {"family": row["name"], **row}
    values |= {key: tuple(row.get(key, ())) for key in ("aliases", "unsure")}
    if "tdp_w" in row and "idle_w" not in row:
        values["idle_w"] = round(IDLE_SHARE * row["tdp_w"], 2)
    for key, value in values.items():
        if type(value) is int:
            values[key] = float(value)
    return GpuType(**values)


_ROWS = tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))["gpu"]

GPU_CATALOGUE: dict[str, GpuType] = {row["name"]: _gpu_type(row) for row in _ROWS}
"""Name to type."""

# Lower case for case-insensitive suggestions.
_NAMES = [known.lower() for kind in GPU_CATALOGUE.values() for known in (kind.name, *kind.aliases)]
_BY_NAME = {_plain(name): kind for kind in GPU_CATALOGUE.values() for name in (kind.name, *kind.aliases)}


# -- measured throughputs --------------------------------------------------------------------------


Table = Mapping[str, Mapping[tuple[str, int], float]]
"""GPU type -> (workload, number of GPUs) -> steps per second of all GPUs together."""

_KEY = re.compile(r"\('(.*)', (\d+)\)")
_UNCONSOLIDATED = "_unconsolidated"


@dataclass(frozen=True, eq=False)
class Throughputs:
    """Steps per second; 0: the workload does not run on the type (usually too little memory).

    >>> round(
    ...     GAVEL_THROUGHPUTS.consolidated["v100"]["CycleGAN", 1]
    ...     / GAVEL_THROUGHPUTS.consolidated["k80"]["CycleGAN", 1],
    ...     2,
    ... )
    8.76
    """

    consolidated: Table
    """GPUs on as few nodes as possible."""
    unconsolidated: Table = field(default_factory=dict)
    """GPUs on more nodes than necessary."""

    def __post_init__(self) -> None:
        for table in (self.consolidated, self.unconsolidated):
            for kind, rates in table.items():
                for (model, gpus), rate in rates.items():
                    if not (math.isfinite(rate) and rate >= 0 and gpus >= 1):
                        raise InputError(
                            f"the throughput of {model!r} on {gpus} {kind!r} is {rate}; it must be a number of "
                            "steps per second, 0 or more, on at least 1 GPU"
                        )


def read_throughputs(path: str | PathLike[str]) -> Throughputs:
    """Read a JSON file (.gz: compressed) like Gavel's simulation_throughputs.json.

    It maps a type of GPU to "('MODEL', GPUS)" to {"null": steps per second}. A type that ends in _unconsolidated
    holds throughputs with the job's GPUs on several nodes. Keys other than "null" (two jobs on one GPU) are
    ignored.
    """
    path = Path(path)
    try:
        data, _ = decompressed(path.read_bytes(), str(path), remedy="decompress it and give the decompressed file")
        content = json.loads(data)
    except FileNotFoundError:
        raise InputError(f"no throughput file {path}") from None
    except (OSError, EOFError, ValueError) as problem:
        raise InputError(f"cannot read the throughput file {path}: {problem}") from None
    if not (isinstance(content, dict) and content):
        raise InputError(f"{path} has no table from GPU types to throughputs")
    consolidated: dict[str, dict[tuple[str, int], float]] = {}
    unconsolidated: dict[str, dict[tuple[str, int], float]] = {}
    for kind, rows in content.items():
        name = kind.removesuffix(_UNCONSOLIDATED)
        (consolidated if name == kind else unconsolidated)[name] = _rates(rows, f"{kind!r} in {path}")
    return Throughputs(consolidated, unconsolidated)


def _rates(rows: Any, where: str) -> dict[tuple[str, int], float]:
    if not isinstance(rows, dict):
        raise InputError(f"{where} is not a table from \"('MODEL', GPUS)\" to throughputs")
    rates = {}
    for key, row in rows.items():
        match = _KEY.fullmatch(key)
        rate = row.get("null") if isinstance(row, dict) else None
        if match is None or not isinstance(rate, (int, float)):
            raise InputError(f'{where} has {key!r}; it must be "(\'MODEL\', GPUS)" with a number as "null"')
        rates[match[1], int(match[2])] = float(rate)
    return rates


# K80, P100, V100: steps per second on one GPU, from Gavel's scheduler/simulation_throughputs.json
# (github.com/stanford-futuredata/gavel, MIT licence), rounded to thousandths: some of its 83 rows.
_ONE_GPU = {
    "A3C": (3.439, 5.681, 7.176),
    "CycleGAN": (0.505, 2.403, 4.426),
    "LM (batch size 5)": (25.486, 90.776, 109.167),
    "LM (batch size 80)": (6.054, 21.158, 28.240),
    "Recommendation (batch size 512)": (32.859, 48.882, 23.318),
    "Recommendation (batch size 8192)": (2.699, 5.548, 2.842),
    "ResNet-18 (batch size 16)": (4.795, 35.869, 32.353),
    "ResNet-18 (batch size 256)": (0.886, 7.723, 10.300),
    "ResNet-50 (batch size 16)": (2.301, 9.053, 11.396),
    "ResNet-50 (batch size 128)": (0.347, 1.584, 2.497),
    "Transformer (batch size 16)": (5.467, 9.537, 11.064),
    "Transformer (batch size 128)": (0.982, 3.074, 5.446),
}

GAVEL_THROUGHPUTS = Throughputs(
    {
        kind: {(model, 1): rates[column] for model, rates in _ONE_GPU.items()}
        for column, kind in enumerate(("k80", "p100", "v100"))
    }
)
"""Twelve kinds of training on one K80, P100 and V100; the whole file has 26, and up to 8 GPUs."""
