"""LightGBM's text format: validated trees predict the same, invalid ones are errors."""

from __future__ import annotations

import re

import lightgbm
import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.predict.forest import BoostingSettings, ForestSettings, Loss, fit_boosting, fit_forest, fit_random_forest
from kilowait.predict.tree_text import MAX_DEPTH, booster_of, leaves_per_tree, validated_trees


def rows(count: int = 400) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=(count, 5))
    values[::7, 1] = np.nan
    values[::5, 2] = 0.0
    return values


FITS = {
    "forest": lambda x, y: fit_forest(x, y, ForestSettings(trees=6, features=1.0), seed=1),
    "random-forest": lambda x, y: fit_random_forest(x, y, ForestSettings(trees=6, features=1.0), seed=1),
    **{
        loss: lambda x, y, loss=loss: fit_boosting(x, y, Loss.of(loss), BoostingSettings(trees=20), seed=1)
        for loss in ("mean", "median", "quantile:0.9", "asymmetric:3")
    },
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("constant", [False, True])
def test_validated_trees_predict_the_same(name, constant):
    values = rows()
    truth = np.full(len(values), 2.0) if constant else np.nan_to_num(values[:, 1]) + values[:, 0] * values[:, 3]
    text = FITS[name](values, truth).booster.model_to_string()
    trees = validated_trees(text, "trees.txt")
    original, written = lightgbm.Booster(model_str=text), booster_of(trees)
    for options in ({}, {"pred_leaf": True}, {"pred_contrib": True}):
        assert np.array_equal(original.predict(values, **options), written.predict(values, **options))
    assert trees.features == 5 and trees.leaves == tuple(leaves_per_tree(text))
    assert validated_trees(trees.text, "trees.txt") == trees
    assert validated_trees(written.model_to_string(), "trees.txt") == trees


TEXT = FITS["mean"](rows(), rows()[:, 0]).booster.model_to_string()


def with_value(field: str, position: int, value: object) -> str:
    """The text with another number in a field of the first tree."""

    def changed(match: re.Match[str]) -> str:
        numbers = match[1].split(" ")
        numbers[position] = str(value)
        return f"{field}={' '.join(numbers)}"

    return re.sub(rf"(?m)^{field}=(.*)$", changed, TEXT, count=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no LightGBM trees"),
        (TEXT.replace("version=v4", "version=v3"), "version is 'v3', not v4"),
        (TEXT.replace("num_class=1", "num_class=2000000000"), "num_class is '2000000000', not 1"),
        (TEXT.replace("num_tree_per_iteration=1", "num_tree_per_iteration=0"), "num_tree_per_iteration is '0'"),
        (TEXT.replace("max_feature_idx=4", "max_feature_idx=3"), "feature_names has 5 entries for 4 features"),
        (TEXT.replace("max_feature_idx=4", "max_feature_idx=2000000000"), "max_feature_idx has 2000000000"),
        (TEXT.replace("objective=regression", "objective=lambdarank"), "objective is 'lambdarank', not one of"),
        (TEXT.replace("feature_infos=[", "feature_infos=[9e9:"), "feature_infos has '.9e9:"),
        (TEXT.replace("num_class=1", "num_class=1\nlinear=1"), "header has an unknown line 'linear=1'"),
        (TEXT.replace("num_class=1", "num_class=1\nnum_class=1"), "header has two lines num_class"),
        (TEXT.replace("Tree=1\n", "Tree=7\n"), "'Tree=7' is not the beginning of tree 1"),
        (TEXT.replace("\nTree=", "\nBranch=").replace("tree_sizes", "tree_sizes"), "is not the beginning of tree 0"),
        (TEXT[:9000], "tree 3 has no internal_weight"),
        (with_value("num_leaves", 0, 2000000000), "num_leaves of tree 0 has 2000000000"),
        (with_value("num_leaves", 0, 5), "split_feature of tree 0 has .* numbers, not 4"),
        (with_value("num_cat", 0, 1), "num_cat of tree 0 has 1"),
        (with_value("is_linear", 0, 1), "is_linear of tree 0 has 1"),
        (with_value("split_feature", 2, 5), "split_feature of tree 0 has 5, which is not from 0 to 4"),
        (with_value("split_feature", 2, -1), "split_feature of tree 0 has -1"),
        (with_value("left_child", 1, 1000000), "children|do not name each of its nodes once"),
        (with_value("right_child", 0, -1000000), "do not name each of its nodes once"),
        (with_value("decision_type", 0, 1), "decision_type of tree 0 has 1, which is not that of a numerical split"),
        (with_value("threshold", 0, "nan"), "threshold of tree 0 is"),
        (with_value("leaf_value", 0, "inf"), "leaf_value of tree 0 is"),
        (with_value("leaf_value", 0, "1e999"), "leaf_value of tree 0 has a number that is too large"),
        (with_value("leaf_value", 0, "1e5"), "predictions of up to .* more than 500"),
        (with_value("leaf_count", 0, 0), "leaf_count of tree 0 has 0"),
        (with_value("internal_count", 0, 9999999999), "internal_count of tree 0 has 9999999999"),
        (with_value("shrinkage", 0, "1 1"), "shrinkage of tree 0 has 2 numbers, not 1"),
    ],
)
def test_invalid_text_is_an_error(text, message):
    with pytest.raises(InputError, match=rf"trees.txt is damaged: .*({message}).*fit it again"):
        validated_trees(text, "trees.txt")


def tree_of(left: list[int], right: list[int]) -> str:
    """The text of one tree with these children."""
    splits = len(left)
    numbers = {"num_leaves": "7", "num_cat": "0", "is_linear": "0", "shrinkage": "1"}
    numbers["num_leaves"] = str(splits + 1)
    for name in ("split_feature", "split_gain", "threshold", "internal_value", "internal_weight"):
        numbers[name] = " ".join(["0"] * splits)
    numbers |= {"decision_type": " ".join(["2"] * splits), "internal_count": " ".join(["1"] * splits)}
    for name in ("leaf_value", "leaf_weight", "leaf_count"):
        numbers[name] = " ".join(["1"] * (splits + 1))
    numbers |= {"left_child": " ".join(map(str, left)), "right_child": " ".join(map(str, right))}
    lines = "\n".join(f"{name}={value}" for name, value in numbers.items())
    return f"{TEXT.partition('tree_sizes')[0]}\nTree=0\n{lines}\n\nend of trees\n"


def chain(splits: int) -> str:
    return tree_of([-1 - split for split in range(splits)], [*range(1, splits), -1 - splits])


def test_structure_of_the_tree_is_checked():
    assert validated_trees(tree_of([1, -1], [-2, -3]), "x").leaves == (3,)
    for left, right in (([0, -1], [-2, -3]), ([-1, 1], [-2, -3]), ([-1, -1], [1, -3]), ([1, 1], [-1, -2])):
        with pytest.raises(InputError, match="do not name each of its nodes once|a child before its parent"):
            validated_trees(tree_of(left, right), "x")
    # Splits 1 and 2 are each other's children, and the root has two leaves.
    with pytest.raises(InputError, match="a child before its parent"):
        validated_trees(tree_of([-1, 2, 1], [-2, -3, -4]), "x")
    assert validated_trees(chain(MAX_DEPTH), "x").leaves == (MAX_DEPTH + 1,)
    with pytest.raises(InputError, match="2,049 splits deep; at most 2,048 are read"):
        validated_trees(chain(MAX_DEPTH + 1), "x")
