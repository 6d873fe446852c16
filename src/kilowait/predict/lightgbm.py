"""Lazy import of LightGBM, and loading of its models, with errors of kilowait."""

from __future__ import annotations

from os import PathLike
from typing import Any

from kilowait.errors import InputError, MissingExtraError

__all__ = ["load_booster", "lightgbm_module"]


def lightgbm_module() -> Any:
    """The module lightgbm."""
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("lightgbm", "predict") from None
    return lightgbm


def load_booster(text: str, source: str | PathLike[str]) -> Any:
    """Load a booster from LightGBM's text format."""
    lgb = lightgbm_module()
    if not text.startswith("tree"):
        raise InputError(f"{source} contains no LightGBM trees; fit it again with kilowait predict fit")
    try:
        return lgb.Booster(model_str=text)
    except lgb.basic.LightGBMError as problem:
        raise InputError(f"{source} is damaged ({problem}); fit it again with kilowait predict fit") from None
