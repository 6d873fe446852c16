"""Fixtures: a prediction report on a small synthetic log."""

from __future__ import annotations

import json

import pytest

import kilowait as kw
from kilowait.evaluation.storage import plain_json
from kilowait.experiments.prediction.report import prediction_report, save_prediction_report
from kilowait.report import write_report
from tests.predict.test_walk_forward import QUICK, repetitive_log

NASTY = "</script><b onload=x>"


@pytest.fixture(scope="session")
def report():
    """The prediction report of three users with regular behaviour; the log name must be escaped."""
    return prediction_report(repetitive_log(), kw.Cluster.from_nodes(16), trace=f"made{NASTY}", ids=[700], **QUICK)


@pytest.fixture(scope="session")
def without_requests(report):
    """The same report without requests, shortened to be drawn quickly."""
    shortened = json.loads(plain_json(report))
    shortened["explained"] = shortened["explained"][-1:]
    shortened["importance"]["beeswarm"] = shortened["importance"]["beeswarm"][:2]
    for row in shortened["scores"]:
        if row["name"] == "request":
            row |= {"jobs": 0, "accuracy": None, "log_rmse": None, "mae_s": None, "underprediction_rate": None}
    shortened["histogram"]["cells"]["request"] = []
    for row in shortened["drift"]["rows"]:
        row["request"] = None
    for rows in shortened["classes"].values():
        for row in rows:
            row["request"] = None
    for case in shortened["explained"]:
        case["request_s"] = None
    return shortened


def saved(path, report):
    """Save a prediction report as a folder."""
    return save_prediction_report(path, report, scenario={"trace": "made"}, manifest={"date": "today"})


@pytest.fixture(scope="session")
def page_and_figures(report, tmp_path_factory):
    """The page and the folder of its figures."""
    folder = tmp_path_factory.mktemp("predictions")
    figures = folder / "figures"
    return write_report([saved(folder / "first", report)], folder / "page.html", figures=figures), figures
