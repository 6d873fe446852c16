"""Mutations of the files of predictors, agents and states; for `benchmarks.fuzz_models`.

Digests are usually made valid again after a mutation, as an author of hostile files would do.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kilowait.agents.networks.factory import FORMAT as NETWORK_FORMAT

__all__ = ["mutate"]

Files = dict[str, bytes]
Random = np.random.Generator

NASTY: list[Any] = [
    None, True, "", "x", "nan", "\ud800", "x" * 10_000, [], [[]], {}, {"x": {}}, 0, -1, 1, 2, 10**6, 10**30, -(2**63),
    2**31, 1e308, -1e308, 1e-308, 0.5, "1e400", "../x", "/dev/zero", [None] * 1000, list(range(50)), "agent:x", "easy",
]  # fmt: skip
"""Replacement values of JSON fields."""
TEXT_NASTY = ("NaN", "Infinity", "1e400", "9" * 5000, "[" * 5000, '"\\ud800"', "{", "-", "null")
"""Replacement text in JSON files, some of it invalid."""
NUMBERS = (
    "-1", "-2", "0", "1", "2", "3", "7", "100", "1000000", "2147483647", "-2147483648", "4294967296", "99999999999",
    "1e400", "-1e308", "1e308", "nan", "inf", "-inf", "0x10", "", "1 1", "--1", "1,5", "1e5", "500",
)  # fmt: skip
"""Replacement tokens in lines of LightGBM's text."""


def _choice(items: Any, rng: Random) -> Any:
    return items[int(rng.integers(len(items)))]


def _bytes(data: bytes, rng: Random) -> bytes:
    """Flip, cut off, insert, remove or repeat bytes."""
    array = bytearray(data)
    place = int(rng.integers(len(array) + 1))
    match int(rng.integers(6)):
        case 0 | 1:
            for _ in range(int(rng.integers(1, 6))):
                if array:
                    array[int(rng.integers(len(array)))] ^= int(rng.integers(1, 256))
        case 2:
            del array[place:]
        case 3:
            array[place:place] = rng.bytes(int(rng.integers(1, 20)))
        case 4:
            del array[place : place + int(rng.integers(1, 50))]
        case _:
            array[place:place] = array[: int(rng.integers(1, 200))]
    return bytes(array)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all values of a nested document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return [path, *(found for key, item in inner for found in _paths(item, (*path, key)))]


