"""LightGBM's text format: parsed, validated and written anew, so that LightGBM reads only text from this module.

LightGBM does not validate its own format: a node number out of range reads or writes outside of its arrays, and a cycle
of nodes never ends. Here every line is parsed by a strict grammar and every number is checked. Only what kilowait
writes is accepted: one number per row, numerical splits and constant leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, MissingExtraError

Ints = npt.NDArray[np.int64]

MAX_TREES = 100_000
MAX_LEAVES = 131_072
"""Maximum number of leaves of a tree; LightGBM has the same limit."""
MAX_LEAVES_OF_ALL_TREES = 2_000_000
MAX_FEATURES = 10_000
MAX_DEPTH = 2_048
"""Maximum depth of a tree: SHAP values need memory for the square of it, and stack for every level."""
MAX_OUTPUT = 500.0
"""Maximum absolute value of a prediction, a difference of logarithms: exp of it times a value is finite."""
OBJECTIVES = ("regression", "regression_l1", "quantile")
"""Objectives with which kilowait fits trees; a custom objective is not in the text."""
DECISION_TYPES = frozenset({0, 2, 4, 6, 8, 10})
"""Numerical splits: the sides of missing values, and what counts as missing."""
MAX_COUNT = 2**31 - 1

_NUMBER = r"[+-]?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,5})?"
_NUMBERS = re.compile(rf"(?:{_NUMBER}(?: {_NUMBER})*)?", re.ASCII)
_THRESHOLDS = re.compile(rf"(?:(?:inf|{_NUMBER})(?: (?:inf|{_NUMBER}))*)?", re.ASCII)
_INTEGERS = re.compile(r"(?:-?\d{1,10}(?: -?\d{1,10})*)?", re.ASCII)
_RANGE = re.compile(rf"\[({_NUMBER}):({_NUMBER})\]", re.ASCII)

_HEADER = (
    "version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "feature_names",
    "feature_infos",
)  # fmt: skip
_OPTIONAL_HEADER = ("objective", "average_output", "tree_sizes")
_SPLIT_INTEGERS = ("split_feature", "decision_type", "left_child", "right_child", "internal_count")
_SPLIT_NUMBERS = ("split_gain", "internal_value", "internal_weight")
_TREE_KEYS = (
    "num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child",
    "leaf_value", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count", "is_linear",
    "shrinkage",
)  # fmt: skip


@dataclass(frozen=True)
class ValidatedTrees:
    """Validated trees."""

    text: str
    """LightGBM's text format, written from the validated values; without the sections that predictions do not need."""
    features: int
    """Number of features."""
    leaves: tuple[int, ...]
    """Number of leaves of each tree."""


class _Damage(Exception):
    """A part of the text that is invalid."""


def validated_trees(text: str, source: str | PathLike[str]) -> ValidatedTrees:
    """Parse and validate LightGBM's text format; an InputError names the tree and the field.

    Predictions of the text written anew equal those of the original bit by bit.

    Args:
        text: contents of the file.
        source: the file, for the error.

    >>> validated_trees("tree\\nversion=v3\\n", "trees.txt")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: trees.txt is damaged: the header has no num_class; fit it again ...
    """
    try:
        return _validated(text)
    except _Damage as problem:
        raise InputError(f"{fspath(source)} is damaged: {problem}; fit it again with kilowait predict fit") from None


def leaves_per_tree(text: str) -> Ints:
    """Number of leaves of each tree in LightGBM's text format.

    >>> leaves_per_tree("Tree=0\\nnum_leaves=31\\nnum_cat=0\\n").tolist()
    [31]
    """
    return np.array(re.findall(r"^num_leaves=(\d+)$", text, re.MULTILINE), np.int64)


