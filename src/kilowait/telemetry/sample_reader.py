"""Reader of power and energy samples from files of `kilowait telemetry` or other tools, one node at a time."""

from __future__ import annotations

import codecs
import csv
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.telemetry.recorder import OPEN_FILE, PARQUET_FILE, complete_bytes, unguarded_batch

Floats = npt.NDArray[np.float64]

_VALUES = ("monotonic_s", "power_w", "energy_j", "range_j")
_NUMBERS = (*_VALUES, "summed")
_NEEDED = "samples need the columns time, host, and power_w or energy_j (and meter, if a node has several)"
_BLANK = ["", "nan", "NaN", "NA", "N/A", "[N/A]", "null", "None"]
_UTC = "write times as 2026-01-31T18:00:00Z, with an offset, or as Unix seconds"


@dataclass(frozen=True)
class MeterSamples:
    """Samples of one meter of one node: increasing times, NaN for missing values."""

    meter: str
    utc_s: Floats
    monotonic_s: Floats
    power_w: Floats
    energy_j: Floats
    """Energy counter."""
    range_j: Floats
    """Value at which the counter wraps to 0."""

    @property
    def kind(self) -> str:
        """How the energy is split among jobs: "gpu" by the GPUs they hold, "node" by their cores."""
        return "gpu" if self.meter.startswith("gpu") else "node"


class SampleFiles:
    """Files and folders of samples; ``hosts`` are the nodes in them, `read_host` reads one node.

    The files of ``kilowait telemetry`` can be read while they are written. Any other CSV or Parquet file needs the
    columns time, host, and power_w or energy_j.
    """

    def __init__(self, paths: Sequence[str | PathLike[str]]) -> None:
        self.unusable_rows: Counter[str] = Counter()
        """Number of unusable rows by reason."""
        self.rows = 0
        self.first_s, self.last_s = np.inf, -np.inf
        self._paths_by_host: dict[str, list[Path]] = {}
        for path in dict.fromkeys(file for name in paths for file in _sample_paths(Path(name))):
            hosts: set[str] = set()
            for rows in _read(path, self.unusable_rows):
                hosts |= set(rows.hosts)
                self.rows += len(rows.utc_s)
                self.first_s = min(self.first_s, float(rows.utc_s.min(initial=np.inf)))
                self.last_s = max(self.last_s, float(rows.utc_s.max(initial=-np.inf)))
            for host in hosts:
                self._paths_by_host.setdefault(host, []).append(path)
        if not self._paths_by_host:
            raise InputError(f"there are no samples in {', '.join(map(str, paths))}")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The sampled nodes, sorted."""
        return tuple(sorted(self._paths_by_host))

    def read_host(self, host: str) -> list[MeterSamples]:
        """Samples of the meters whose sum is the power of the node, sorted by the name of the meter."""
        parts: dict[str, list[Floats]] = {}
        for path in self._paths_by_host[host]:
            for rows in _read(path, Counter(), host):
                values = np.array([rows.utc_s, *rows.numbers.values()])
                for code in np.unique(rows.meter).tolist():
                    parts.setdefault(rows.meters[code], []).append(values[:, rows.meter == code])
        return [self._meter_samples(meter, np.concatenate(parts.pop(meter), axis=1)) for meter in sorted(parts)]

    def _meter_samples(self, meter: str, values: Floats) -> MeterSamples:
        values = values[:, np.argsort(values[0], kind="stable")]
        last = np.append(values[0, 1:] > values[0, :-1], True)
        if not last.all():
            reason = "duplicate meter and time: the last sample is used"
            self.unusable_rows[reason] += int((~last).sum())
            values = values[:, last]
        return MeterSamples(meter, *values)


# -- reading of files ------------------------------------------------------------------------------


def _sample_paths(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise InputError(f"there is no file {path}; name files or folders of samples")
        return [path]
    names = sorted(file.name for file in path.iterdir())
    parquet_files = [name for name in names if PARQUET_FILE.fullmatch(name)]
    open_files = [name for name in names if OPEN_FILE.fullmatch(name) and f"{name[1:-4]}.parquet" not in parquet_files]
    paths = [path / name for name in (*parquet_files, *open_files)]
    if not paths:
        raise InputError(
            f"the folder {path} contains no samples; give a folder written by kilowait telemetry, or files"
        )
    return paths


@dataclass(frozen=True)
class _Rows:
    """Valid rows of a file."""

    utc_s: Floats
    numbers: dict[str, Floats]
    """Columns by name (`_VALUES`)."""
    hosts: tuple[str, ...]
    meter: npt.NDArray[np.int64]
    meters: tuple[str, ...]


def _read(path: Path, unusable_rows: Counter[str], host: str | None = None) -> Iterator[_Rows]:
    """Read batches of all nodes or of one, without invalid rows."""
    import pyarrow as pa

    try:
        for batch in _batches(path, unusable_rows):
            yield _valid_rows(batch, unusable_rows, host)
    except (OSError, pa.ArrowException, InputError) as problem:
        raise InputError(f"cannot read the samples in {path}: {problem}") from None


def _batches(path: Path, unusable_rows: Counter[str]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    if is_parquet:
        parquet = pq.ParquetFile(path)
        yield from parquet.iter_batches(columns=_known_columns(parquet.schema_arrow.names))
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        complete = complete_bytes(handle)
        unusable_rows["truncated at the end of a file"] += int(complete < os.fstat(handle).st_size)
    finally:
        os.close(handle)
    if not complete:
        raise InputError(f"it has no complete line; {_NEEDED}")
    _check_utf8(path, complete)
    with pa.memory_map(str(path)) as mapped:
        text = mapped.read_buffer(complete)
    first = text.slice(0, min(complete, 65536)).to_pybytes().partition(b"\n")[0]
    header = next(csv.reader([first.decode("utf-8-sig", "replace")]), [])

    def skip(row: Any) -> str:
        unusable_rows["with too many or too few cells"] += 1
        return "skip"

    types = {name: pa.float64() if name in _NUMBERS else pa.string() for name in _known_columns(header)}
    convert = pc.ConvertOptions(
        column_types=types, include_columns=list(types), null_values=_BLANK, strings_can_be_null=True
    )
    with pc.open_csv(
        pa.BufferReader(text), parse_options=pc.ParseOptions(invalid_row_handler=skip), convert_options=convert
    ) as reader:
        yield from map(unguarded_batch, reader)


def _check_utf8(path: Path, size: int) -> None:
    """InputError with the line of the first byte that is no UTF-8; Arrow's handler of invalid rows cannot report it."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, 1 << 20))):
            size -= len(part)
            try:
                decoder.decode(part, final=size == 0)
            except UnicodeDecodeError as problem:
                line += problem.object[: problem.start].count(b"\n")
                raise InputError(f"line {line} has bytes that are no UTF-8; remove or correct it") from None
            line += part.count(b"\n")