def _replaced(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """The document with the value at a path changed; ... removes it."""
    if not path:
        return change(value)
    key, rest = path[0], path[1:]
    pairs = [(k, v) for k, v in (value.items() if isinstance(value, dict) else enumerate(value))]
    changed = [(k, _replaced(v, rest, change) if k == key else v) for k, v in pairs]
    kept = [(k, v) for k, v in changed if v is not ...]
    return dict(kept) if isinstance(value, dict) else type(value)(v for _, v in kept)


def _changed(value: Any, rng: Random) -> Any:
    """Another value in place of one."""
    if isinstance(value, float | int) and not isinstance(value, bool) and rng.random() < 0.7:
        return _choice((-value, value * 2, value + 1, value * 10**6, value / 3, str(value), 0, [value]), rng)
    return ... if rng.random() < 0.1 else _choice(NASTY, rng)


def _document(value: Any, rng: Random) -> Any:
    """The document with one or three changed values, or another one added."""
    for _ in range(1 if rng.random() < 0.7 else 3):
        if not isinstance(value, dict):
            return value
        # First a field of the top level, so that small fields are as likely as long lists.
        top = _choice(list(value) or [""], rng)
        paths = [path for path in _paths(value) if path[:1] == (top,)] or [()]
        short = [path for path in paths if len(path) <= 2]
        path = _choice(short if rng.random() < 0.5 else paths, rng)
        result = _replaced(value, path, lambda item: _changed(item, rng)) if path else value
        value = value if result is ... else result
        if rng.random() < 0.05:
            value = {**value, _choice(("x", "format", "version", "kind"), rng): _choice(NASTY, rng)}
    return value


def _json(data: bytes, rng: Random) -> bytes:
    """A JSON document with changed values, or with invalid text."""
    document = json.loads(data)
    if "digest" in document and isinstance(document.get("state"), dict):  # a search
        state = _document(document["state"], rng)
        digest = hashlib.sha256(json.dumps(state).encode()).hexdigest()
        document |= {"state": state, "digest": digest}
    else:
        document = _document(document, rng)
    text = json.dumps(document)
    if rng.random() < 0.1:
        number = _choice(list(re.finditer(r"-?\d+(?:\.\d+)?", text)) or [re.match("", text)], rng)
        text = text[: number.start()] + _choice(TEXT_NASTY, rng) + text[number.end() :]
    return text.encode("utf-8", "surrogatepass")


def _trees(data: bytes, rng: Random) -> bytes:
    """LightGBM's text with changed fields and lines."""
    lines = data.decode().split("\n")
    end = lines.index("end of trees") if "end of trees" in lines else len(lines) - 1
    for _ in range(1 if rng.random() < 0.7 else 3):
        at = int(rng.integers(end + 1))
        name, equals, value = lines[at].partition("=")
        tokens = value.split(" ")
        place = int(rng.integers(len(tokens)))
        match int(rng.integers(9)):
            case 0 | 1 | 2 if equals:
                tokens[place] = _choice(NUMBERS, rng)
            case 3 if equals and re.fullmatch(r"-?\d+", tokens[place]):
                tokens[place] = str(int(tokens[place]) + int(rng.integers(-3, 4)))
            case 4 if equals:
                other = int(rng.integers(len(tokens)))
                tokens[place], tokens[other] = tokens[other], tokens[place]
            case 5 if equals:
                del tokens[place]
            case 6 if equals:
                tokens.insert(place, _choice(NUMBERS, rng))
            case 7:
                lines[at] = lines[int(rng.integers(end + 1))]
                continue
            case _:
                lines[at] = _choice(
                    ("", "Tree=0", "Tree=99", "linear_tree=1", "num_cat=3", "cat_boundaries=0 9", "="), rng
                )
                continue
        lines[at] = f"{name}={' '.join(tokens)}"
    return "\n".join(lines).encode()


def _array(values: Any, rng: Random) -> Any:
    """An array of other values, another type or another shape."""
    match int(rng.integers(7)):
        case 0:
            return values.astype(_choice((np.float64, np.float32, np.int8, np.int64, np.complex128, np.bool_), rng))
        case 1:
            return values[:-1] if values.ndim else values[None]
        case 2:
            return values[None]
        case 3:
            return np.zeros(int(rng.integers(0, 3)), values.dtype)
        case 4:
            return np.zeros((3_000_000, 2), values.dtype)
        case _:
            changed = values.copy()
            if changed.size:
                place = int(rng.integers(changed.size))
                with np.errstate(all="ignore"):
                    changed.flat[place] = np.array(_choice((np.nan, np.inf, -1.0, 0.5, 1e30, 7.0), rng)).astype(
                        values.dtype
                    )
            return changed


def _npz(data: bytes, rng: Random) -> bytes:
    with np.load(io.BytesIO(data)) as stored:
        arrays = dict(stored)
    name = _choice(list(arrays), rng)
    if rng.random() < 0.1:
        arrays[_choice(("x", "../x", ""), rng)] = arrays.pop(name)
    else:
        arrays[name] = _array(arrays[name], rng)
    file = io.BytesIO()
    with np.errstate(all="ignore"):
        (np.savez if rng.random() < 0.2 else np.savez_compressed)(file, **arrays)
    return file.getvalue()


def _tensor(tensor: torch.Tensor, rng: Random) -> Any:
    match int(rng.integers(6)):
        case 0:
            return tensor.to(_choice((torch.float64, torch.float16, torch.int64, torch.bool), rng))
        case 1:
            return tensor[:-1] if tensor.ndim else tensor[None]
        case 2:
            return tensor.T if tensor.ndim == 2 else tensor[None]
        case 3:
            return _choice(NASTY, rng)
        case _:
            changed = tensor.clone()
            if changed.numel() and changed.is_floating_point():
                changed.view(-1)[int(rng.integers(changed.numel()))] = _choice((np.nan, np.inf, 3e38, -3e38, 1e20), rng)
            return changed


def _state(path: Path, rng: Random) -> None:
    """Change the state of a network's file, and write it with a valid digest."""
    state: Any = NETWORK_FORMAT.read(path)
    if rng.random() < 0.4:
        name = _choice(list(state["weights"]), rng)
        state["weights"][name] = _tensor(state["weights"][name], rng)
    else:
        kept = {name: value for name, value in state.items() if name != "weights"}
        kept = _document(kept, rng)
        if rng.random() < 0.9:
            kept |= {"weights": state["weights"]}
        state = kept
    path.unlink()
    NETWORK_FORMAT.write(path, state)


def _file_type(path: Path, rng: Random) -> None:
    """Something else in place of a file."""
    data = path.read_bytes()
    path.unlink()
    match int(rng.integers(7)):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(_choice(("/dev/zero", "/dev/null", "none", path.name, "/proc/self/environ"), rng))
        case 3:
            path.with_name("other").write_bytes(data)
            path.symlink_to(path.with_name("other"))
        case 4:
            path.write_bytes(b"")
        case 5:
            with path.open("wb") as file:
                file.truncate(2**33)
        case _:
            path.with_name(_choice(("agent.pt", "agent.json", "card.json", "x"), rng)).write_bytes(data)


def _sign(folder: Path, prefix: str = "") -> None:
    """Write the hashes of the files of a predictor into its card; `prefix` is that of the names of the files."""
    path = folder / f"{prefix}card.json"
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        for name in card["files"]:
            card["files"][name] = hashlib.sha256((folder / f"{prefix}{name}").read_bytes()).hexdigest()
        path.write_text(json.dumps(card), encoding="utf-8")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return


def mutate(folder: Path, rng: Random) -> str:
    """Mutate one of the files in a folder; returns the name of the mutation."""
    path = folder / _choice(sorted(os.listdir(folder)), rng)
    share = float(rng.random())
    if share < 0.05:
        _file_type(path, rng)
        return "file type"
    if share < 0.25:
        path.write_bytes(_bytes(path.read_bytes(), rng))
        mutation = "bytes"
    elif path.suffix == ".pt":
        _state(path, rng)
        mutation = "state"
    else:
        change = {".json": _json, ".txt": _trees, ".npz": _npz}[path.suffix]
        path.write_bytes(change(path.read_bytes(), rng))
        mutation = {".json": "fields", ".txt": "trees", ".npz": "arrays"}[path.suffix]
    if path.name != "card.json" and rng.random() < 0.95:
        if path.name != "unmetered_card.json":
            _sign(folder, "unmetered_")
        _sign(folder)
    return mutation
