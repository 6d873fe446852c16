"""Data-independent codes: sizes and requests on a fixed grid, times and watts in bins of half an octave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from kilowait.synth.log_schema import WEEK_S, Columns, LogSchema
from kilowait.synth.transformer.tokenizer import RuntimeTokenizer, Tokenizer

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
REQUESTS_S = (
    *(MINUTE * number for number in (1, 2, 5, 10, 15, 20, 30, 45)),
    *(HOUR * number for number in (1, 2, 3, 4, 6, 8, 10, 12, 15, 18, 20)),
    *(DAY * number for number in (1, 1.5, 2, 3, 4, 5, 7, 10, 14, 21, 28, 60, 90)),
)
"""Common requests; each job's request is rounded up to the next."""
LONGEST_S = REQUESTS_S[-1]
MAX_NODES = 2**17
"""Maximum nodes of a job where the machine's size is not known."""
STATUS_CODES = tuple(range(-1, 6))
MAX_W = 1e5
MIN_SHARE = 2.0**-16
"""Smallest share of the request with its own bin; smaller shares are one bin."""
VALUES_PER_BIN = 16
"""Number of values decoded per bin, evenly spaced on a log scale."""


def public_tokenizer(name: str, schema: LogSchema, session_s: float) -> Tokenizer:
    """Public codes of a column.

    >>> from kilowait.synth import lublin
    >>> from kilowait.synth.log_schema import log_schema
    >>> sizes = public_tokenizer("nodes", log_schema(lublin(200, 64)), 1800.0)
    >>> sizes.decode(sizes.encode(np.array([1.0, 5.0, 64.0])), np.random.default_rng(0)).tolist()
    [1.0, 6.0, 64.0]
    """
    if name == "gap_s":
        return _bins(1.0, session_s)
    if name == "power_w":
        return _bins(1.0, MAX_W, atoms=(-1.0,))
    return _atoms(_values(name, schema))


def public_runtime_tokenizer(*, requests: bool) -> RuntimeTokenizer:
    """Public codes of run times: bins of half an octave, and one code for "ended by its limit".

    Args:
        requests: run times are shares of the request. This suits noisy training: with absolute run times, long
            ones sampled with a short request are impossible, so that short ones would be too frequent.
    """
    below = _bins(MIN_SHARE, 1.0) if requests else _bins(1.0, LONGEST_S)
    return RuntimeTokenizer(below, _atoms((0.0,)), of_request=requests)


def public_schema(schema: LogSchema) -> LogSchema:
    """Public part of the schema: the columns, the machine, its queues and the weeks of the log."""
    columns = tuple(name for name in schema.columns if _is_public(name, schema))
    seen = {
        name: np.asarray(_values(name, schema), np.float64 if name == "estimate_s" else np.int64)
        for name in columns
        if name not in ("user", "runtime_s", "energy_j")
    }
    begin_s = (schema.first_s + schema.zero_s) // WEEK_S * WEEK_S - schema.zero_s
    weeks = (schema.first_s + schema.span_s - begin_s) // WEEK_S + 1
    return replace(
        schema,
        jobs=0,
        first_s=begin_s,
        span_s=weeks * WEEK_S,
        columns=columns,
        most_over_s=0.0,
        longest_s=LONGEST_S,
        seen=seen,
        labels={name: texts for name, texts in schema.labels.items() if name in columns and name != "user"},
        numbered={},
    )


def to_public_values(rows: Columns, schema: LogSchema) -> Columns:
    """The log's rows with sizes and requests on the grid, and without columns that have no public grid."""
    rng = np.random.default_rng(0)  # unused: values with their own code are decoded without sampling
    columns = {name: column for name, column in rows.items() if name == "submit_s" or _is_public(name, schema)}
    for name in ("nodes", "gpus", "estimate_s"):
        if name in columns:
            codes = _atoms(_values(name, schema))
            columns[name] = codes.decode(codes.encode(columns[name].astype(np.float64)), rng)
    if schema.exact_requests:
        columns["estimate_s"] = np.full(len(columns["runtime_s"]), LONGEST_S)
    columns["runtime_s"] = np.minimum(columns["runtime_s"], columns["estimate_s"])
    return columns


def _is_public(name: str, schema: LogSchema) -> bool:
    """Whether a column is public: accounts are personal, and unnamed queues are known only from the log."""
    return name != "account" and (name != "queue" or "queue" in schema.labels)


def _values(name: str, schema: LogSchema) -> Sequence[float]:
    if name == "estimate_s":
        return REQUESTS_S
    if name == "status":
        return STATUS_CODES
    if name == "queue":
        return range(len(schema.labels["queue"]))
    max_nodes = int(schema.meta.get("max_procs") or schema.meta.get("max_nodes") or MAX_NODES)
    sizes = {1, max_nodes, *(factor * 2**power for factor in (2, 3) for power in range(max_nodes.bit_length()))}
    return sorted({size for size in sizes if size <= max_nodes} | ({0} if name == "gpus" else set()))


def _atoms(values: Sequence[float]) -> Tokenizer:
    return Tokenizer(np.asarray(values, np.float64), np.empty(0), np.empty(0), np.zeros(1, np.int64))


def _bins(least: float, most: float, atoms: Sequence[float] = ()) -> Tokenizer:
    """Half octaves from `least` to `most`; the first bin begins at 0."""
    steps = max(1, int(np.ceil(2 * np.log2(most / least))))
    ends = least * 2.0 ** (np.arange(steps + 1) / 2)
    edges = ends[1:-1]
    kept = [np.geomspace(low, high, VALUES_PER_BIN, endpoint=False) for low, high in pairwise(ends)]
    kept[0] = np.linspace(0.0, ends[1], VALUES_PER_BIN, endpoint=False)
    values = np.minimum(np.concatenate(kept), most)
    if least >= 1:  # seconds and watts are whole
        values = np.round(values)
    return Tokenizer(
        np.asarray(atoms, np.float64), edges, values, np.arange(0, VALUES_PER_BIN * steps + 1, VALUES_PER_BIN)
    )
