"""Lazy import of LightGBM, and loading of its models, with errors of kilowait."""

from __future__ import annotations

from typing import Any

from kilowait.errors import MissingExtraError
from kilowait.predict.tree_text import ValidatedTrees

__all__ = ["booster_of", "lightgbm_module"]


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
