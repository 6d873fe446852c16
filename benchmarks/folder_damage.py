"""Damage to the files of a folder: bytes, JSON and TOML fields, Parquet columns, arrays, links, pipes and names."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Damage", "damaged"]

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.5, 1e-300, 1e300, -1e300, 1e18, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30,
    "", "x", "nan", "$\\frac{$", "<b>", "\x00", "é\u2028", "a" * 20_000, "../../etc/passwd", "/dev/zero", "rule",
    "agent", [], {}, [[]], [None], [1, 2, 3], ["x"], {"x": 1}, {"": {}}, [0] * 1000,
)  # fmt: skip
"""Values that replace fields."""
RAW = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b"[" * 5000,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'"\\ud800"',
    b'"\xff"',
)
"""JSON text that replaces a field, though it is not valid, or not everywhere."""
NUMBERS = (0.0, -1.0, 1.0, 0.5, np.nan, np.inf, -np.inf, 1e300, -1e300, 1e18, 2**31, -(2**31), 2**62, -(2**62), 1e-300)
TYPES = (np.float64, np.float32, np.int64, np.int32, np.int8, np.uint64, np.bool_, np.complex128, "U3", object)


@dataclass(frozen=True)
class Damage:
    """What was done to a folder."""

    text: str
    must_be_refused: bool = False
    """Whether a file has another checksum than the manifest says."""

    def __str__(self) -> str:
        return self.text


def damaged(content: dict[str, bytes], folder: Path, rng: np.random.Generator) -> Damage:
    """Write the files of a sample into a new folder, one of them damaged."""
    files = dict(content)
    folder.mkdir()
    kind = rng.random()
    has_manifest = "manifest.json" in files and "files" in json.loads(files["manifest.json"])
    if kind < 0.12:
        damage = _replace_file(files, folder, rng)
    elif kind < 0.2 and has_manifest:
        damage = _name_elsewhere(files, rng)
    else:
        name = str(rng.choice(sorted(files)))
        before = files[name]
        what = _damage_file(files, name, rng)
        refresh = name != "manifest.json" and has_manifest and rng.random() < 0.9
        if refresh:
            _refresh(files, name)
        unnoticed = has_manifest and not refresh and name != "manifest.json" and files[name] != before
        damage = Damage(f"{what} of {name}", unnoticed)
    for name, data in files.items():
        if not os.path.lexists(folder / name):
            (folder / name).write_bytes(data)
    return damage


def _refresh(files: dict[str, bytes], name: str) -> None:
    """Write the file's checksum into the manifest."""
    manifest = json.loads(files["manifest.json"])
    if name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256(files[name]).hexdigest()
        files["manifest.json"] = json.dumps(manifest).encode()


def _damage_file(files: dict[str, bytes], name: str, rng: np.random.Generator) -> str:
    by_suffix: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
        ".json": _json_field,
        ".parquet": _parquet,
        ".npz": _arrays,
        ".toml": _toml_field,
    }
    of_suffix = by_suffix.get(Path(name).suffix)
    if of_suffix is None or rng.random() < 0.2:
        files[name] = _bytes(files[name], rng)
        return "bytes"
    files[name] = of_suffix(files[name], rng)
    return "fields"


def _bytes(data: bytes, rng: np.random.Generator) -> bytes:
    match int(rng.integers(4)):
        case 0:
            return data[: int(rng.integers(0, len(data) + 1))]
        case 1:
            return data + rng.bytes(int(rng.integers(1, 50)))
        case 2:
            return rng.bytes(int(rng.integers(0, 200)))
    if not data:
        return rng.bytes(10)
    array = np.frombuffer(data, np.uint8).copy()
    places = rng.integers(0, len(array), int(rng.integers(1, 6)))
    array[places] ^= rng.integers(1, 256, len(places)).astype(np.uint8)
    return array.tobytes()


