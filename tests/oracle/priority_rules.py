"""Priority policies in plain Python, for the reference simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tests.oracle.reference import ReferenceJob, Rule

Formula = Callable[[float, int, float, float, float], float]
"""(e, n, w, s, eligible) -> score; s is the eligible time since the first submit of the table."""


def _late(s: float) -> float:
    return math.log10(max(s, 1.0))


FIXED: dict[str, Formula] = {
    "fcfs": lambda e, n, w, s, eligible: eligible,
    "sjf": lambda e, n, w, s, eligible: e,
    "ljf": lambda e, n, w, s, eligible: -e,
    "saf": lambda e, n, w, s, eligible: e * n,
    "saf_short": lambda e, n, w, s, eligible: e * n / math.sqrt(10.0 / max(e, 10.0)),
    "laf": lambda e, n, w, s, eligible: -(e * n),
    "smallest": lambda e, n, w, s, eligible: float(n),
    "largest": lambda e, n, w, s, eligible: -float(n),
    "f1": lambda e, n, w, s, eligible: math.log10(e) * n + 870.0 * _late(s),
    "f2": lambda e, n, w, s, eligible: math.sqrt(e) * n + 25600.0 * _late(s),
    "f3": lambda e, n, w, s, eligible: e * n + 6860000.0 * _late(s),
    "f4": lambda e, n, w, s, eligible: e * math.sqrt(n) + 530000.0 * _late(s),
}
"""Scored once, on arrival."""

MOVING: dict[str, Formula] = {
    "lxf": lambda e, n, w, s, eligible: -((w + e) / e),
    "wfp3": lambda e, n, w, s, eligible: -((w / e) ** 3 * n),
    "unicef": lambda e, n, w, s, eligible: -(w / (max(math.log2(n), 1e-15) * e)),
}
"""Scored at every pass."""

NAMES = (*FIXED, *MOVING)

PREDICTING = ("easy+", "easy++")
OVERRUN_RULE = dict.fromkeys(PREDICTING, "steps")
"""Overrun rule of a policy."""
BACKFILL_ORDER = {"easy++": "sjf"}
"""Order of the backfill candidates of a policy."""


class LastTwo:
    """First come, first served; planned with the mean of the user's last two jobs that have ended."""

    def __init__(self) -> None:
        self.ran: dict[int, list[float]] = {}

    def __call__(self, job: ReferenceJob, now: float, eligible: float) -> float:
        return eligible

    def predict(self, job: ReferenceJob, now: float, eligible: float) -> tuple[float, float]:
        estimate = max(job.estimate, 1.0)
        if job.user is None or job.user not in self.ran:
            return estimate, estimate if job.planned is None else job.planned
        last = self.ran[job.user][-2:]
        guess = max(min(sum(last) / len(last), estimate), 1.0)
        return guess, guess

    def observe(self, job: ReferenceJob, ran: float | None) -> None:
        if ran is not None and job.user is not None:
            self.ran.setdefault(job.user, []).append(ran)


def rule_for(name: str, jobs: Sequence[ReferenceJob]) -> tuple[Rule, bool]:
    """The policy for this table of jobs, and whether its scores are fixed on arrival."""
    if name in PREDICTING:
        return LastTwo(), True
    formula = FIXED[name] if name in FIXED else MOVING[name]
    first = min((job.submit for job in jobs), default=0.0)

    def rule(job: ReferenceJob, now: float, eligible: float) -> float:
        return formula(max(job.estimate, 1.0), job.size, now - eligible, eligible - first, eligible)

    return rule, name in FIXED
