"""Default anonymization rules of each column and each meta field.

Every column of `jobs.columns` has a rule; a column without one is an error, so that it is not published by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["HEADER_KEYS", "META_RULES", "COLUMN_RULES", "Action", "Rounding"]

Action = Literal["keep", "drop", "hash", "renumber"]
Rounding = Literal["down", "near", "some", "up"]
"""Rounding mode: down, to the nearest, to the nearest but at least one step ("some"), up."""


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Default action of a column, and how it can be coarsened."""

    action: Action
    rounding: Rounding | None = None
    """None: cannot be coarsened separately."""
    clock: bool = False
    """Whether the column is a time of the log: it is shifted with the dates and coarsened like `submit_s`."""


COLUMN_RULES: dict[str, ColumnRule] = {
    "job_id": ColumnRule("renumber"),
    "submit_s": ColumnRule("keep", "down", clock=True),
    "runtime_s": ColumnRule("keep", "some"),
    "estimate_s": ColumnRule("keep", "up"),
    "planned_s": ColumnRule("drop"),  # predictions are derived from users' histories
    "limit_s": ColumnRule("keep", "up"),
    "overrun_planned_s": ColumnRule("drop"),
    "expected_inverse_runtime": ColumnRule("drop"),
    "nodes": ColumnRule("keep", "some"),
    "cores": ColumnRule("keep", "some"),
    "memory_mb": ColumnRule("keep", "some"),
    "gpus": ColumnRule("keep", "some"),
    "cpu_milli": ColumnRule("keep", "some"),
    "gpu_milli": ColumnRule("keep", "some"),
    "gpu_types": ColumnRule("keep"),  # hardware types
    "model": ColumnRule("hash"),  # workload names may identify a project
    "gpus_may_span_nodes": ColumnRule("keep"),
    "priority": ColumnRule("keep", "near"),
    "checkpoint_s": ColumnRule("keep", "near"),
    "checkpoint_load_s": ColumnRule("keep", "near"),
    "user": ColumnRule("hash"),
    "account": ColumnRule("hash"),
    "queue": ColumnRule("keep"),  # usually public; the plan shows them
    "qos": ColumnRule("keep"),
    "name": ColumnRule("drop"),  # free text
    "node_list": ColumnRule("hash"),
    "status": ColumnRule("keep"),
    "wait_s": ColumnRule("keep", "near"),
    "after_id": ColumnRule("renumber"),
    "think_s": ColumnRule("keep", "near"),
    "begin_s": ColumnRule("keep", clock=True),
    "cancel_s": ColumnRule("keep", clock=True),
    "energy_j": ColumnRule("keep", "some"),
    "power_w": ColumnRule("keep", "some"),
    "predicted_power_w": ColumnRule("keep", "some"),
    "beta": ColumnRule("keep", "near"),
    "cpu_utilization": ColumnRule("keep", "near"),
    "gpu_utilization": ColumnRule("keep", "near"),
    "slack_s": ColumnRule("keep", "near"),
    "hold_until_s": ColumnRule("keep", clock=True),
}

META_RULES: dict[str, Literal["keep", "drop"]] = {
    "format": "keep",
    "max_procs": "keep",
    "max_nodes": "keep",
    "unix_start_s": "keep",
    "time_zone": "keep",
    "largest_machine": "keep",
    "reference_gpu": "keep",
    "rescaled_load": "keep",
    "source": "drop",
    "header": "drop",
    "ledger": "drop",
    "workload": "drop",
    "cluster": "drop",
    "model": "drop",
    "seed": "drop",
    "jobs_per_hour": "drop",
    "anonymized": "drop",  # of an earlier anonymization; replaced by the new one
}
"""Rules of the fields of `JobTable.meta`. Fields that are not listed are dropped."""

HEADER_KEYS = ("Computer", "Installation", "Acknowledge", "Information", "Conversion", "Copyright")
"""Keys kept of an SWF header if the header is kept: the others contain dates and sizes."""
