"""Raw samples of a signal file with their unit, location and kind, before conversion to a Series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NOT_STATED", "RawSamples"]

NOT_STATED = "not stated"


@dataclass(frozen=True)
class RawSamples:
    """Samples in the unit of the file, each valid from its time (Unix seconds) on; NaN for missing values."""

    time_s: npt.NDArray[np.float64]
    value: npt.NDArray[np.float64]
    unit: str | None
    """The unit named in the file; None if it names none."""
    location: str | None = None
    kind: str = NOT_STATED
    """Average or marginal."""
    carbon_scope: str = NOT_STATED
    """Direct or life-cycle."""
    step_s: float | None = None
    """How long a sample is valid, if the file gives it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Counts for the meta of the series; a `note` is printed with every result."""
