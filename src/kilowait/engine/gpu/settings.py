"""Settings of GPU simulations: placement, preemption, migration, checkpoints, interference."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kilowait.errors import InputError, UnknownNameError

PLACEMENTS = {
    "first": "the first node with enough free resources",
    "best": "best fit: the node with the least free afterwards",
    "worst": "worst fit: the node with the most free afterwards",
    "consolidate": "as few nodes as possible, of those the fullest",
    "random": "a random node with enough free resources",
    "dot-product": "the node with the smallest dot product of free and requested resources",
    "gpu-packing": "GPUs in use before free ones, nodes in use before idle ones",
    "gpu-clustering": "nodes with jobs of the same size",
    "fgd": "the node with the least additional fragmentation (fragmentation gradient descent)",
    "capacity": "the node that loses the least capacity for jobs like those of the table",
}
"""Placement strategies, in the order of their codes."""

INTERFERENCE: tuple[tuple[float, float], ...] = (
    (0.75, 1.0),
    (1.0, 0.97),
    (1.25, 0.93),
    (1.5, 0.84),
    (1.75, 0.75),
    (math.inf, 0.70),
)
"""Speed of jobs that share a GPU, by the sum of their loads. Means of 1,388 pairs of Lucid's colocation
measurements; values above 1 (up to 1.01) are set to 1."""

RESTART_S = 30.0
"""Default cost of every restart, seconds: the delay that the simulator of Pollux (Qiao et al., OSDI 2021; repository
petuum/adaptdl, simulator/simulator.py) charges a job for every change of its allocation. It stands for writing a
checkpoint, starting the job and loading the checkpoint together. Sia uses 25 s (DeepSpeech2) to 250 s (ImageNet)."""

MIN_ROUND_INTERVAL_S = 1e-3
"""Shortest round interval, seconds; rounds must advance the simulated time."""


@dataclass(frozen=True)
class GpuSettings:
    """Settings of a GPU simulation; docs/gpu-engine.md defines them. Times in seconds.

    >>> settings = GpuSettings(placement="consolidate", preempt=True, checkpoint_load_s=60.0)
    >>> settings.preempt, settings.head_of_line_blocking
    (True, True)
    """

    placement: str = "first"
    """One of `PLACEMENTS`."""
    gpu_type_order: str = "any"
    """Order of GPU types: any (no preference), fastest, or given (by a preference table)."""
    head_of_line_blocking: bool = True
    """Whether the first job that cannot start blocks all jobs behind it."""
    preempt: bool = False
    """Whether a waiting job may preempt running jobs of lower priority."""
    migrate: bool = False
    """Whether running jobs migrate to nodes where their expected end is earlier."""
    min_run_before_preempt_s: float = 0.0
    """Minimum run time before a job may be preempted or migrated."""
    grace_s: float = 0.0
    """Grace period: a preempted job continues to work for this time."""
    checkpoint_write_s: float = 0.0
    """Time to write a checkpoint after the grace period, for jobs that checkpoint on preemption; the default of
    `checkpoint_load_s` includes it."""
    checkpoint_load_s: float = RESTART_S
    """Time to resume from a checkpoint, for jobs without a value of their own; 0: preemption is free."""
    checkpoint_s: float = 0.0
    """Work between checkpoints, for jobs without a value of their own; 0: checkpoint on preemption; infinite: never."""
    round_interval_s: float = 0.0
    """Additional scheduling passes at this interval; 0: at events only."""
    rounds: bool = False
    """Make scheduling passes only at the round interval."""
    interference: tuple[tuple[float, float], ...] | None = INTERFERENCE
    """Rows of (load up to, speed) for jobs that share a GPU; None: no interference."""
    at_limit: str = "extend"
    on_oversized: str = "error"
    gpu_speeds: str = "auto"
    """Speed of jobs on each GPU type: auto (measured where known, else roofline, else 1), roofline, none (all 1), or
    a file of throughputs in Gavel's format. A table handed to `simulate` takes precedence."""
    seed: int = 0
    """Seed of random placement."""

    def __post_init__(self) -> None:
        for name, known in (
            ("placement", tuple(PLACEMENTS)),
            ("gpu_type_order", ("any", "fastest", "given")),
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
                raise InputError(f"{name} is {getattr(self, name)}; it must be a number of seconds, 0 or more")
        if 0 < self.round_interval_s < MIN_ROUND_INTERVAL_S:
            raise InputError(
                f"round_interval_s is {self.round_interval_s}; it must be 0 (no rounds) or at least "
                f"{MIN_ROUND_INTERVAL_S:g} seconds"
            )
        if not self.checkpoint_s >= 0:
            raise InputError(f"checkpoint_s is {self.checkpoint_s}; it must be 0 or more seconds of work")
        if self.rounds and self.round_interval_s == 0:
            raise InputError("rounds need an interval; give round_interval_s, for instance 360")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"the seed of random placement is {self.seed}; it must be 0 to 2^31 - 1")
        if self.interference is not None:
            ups = [up for up, _ in self.interference]
            if not ups or ups != sorted(set(ups)) or any(not 0 < value <= 1 for _, value in self.interference):
                raise InputError(
                    "interference has rows (load up to, speed), with increasing loads, speeds above 0 and at most 1"
                )

    @property
    def code(self) -> int:
        """Code of the placement."""
        return list(PLACEMENTS).index(self.placement)
