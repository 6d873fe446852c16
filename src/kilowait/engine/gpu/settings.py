"""How jobs are placed on single nodes, preempted and moved."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kilowait.errors import InputError, UnknownNameError

__all__ = ["INTERFERENCE", "PLACEMENTS", "GpuSettings"]

PLACEMENTS = {
    "first": "the first node with room",
    "best": "the node that is fullest afterwards",
    "worst": "the node that is emptiest afterwards",
    "consolidate": "as few nodes as possible, and of those the fullest",
    "random": "any node with room, drawn with a seed",
    "dot-product": "the node whose free resources are least like what is asked for (dot product)",
    "gpu-packing": "GPUs in use before free ones, nodes in use before idle ones",
    "gpu-clustering": "nodes with jobs of the same size",
    "fgd": "the node where the fewest new fragments arise (fragmentation gradient descent)",
    "capacity": "the node that loses the least room for jobs like those of the table",
}
"""Ways to choose a node, in the order of their codes."""

INTERFERENCE: tuple[tuple[float, float], ...] = (
    (0.75, 1.0),
    (1.0, 0.97),
    (1.25, 0.93),
    (1.5, 0.84),
    (1.75, 0.75),
    (math.inf, 0.70),
)
"""Speed of jobs that share a GPU, by the sum of their loads on it. Means of 1,388 pairs of Lucid's colocation
measurements; what they show above 1 (up to 1.01) is taken as 1."""


@dataclass(frozen=True)
class GpuSettings:
    """How a run on placed nodes goes; docs/gpu-engine.md has the rules. Times in seconds."""

    placement: str = "first"
    """One of `PLACEMENTS`."""
    types: str = "any"
    """Which GPU types are tried first: any (all alike), fastest, or given (by a table handed in)."""
    head_of_line_blocking: bool = True
    """Whether the first job that cannot start keeps all behind it waiting."""
    preempt: bool = False
    """Whether a waiting job may put out running ones that come after it in the order."""
    migrate: bool = False
    """Whether running jobs move to where they are believed to end sooner."""
    min_run_before_preempt_s: float = 0.0
    """A job that has just started is left alone for so long."""
    grace_s: float = 0.0
    """A preempted job works on for so long."""
    checkpoint_write_s: float = 0.0
    """Then it writes its checkpoint, if it does so when preempted."""
    checkpoint_load_s: float = 0.0
    """Time to go on from a checkpoint, for jobs that do not say."""
    checkpoint_s: float = 0.0
    """Work between checkpoints, for jobs that do not say; 0: one is written when it is preempted; infinite: never."""
    round_interval_s: float = 0.0
    """Passes are made at these intervals too; 0: at events only."""
    rounds: bool = False
    """Passes are made at ticks only."""
    interference: tuple[tuple[float, float], ...] | None = INTERFERENCE
    """Rows of (load up to, speed) for jobs that share a GPU; None: they do not slow each other down."""
    at_limit: str = "extend"
    on_oversized: str = "error"
    seed: int = 0
    """Of random placement."""

    def __post_init__(self) -> None:
        for name, known in (
            ("placement", tuple(PLACEMENTS)),
            ("types", ("any", "fastest", "given")),
            ("at_limit", ("extend", "kill")),
            ("on_oversized", ("error", "drop")),
        ):
            if getattr(self, name) not in known:
                raise UnknownNameError(f"{name} rule", str(getattr(self, name)), known)
        for name in (
            "min_run_before_preempt_s",
            "grace_s",
            "checkpoint_write_s",
            "checkpoint_load_s",
            "round_interval_s",
        ):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(
                    f"{name} is {getattr(self, name)}; it must be a number of seconds, 0 or more"
                )
        if not self.checkpoint_s >= 0:
            raise InputError(f"checkpoint_s is {self.checkpoint_s}; it must be 0 or more seconds of work")
        if self.rounds and self.round_interval_s == 0:
            raise InputError("rounds need a length; give round_interval_s, for instance 360")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"the seed of random placement is {self.seed}; it must be 0 to 2^31 - 1")
        if self.interference is not None:
            ups = [up for up, _ in self.interference]
            if (
                not ups
                or ups != sorted(set(ups))
                or any(not 0 < value <= 1 for _, value in self.interference)
            ):
                raise InputError(
                    "interference has rows (load up to, speed), the loads rising, speeds above 0 and at most 1"
                )

    @property
    def code(self) -> int:
        """Number of the placement."""
        return list(PLACEMENTS).index(self.placement)
