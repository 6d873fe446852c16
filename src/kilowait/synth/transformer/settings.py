"""What can be set of the transformer, and what it may be."""

from __future__ import annotations

from dataclasses import dataclass

from kilowait.errors import InputError

__all__ = ["TransformerSettings"]


@dataclass(frozen=True)
class TransformerSettings:
    """What one can set."""

    passes: float | None = None
    """Times the network goes through the log; None: about 1.2 million jobs in all, but 4 to 40 passes."""
    width: int | None = None
    """Of the network, a multiple of 8; None: 64, or 16 for a private one, as noise drowns a large one."""
    layers: int | None = None
    """Of the network; None: 2, or 1 for a private one."""
    frequent_jobs: int = 6
    """Kinds of job that the calendar keeps of each user's week. Fewer copy less of the log, and miss its weeks
    more."""
    session_s: float = 1800.0
    """The longest time within a session, seconds."""
    draws: int = 4
    """Draws of each user's week, of which one is taken so that the machine has the work it has in the log; 1: no
    choice."""
    dp_epsilon: float | None = None
    """Differential privacy of users: what the folder gives away of any one of them; None: nothing is promised. Passes,
    menu and draws then have no say."""
    dp_delta: float = 1e-5
    """Probability with which epsilon does not hold; it should be well below 1 / users."""
    dp_steps: int = 300
    """Steps of a private training. More learn more, and take more noise each."""
    dp_rate: float = 0.1
    """Probability with which a user takes part in a step."""

    def __post_init__(self) -> None:
        least = {"width": 8, "layers": 1, "frequent_jobs": 1, "session_s": 1.0, "draws": 1, "dp_steps": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not value >= low:
                raise InputError(f"{name} is {value}; it must be at least {low:g}")
        if self.width is not None and self.width % 8:
            raise InputError(f"width is {self.width}; it must be a multiple of 8")
        if self.passes is not None and not self.passes > 0:
            raise InputError(f"passes is {self.passes}; it must be above 0")
        if not 0 < self.dp_rate <= 1:
            raise InputError(f"dp_rate is {self.dp_rate}; it must be above 0 and at most 1")

    @property
    def private(self) -> bool:
        """Whether anything is promised."""
        return self.dp_epsilon is not None