def _known_columns(names: Sequence[str]) -> list[str]:
    known = [name for name in ("time", "host", "meter", *_NUMBERS) if name in names]
    if not {"time", "host"} <= set(known) or not {"power_w", "energy_j"} & set(known):
        raise InputError(f"it has the columns {', '.join(names)[:120]}; {_NEEDED}")
    return known


def _valid_rows(batch: Any, unusable_rows: Counter[str], host: str | None) -> _Rows:
    import pyarrow.compute as pc

    if host is not None:
        batch = batch.filter(pc.equal(batch.column("host"), host))
    size, names = batch.num_rows, batch.schema.names
    utc_s = _seconds(batch.column("time"))
    values_by_name = {
        name: _floats(batch.column(name), name) if name in names else np.full(size, np.nan) for name in _NUMBERS
    }
    for name in ("power_w", "energy_j"):
        invalid = np.isinf(values_by_name[name]) | (values_by_name[name] < 0)
        if invalid.any():
            unusable_rows[f"with {name} below 0 or infinite: treated as missing"] += int(invalid.sum())
            values_by_name[name] = np.where(invalid, np.nan, values_by_name[name])
    is_summed = values_by_name.pop("summed") != 0
    has_time, has_host = np.isfinite(utc_s), ~np.asarray(pc.is_null(batch.column("host")))
    unusable_rows["without a time"] += int((is_summed & ~has_time).sum())
    unusable_rows["without a host"] += int((is_summed & has_time & ~has_host).sum())
    valid = is_summed & has_time & has_host
    meter, meters = _coded(batch.column("meter")) if "meter" in names else (np.zeros(size, np.int64), ("node",))
    code, hosts = _coded(batch.column("host"))
    return _Rows(
        utc_s[valid],
        {name: values[valid] for name, values in values_by_name.items()},
        tuple(hosts[number] for number in np.unique(code[valid])),
        meter[valid],
        meters,
    )


def _coded(column: Any) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Dictionary-encode a text column; a blank cell becomes "node", the name of a node's only meter."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pc.fill_null(column.cast(pa.string()), "node").dictionary_encode()
    return np.asarray(encoded.indices, np.int64), tuple(encoded.dictionary.to_pylist())


def _floats(column: Any, name: str) -> Floats:
    import pyarrow as pa

    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowException:
        raise InputError(f"the column {name} has the type {column.type}, not numbers") from None


def _seconds(column: Any) -> Floats:
    """Unix seconds of a time column; times without a time zone are an error."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as pt

    if pt.is_timestamp(column.type) and column.type.tz is None:
        raise InputError(f"its times have no time zone; {_UTC}")
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        try:
            column = column.cast(pa.float64())
        except pa.ArrowException:
            column = _parse_times(column)
    if pt.is_timestamp(column.type):
        micros = pc.fill_null(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), -(2**62))
        values = micros.to_numpy(zero_copy_only=False)
        return np.where(values == -(2**62), np.nan, values / 1e6)
    return _floats(column, "time")


def _parse_times(column: Any) -> Any:
    import pyarrow as pa

    try:
        return column.cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowException as problem:
        text = str(problem).partition(" as a scalar")[0].removeprefix("Failed to parse string: ")
        raise InputError(f"{text:.60} is not a time; {_UTC}") from None
