"""A folder on predicted run times of a small made log."""

from __future__ import annotations

import json

import pytest

import kilowait as kw
from kilowait.evaluation.storage import plain_json
from kilowait.experiments.prediction_report import prediction_report, save_foretold
from kilowait.report import write_report
from tests.predict.test_runtime import QUICK, habits

NASTY = "</script><b onload=x>"


@pytest.fixture(scope="session")
def told():
    """What is told of three users' habits, the log with a nasty name."""
    return prediction_report(habits(), kw.Cluster.from_nodes(16), trace=f"made{NASTY}", ids=[700], **QUICK)


@pytest.fixture(scope="session")
def without_requests(told):
    """The same, as a log tells it that does not know requests; little of it, to be drawn quickly."""
    found = json.loads(plain_json(told))
    found["explained"] = found["explained"][-1:]
    found["importance"]["swarm"] = found["importance"]["swarm"][:2]
    for row in found["scores"]:
        if row["name"] == "request":
            row |= {
                "jobs": 0,
                "accuracy": None,
                "log_rmse": None,
                "mae_s": None,
                "underprediction_rate": None,
            }
    found["plane"]["cells"]["request"] = []
    for row in found["drift"]["rows"]:
        row["request"] = None
    for rows in found["classes"].values():
        for row in rows:
            row["request"] = None
    for case in found["explained"]:
        case["request_s"] = None
    return found


def saved(path, found):
    """A folder of kind foresight."""
    return save_foretold(path, found, scenario={"trace": "made"}, manifest={"date": "today"})


@pytest.fixture(scope="session")
def drawn(told, tmp_path_factory):
    """The page, and the folder of its figures."""
    above = tmp_path_factory.mktemp("foresight")
    figures = above / "figures"
    return write_report([saved(above / "first", told)], above / "page.html", figures=figures), figures