def _validated(text: str) -> ValidatedTrees:
    blocks = _blocks(text)
    first = next(blocks, [])
    if not first or first[0] != "tree":
        raise _Damage("it contains no LightGBM trees")
    header = _pairs(first[1:], (*_HEADER, *_OPTIONAL_HEADER), "the header")
    features = _header_features(header)
    parts, total = [_header_text(header, features)], 0
    leaves: list[int] = []
    outputs: list[float] = []
    for lines in blocks:
        number = len(leaves)
        if lines[0] == "end of trees":
            break
        if lines[0] != f"Tree={number}":
            raise _Damage(f"{_shown(lines[0])} is not the beginning of tree {number}")
        if number >= MAX_TREES:
            raise _Damage(f"it has more than {MAX_TREES:,} trees")
        tree_text, tree_leaves, output = _tree(_pairs(lines[1:], _TREE_KEYS, f"tree {number}"), number, features)
        parts.append(tree_text)
        leaves.append(tree_leaves)
        total += tree_leaves
        if total > MAX_LEAVES_OF_ALL_TREES:
            raise _Damage(f"it has more than {MAX_LEAVES_OF_ALL_TREES:,} leaves")
        outputs.append(output)
    else:
        raise _Damage("it is cut off before the end of the trees")
    if not leaves:
        raise _Damage("it has 0 trees")
    output = sum(outputs) / (len(outputs) if "average_output" in header else 1)
    if not output <= MAX_OUTPUT:
        raise _Damage(f"its leaves give predictions of up to {output:g} (logarithm), more than {MAX_OUTPUT:g}")
    return ValidatedTrees("".join(parts) + "end of trees\n", features, tuple(leaves))


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines between empty lines."""
    lines: list[str] = []
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line, position = text[position:end], end + 1
        if line:
            lines.append(line)
        elif lines:
            yield lines
            lines = []
        if line == "end of trees":
            yield [line]
            return
    if lines:
        yield lines


def _pairs(lines: list[str], known: tuple[str, ...], place: str) -> dict[str, str]:
    """The fields of lines of the form name=value."""
    pairs: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition("=")
        if name not in known:
            raise _Damage(f"{place} has an unknown line {_shown(line)}")
        if name in pairs:
            raise _Damage(f"{place} has two lines {name}")
        pairs[name] = value
    for name in known:
        if name not in pairs and name not in _OPTIONAL_HEADER:
            raise _Damage(f"{place} has no {name}")
    return pairs


def _header_features(header: Mapping[str, str]) -> int:
    """Number of features, after the fields of the header are checked."""
    for name, only in (("version", "v4"), ("num_class", "1"), ("num_tree_per_iteration", "1"), ("label_index", "0")):
        if header[name] != only:
            raise _Damage(f"{name} is {_shown(header[name])}, not {only}")
    if header.get("average_output"):
        raise _Damage(f"average_output is {_shown(header['average_output'])}, not empty")
    objective = header.get("objective")
    if objective is not None and objective not in OBJECTIVES:
        raise _Damage(f"the objective is {_shown(objective)}, not one of {', '.join(OBJECTIVES)}")
    features = _single(header["max_feature_idx"], "max_feature_idx", 0, MAX_FEATURES - 1) + 1
    for name in ("feature_names", "feature_infos"):
        count = len(header[name].split(" "))
        if count != features:
            raise _Damage(f"{name} has {count:,} entries for {features:,} features")
    return features


def _header_text(header: Mapping[str, str], features: int) -> str:
    objective = header.get("objective")
    lines = [
        "tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0",
        f"max_feature_idx={features - 1}", *([] if objective is None else [f"objective={objective}"]),
        *(["average_output"] if "average_output" in header else []),
        "feature_names=" + " ".join(f"Column_{feature}" for feature in range(features)),
        "feature_infos=" + " ".join(_range(item) for item in header["feature_infos"].split(" ")),
    ]  # fmt: skip
    return "\n".join(lines) + "\n\n"


def _range(item: str) -> str:
    """The range of a feature, [minimum:maximum]."""
    if item == "none":
        return item
    match = _RANGE.fullmatch(item)
    if match is None:
        raise _Damage(f"feature_infos has {_shown(item)}, not none or [minimum:maximum]")
    minimum, maximum = _finite(match[1], "feature_infos"), _finite(match[2], "feature_infos")
    if minimum > maximum:
        raise _Damage(f"feature_infos has {_shown(item)}, whose minimum is above its maximum")
    return f"[{minimum!r}:{maximum!r}]"


def _tree(pairs: Mapping[str, str], number: int, features: int) -> tuple[str, int, float]:
    """Text of a tree, its number of leaves, and its greatest absolute output."""
    place = f"tree {number}"
    leaves = _single(pairs["num_leaves"], f"num_leaves of {place}", 1, MAX_LEAVES)
    _single(pairs["num_cat"], f"num_cat of {place}", 0, 0)
    _single(pairs["is_linear"], f"is_linear of {place}", 0, 0)
    splits = leaves - 1
    integers = {name: _integers(pairs[name], f"{name} of {place}", splits) for name in _SPLIT_INTEGERS}
    numbers = {name: _numbers(pairs[name], f"{name} of {place}", splits) for name in _SPLIT_NUMBERS}
    # A split of missing values from all others has the threshold inf.
    numbers["threshold"] = _numbers(pairs["threshold"], f"threshold of {place}", splits, pattern=_THRESHOLDS)
    # LightGBM writes neither weight nor count of the leaf of a tree without splits.
    optional = {0, leaves} if leaves == 1 else {leaves}
    numbers["leaf_value"] = _numbers(pairs["leaf_value"], f"leaf_value of {place}", leaves)
    numbers["leaf_weight"] = _numbers(pairs["leaf_weight"], f"leaf_weight of {place}", *optional)
    numbers["shrinkage"] = _numbers(pairs["shrinkage"], f"shrinkage of {place}", 1)
    integers["leaf_count"] = _integers(pairs["leaf_count"], f"leaf_count of {place}", *optional)
    _within(integers["split_feature"], f"split_feature of {place}", 0, features - 1)
    for kind in integers["decision_type"]:
        if kind not in DECISION_TYPES:
            raise _Damage(f"decision_type of {place} has {kind}, which is not that of a numerical split")
    for name in ("internal_count", "leaf_count"):
        _within(integers[name], f"{name} of {place}", 0 if leaves == 1 else 1, MAX_COUNT)
    _check_structure(integers["left_child"], integers["right_child"], place)
    written = {name: " ".join(map(str, values)) for name, values in integers.items()}
    written |= {name: " ".join(map(repr, values)) for name, values in numbers.items()}
    written |= {"num_leaves": str(leaves), "num_cat": "0", "is_linear": "0"}
    lines = "\n".join(f"{name}={written[name]}" for name in _TREE_KEYS)
    return f"Tree={number}\n{lines}\n\n\n", leaves, max(map(abs, numbers["leaf_value"]))


def _check_structure(left: list[int], right: list[int], place: str) -> None:
    """Check that every node but the root has one parent, with a smaller number, and that the tree is not too deep.

    Node n >= 0 is a split, and ~n < 0 a leaf. LightGBM numbers splits in the order in which it adds them.
    """
    splits = len(left)
    if not splits:
        return
    children = np.array([left, right], np.int64)
    expected = np.concatenate([np.arange(-splits - 1, 0), np.arange(1, splits)])
    if not np.array_equal(np.sort(children, axis=None), expected):
        raise _Damage(f"left_child and right_child of {place} do not name each of its nodes once")
    if ((children >= 0) & (children <= np.arange(splits))).any():
        raise _Damage(f"left_child and right_child of {place} have a child before its parent")
    depth = [1] * splits
    for parent, pair in enumerate(zip(left, right, strict=True)):
        for child in pair:
            if child > 0:
                depth[child] = depth[parent] + 1
    if max(depth) > MAX_DEPTH:
        raise _Damage(f"{place} is {max(depth):,} splits deep; at most {MAX_DEPTH:,} are read")


def _integers(text: str, place: str, *counts: int) -> list[int]:
    """Integers separated by spaces."""
    if _INTEGERS.fullmatch(text) is None:
        raise _Damage(f"{place} is {_shown(text)}, not whole numbers")
    values = list(map(int, text.split()))
    _check_count(len(values), place, counts)
    return values


def _numbers(text: str, place: str, *counts: int, pattern: re.Pattern[str] = _NUMBERS) -> list[float]:
    """Numbers separated by spaces, finite unless the pattern allows others."""
    if pattern.fullmatch(text) is None:
        raise _Damage(f"{place} is {_shown(text)}, not finite numbers")
    values = list(map(float, text.split()))
    _check_count(len(values), place, counts)
    if pattern is _NUMBERS and values and not -np.inf < min(values) <= max(values) < np.inf:
        raise _Damage(f"{place} has a number that is too large")
    return values


def _check_count(count: int, place: str, counts: tuple[int, ...]) -> None:
    if count not in counts:
        raise _Damage(f"{place} has {count:,} numbers, not {max(counts):,}")


def _within(values: list[int], place: str, low: int, high: int) -> None:
    if values and not low <= min(values) <= max(values) <= high:
        wrong = min(values) if min(values) < low else max(values)
        raise _Damage(f"{place} has {wrong}, which is not from {low} to {high}")


def _single(text: str, place: str, low: int, high: int) -> int:
    values = _integers(text, place, 1)
    _within(values, place, low, high)
    return values[0]


def _finite(text: str, place: str) -> float:
    return _numbers(text, place, 1)[0]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def lightgbm_module() -> Any:
    """The module lightgbm."""
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("lightgbm", "predict") from None
    return lightgbm


def booster_of(trees: ValidatedTrees) -> Any:
    """The booster of validated trees; LightGBM must read no other text, as it does not validate it."""
    return lightgbm_module().Booster(model_str=trees.text)
