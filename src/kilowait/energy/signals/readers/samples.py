"""What a reader finds in a file, before it is a series: samples, and what the file says about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NOT_STATED", "Readings"]

NOT_STATED = "not stated"


@dataclass(frozen=True)
class Readings:
    """Samples in the file's own unit, each from its time (Unix seconds) on; NaN where a value is missing."""

    time_s: npt.NDArray[np.float64]
    value: npt.NDArray[np.float64]
    unit: str | None
    """As the file tells it; None where it does not."""
    location: str | None = None
    kind: str = NOT_STATED
    """Average or marginal."""
    scope: str = NOT_STATED
    """Direct or life-cycle."""
    step_s: float | None = None
    """How long a sample holds, where the file says so."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Counts for the meta of the series; a `note` is printed with every result."""
