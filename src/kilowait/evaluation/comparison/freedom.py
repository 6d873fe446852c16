"""What the contenders of a comparison on a GPU cluster were allowed to do besides ordering jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FREEDOMS = ("preempt", "migrate", "types", "skip")
"""Preempt running jobs; migrate running jobs; try some GPU types first; start jobs behind a job that does not fit."""


def freedom_of_run(run: Mapping[str, Any]) -> tuple[str, ...]:
    """What a run on a GPU cluster was allowed to do, by the settings that its log records.

    >>> freedom_of_run({"preempt": True, "gpu_type_order": "fastest", "head_of_line_blocking": True})
    ('preempt', 'types')
    """
    may = {
        "preempt": run.get("preempt", False),
        "migrate": run.get("migrate", False),
        "types": run.get("gpu_type_order", "any") != "any",
        "skip": not run.get("head_of_line_blocking", True),
    }
    return tuple(name for name in FREEDOMS if may[name])


_VERBS = {
    "preempt": "preempt jobs",
    "migrate": "migrate jobs",
    "types": "try some GPU types first",
    "skip": "let jobs overtake blocked ones",
}


def difference_sentence(first: str, first_may: Sequence[str], second: str, second_may: Sequence[str]) -> str:
    """What one of two contenders may do and the other not; empty if they may do the same.

    >>> difference_sentence("agent", ("preempt", "migrate"), "sjf", ("preempt",))
    'They have different freedom: agent may migrate jobs, sjf may not.'
    """
    parts = []
    for name, other, more, fewer in ((first, second, first_may, second_may), (second, first, second_may, first_may)):
        extra = [_VERBS[each] for each in FREEDOMS if each in more and each not in fewer]
        if extra:
            parts.append(f"{name} may {' and '.join(extra)}, {other} may not")
    return f"They have different freedom: {'; '.join(parts)}." if parts else ""