def _places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of the fields of JSON data; of long lists only some items."""
    paths = [path] if path else []
    items: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
        items = items if len(items) <= 4 else [*items[:3], items[-1]]
    for key, value in items:
        paths += _places(value, (*path, key))
    return paths


def _json_field(data: bytes, rng: np.random.Generator) -> bytes:
    content = json.loads(data)
    for _ in range(int(rng.integers(1, 3))):
        places = _places(content)
        if not places:
            break
        *above, key = places[int(rng.integers(len(places)))]
        holder = content
        for part in above:
            holder = holder[part]
        match int(rng.integers(8)):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[f"{key}x"] = holder.pop(key)
            case 2 if isinstance(holder, list):
                holder.append(holder[key])
            case 3 if isinstance(holder[key], int | float):
                holder[key] = holder[key] * float(rng.choice([-1, 1e-9, 3, 1e9])) + int(rng.integers(-2, 3))
            case 4 if isinstance(holder[key], int):
                holder[key] += int(rng.integers(-3, 4))
            case 5:
                holder[key] = "@raw@"
                return json.dumps(content).encode().replace(b'"@raw@"', RAW[int(rng.integers(len(RAW)))])
            case _:
                holder[key] = NASTY[int(rng.integers(len(NASTY)))]
    return json.dumps(content).encode()


def _toml_field(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.decode().split("\n")
    line = int(rng.integers(len(lines)))
    values = ["nan", "inf", "9" * 5000, "[" * 3000, "1979-05-27", "[]", "{}", "'x'", "-1", "1e400", '"\\u0000"', "true"]
    key = lines[line].partition("=")[0].strip() or "x"
    match int(rng.integers(4)):
        case 0:
            del lines[line]
        case 1:
            lines[line] = "a." * int(rng.integers(1, 3000)) + "b = 1"
        case _:
            lines[line] = f"{key} = {values[int(rng.integers(len(values)))]}"
    return "\n".join(lines).encode()


def _changed(values: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """An array of another type or shape, or with other values."""
    kind = int(rng.integers(9))
    if kind == 0:
        values = values.astype(TYPES[int(rng.integers(len(TYPES)))])
    elif kind == 1:
        values = values.reshape(-1)[: int(rng.integers(0, values.size + 1))]
    elif kind == 2:
        values = np.concatenate([values.reshape(-1)] * 2)
    elif kind == 3:
        values = values[None]
    elif kind == 4:
        values = values[::-1] if values.ndim else values
    elif kind == 5 and values.ndim:
        values = rng.permutation(values)
    elif kind == 6:
        values = np.full(values.shape, NUMBERS[int(rng.integers(len(NUMBERS)))]).astype(values.dtype)
    elif values.size and values.dtype.kind in "iufb":
        values = values.copy()
        places = rng.integers(0, values.size, int(rng.integers(1, 4)))
        flat = values.reshape(-1)
        number = NUMBERS[int(rng.integers(len(NUMBERS)))]
        flat[places] = np.array(number).astype(values.dtype) if kind == 7 else flat[places] + flat.dtype.type(1)
        values = flat.reshape(values.shape)
    return values


def _parquet(data: bytes, rng: np.random.Generator) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    metadata = dict(table.schema.metadata or {})
    match int(rng.integers(8)):
        case 0:
            table = table.drop_columns([str(rng.choice(table.column_names))])
        case 1:
            names = list(table.column_names)
            names[int(rng.integers(len(names)))] = str(rng.choice([*names, "x", ""]))
            table = table.rename_columns(names)
        case 2:
            table = table.slice(0, int(rng.integers(0, table.num_rows + 1)))
        case 3:
            table = pa.concat_tables([table, table])
        case 4 if metadata:
            key = sorted(metadata)[0]
            metadata[key] = _json_field(metadata[key], rng) if rng.random() < 0.9 else b"["
        case _:
            place = int(rng.integers(len(table.column_names)))
            values = table.column(place).to_numpy()
            if values.dtype.kind in "iufb":
                with np.errstate(all="ignore"):
                    values = _changed(values, rng).reshape(-1)
            if values.dtype.kind == "c" or rng.random() < 0.1:
                values = [[0]] * table.num_rows
            column = pa.array(list(values) if not isinstance(values, np.ndarray) else values)
            if len(column) == table.num_rows:
                table = table.set_column(place, table.column_names[place], column)
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), out)
    return out.getvalue()


def _arrays(data: bytes, rng: np.random.Generator) -> bytes:
    with np.load(io.BytesIO(data)) as file:
        arrays = {name: file[name] for name in file.files}
    name = str(rng.choice(sorted(arrays)))
    match int(rng.integers(10)):
        case 0:
            del arrays[name]
        case 1:
            arrays[str(rng.choice([f"{name}x", "x", "x.y.z", "a.b"]))] = arrays.pop(name)
        case 2:
            return _announced(rng)
        case _:
            with np.errstate(all="ignore"):
                arrays[name] = _changed(arrays[name], rng)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _announced(rng: np.random.Generator) -> bytes:
    """An archive whose arrays are larger than the file."""
    out = io.BytesIO()
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }\n" % int(rng.choice([2**20, 2**40, 2**62]))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        body = bytes(2**25) if rng.random() < 0.3 else b""
        archive.writestr("root.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body)
    return out.getvalue()


def _replace_file(files: dict[str, bytes], folder: Path, rng: np.random.Generator) -> Damage:
    """Remove a file, or put a link, a pipe or a folder in its place."""
    name = str(rng.choice(sorted(files)))
    data = files.pop(name)
    match int(rng.integers(6)):
        case 0:
            return Damage(f"{name} is missing")
        case 1:
            outside = folder.with_name("outside")
            outside.write_bytes(data)
            (folder / name).symlink_to(outside)
            return Damage(f"{name} is a link", must_be_refused=True)
        case 2:
            (folder / name).symlink_to("/dev/zero")
        case 3:
            os.mkfifo(folder / name)
        case 4:
            (folder / name).mkdir()
        case _:
            (folder / name).symlink_to(name)
    return Damage(f"{name} is not a regular file", must_be_refused=name != "scenario.toml")


def _name_elsewhere(files: dict[str, bytes], rng: np.random.Generator) -> Damage:
    """Add the name of a file elsewhere to the manifest, with its checksum."""
    manifest = json.loads(files["manifest.json"])
    name = str(
        rng.choice(["/etc/passwd", "../outside", "/dev/zero", "/dev/null", ".", "..", "", "a/b", "x\x00y", "\\x"])
    )
    digest = (
        hashlib.sha256(Path(name).read_bytes()).hexdigest()
        if name == "/etc/passwd"
        else hashlib.sha256(b"").hexdigest()
    )
    manifest["files"][name] = digest
    files["manifest.json"] = json.dumps(manifest).encode()
    return Damage(f"the manifest names {name!r}", must_be_refused=True)
