from __future__ import annotations

import math

import numpy as np
import pytest

from kilowait.errors import UnknownNameError
from kilowait.evaluation import by_class, metrics
from kilowait.evaluation.breakdown import combine_classes
from tests.evaluation.example_logs import NEVER, example_log


def log_of(*nodes, **columns):
    return example_log(*((0, 10 * k, 3600, n) for k, n in enumerate(nodes)), capacity=((0, 10**6),), **columns)


def test_size_classes():
    rows = by_class(log_of(1, 2, 4, 5, 16, 17, 64, 65, 300), "size")
    assert [(row.label, row.jobs) for row in rows] == [
        ("1", 1),
        ("2-4", 2),
        ("5-16", 2),
        ("17-64", 2),
        ("65-256", 1),
        ("257-1024", 1),
    ]


def test_very_large_sizes_have_a_class():
    assert by_class(log_of(2**62), "size")[0].label == f"{4**30 + 1}-{4**31}"
    row = by_class(example_log((0, NEVER, 1, 2**63 - 1024)), "size")[0]
    assert row.label == f"> {4**31}"


def test_values_of_size_classes():
    log = example_log((0, 0, 3600, 2), (0, 100, 50, 4), (0, 200, 100, 3), (0, NEVER, 5, 4), (0, 300, 5, 1))
    size_1, size_2_to_4 = by_class(log, "size")
    assert (size_1.label, size_1.jobs, size_1.started) == ("1", 1, 1)
    assert size_1.mean_bsld == 30.5
    assert (size_2_to_4.label, size_2_to_4.jobs, size_2_to_4.started) == ("2-4", 4, 3)
    assert size_2_to_4.mean_wait_s == 100
    assert size_2_to_4.median_wait_s == 100
    assert size_2_to_4.p95_wait_s == pytest.approx(190)
    assert size_2_to_4.max_wait_s == 200
    assert size_2_to_4.mean_bsld == pytest.approx((1 + 3 + 3) / 3)
    assert size_2_to_4.allocated_h == pytest.approx((2 * 3600 + 4 * 50 + 3 * 100) / 3600)


def test_users_by_node_hours():
    log = log_of(1, 8, 3, 2, user=[0, 1, 0, -1], labels={"user": ("ann", "bob", "nobody")})
    rows = by_class(log, "user")
    assert [(row.label, row.jobs, row.allocated_h) for row in rows] == [("bob", 1, 8), ("ann", 2, 4), ("-", 1, 2)]
    assert sum(row.allocated_h for row in rows) == pytest.approx(metrics(log)["busy_node_h"])


def test_numeric_users_without_labels():
    assert [row.label for row in by_class(log_of(1, 2, queue=[7, 3]), "queue")] == ["3", "7"]


def test_missing_column():
    rows = by_class(log_of(1, 2), "account")
    assert [(row.label, row.jobs) for row in rows] == [("-", 2)]


def test_runtime_classes():
    runs = (0, 59.9, 60, 599, 600, 3600, 21_600, 86_399, 86_400)
    rows = by_class(example_log(*((0, 0, run, 1) for run in runs)), "runtime")
    assert [(row.label, row.jobs) for row in rows] == [
        ("< 1 min", 2),
        ("1-10 min", 2),
        ("10-60 min", 1),
        ("1-6 h", 1),
        ("6-24 h", 2),
        (">= 24 h", 1),
    ]


def test_class_without_a_start():
    (row,) = by_class(example_log((0, NEVER, 5, 1)), "size")
    assert (row.jobs, row.started, row.allocated_h) == (1, 0, 0)
    assert math.isnan(row.mean_wait_s)
    assert math.isnan(row.mean_bsld)


@pytest.mark.parametrize("kind", ["size", "runtime", "user"])
def test_empty_log(kind):
    assert by_class(example_log(), kind) == []


def test_unknown_class():
    with pytest.raises(UnknownNameError, match="did you mean 'user'"):
        by_class(example_log(), "users")


def test_classes_add_up_to_all_jobs():
    log = log_of(*range(1, 200))
    rows = by_class(log, "size")
    assert sum(row.jobs for row in rows) == 199
    mean = sum(row.mean_wait_s * row.jobs for row in rows) / 199
    assert mean == pytest.approx(metrics(log)["mean_wait_s"])


def test_counted_jobs():
    log = log_of(1, 2, 4, 5, 3, user=[0, 1, 0, -1, 2])
    counted = [True, False, True, False, True]
    assert [(row.label, row.jobs, row.max_wait_s) for row in by_class(log, "size", counted=counted)] == [
        ("1", 1, 0),
        ("2-4", 2, 40),
    ]
    users = by_class(log, "user", counted=counted)
    assert [(row.label, row.started, row.allocated_h) for row in users] == [("0", 2, 5), ("2", 1, 3)]
    assert by_class(log, "runtime", counted=[False] * 5) == []
    assert by_class(log, "size", counted=[True] * 5) == by_class(log, "size")


def test_by_gpus():
    """Fractions of a GPU are a separate class; a log without a GPU column has one class."""
    rows = [(0, 0, 10, 1)] * 7
    gpus, gpu_milli = [0, 1, 1, 2, 4, 8, 9], [1000, 500, 1000, 1000, 1000, 1000, 1000]
    log = example_log(*rows, gpus=gpus, gpu_milli=gpu_milli)
    labels = ["none", "part of 1", "1", "2", "3-4", "5-8", "9-16"]
    assert [(row.label, row.jobs) for row in by_class(log, "gpus")] == [(label, 1) for label in labels]
    assert by_class(log, "gpus")[1].gpu_h == pytest.approx(0.5 * 10 / 3600)
    assert [row.label for row in by_class(example_log(*rows), "gpus")] == ["none"]
    halves = [by_class(log, "gpus", counted=np.arange(7) % 2 == part) for part in (1, 0)]
    combined = combine_classes(halves, "gpus")
    assert [row.label for row in combined] == labels
    assert sum(row.gpu_h for row in combined) == pytest.approx((0.5 + 1 + 2 + 4 + 8 + 9) * 10 / 3600)
