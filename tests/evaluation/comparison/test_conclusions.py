"""Conclusions in sentences: starvation, verdicts on agents, the most useful saving of energy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kilowait.evaluation.comparison import PolicyScores, pairwise_tests
from kilowait.evaluation.comparison.conclusions import (
    EnergyTradeOff,
    agent_sentences,
    best_trade_off,
    gpu_agent_sentences,
    power_agent_sentences,
    search_outcome,
    starvation,
    starvation_sentences,
    trade_off_sentence,
)


def test_starvation_is_above_five_times_the_longest_wait_of_fcfs():
    waits = {"fcfs": 100.0, "sjf": 500.0, "saf": 500.1, "f1": math.nan}
    assert list(starvation(waits, "fcfs")) == ["saf"]
    assert starvation(waits, None) == {}
    assert starvation({**waits, "fcfs": math.nan}, "fcfs") == {}
    assert starvation({"fcfs": 0.0, "saf": 1.0, "sjf": 0.0}, "fcfs") == {"saf": math.inf}
    days = {"fcfs": 43 * 86400.0, "saf": 515 * 86400.0}
    assert starvation_sentences(days, "fcfs") == [
        "Risk of starvation under saf: its longest wait, 515 d 0 h, is 12 times that of fcfs (43 d 0 h)."
    ]


def pair_of(windows, factor=0.5):
    values = 5.0 + np.arange(windows) % 7
    tests = pairwise_tests(PolicyScores("mean_bsld", ("agent", "saf"), [factor * values, values]), seed=0)
    return tests.pair("agent", "saf")


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.5, "significantly better"), (2.0, "significantly worse"), (1.0, "behaves like")]
)
def test_verdict_on_an_agent_states_what_it_rests_on(factor, verdict):
    sentences = agent_sentences(pair_of(24, factor), 0.25)
    assert verdict in sentences[0]
    assert sentences[2] == "This verdict rests on 24 windows of one log; on other jobs it may differ."
    assert sentences[3] == "The agent achieves 25 % of the gain that saf would have from perfect run-time estimates."


def test_verdict_on_few_windows_warns():
    assert agent_sentences(pair_of(12), math.nan)[2].startswith("This verdict rests on only 12 windows of one log: ")
    batches = replace(pair_of(30), unit="batch")
    assert "one run of one log, divided into 30 batches" in agent_sentences(batches, math.nan)[2]


def test_verdicts_on_agents_of_gpu_clusters_and_with_power_controls():
    assert "significantly better" in gpu_agent_sentences([0.9, 0.8, 0.99], 4)[0]
    assert "significantly worse" in gpu_agent_sentences([1.2, 1.1, 1.3], 4)[0]
    assert "is not significant" in gpu_agent_sentences([0.9, 0.8, 1.01], 4)[0]
    unknown = gpu_agent_sentences([0.9, None, None], 1)
    assert "is not significant" in unknown[0] and "no interval" in unknown[0] and "only 1 window" in unknown[1]

    def power(objective, delay):
        return power_agent_sentences({"objective_ratio": objective, "delay_ratio": delay}, "energy", 30, 24)[0]

    assert "dominates part" in power([0.9, 0.8, 0.99], [1.0, 0.9, 1.1])
    assert "is not better than" in power([1.0, 0.9, 1.1], [1.0, 0.9, 1.1])
    assert "is not significant" in power([0.9, 0.8, 1.1], [1.0, 0.9, 1.1])


def test_outcome_of_the_search():
    assert search_outcome("saf", "default", 1.0).endswith("the agent is that policy.")
    assert "found nothing clearly better than its start, 'default'" in search_outcome(None, "default", 0.0)
    assert "all the way" in search_outcome(None, "default", 1.0)


ROWS = [
    EnergyTradeOff("fcfs", 100.0, 600.0),
    EnergyTradeOff("sleep", 59.0, 660.0),
    EnergyTradeOff("dvfs", 90.0, 900.0),
    EnergyTradeOff("all", 52.0, 7200.0),
]


def test_best_trade_off_saves_much_for_little_wait():
    assert best_trade_off(ROWS).label == "sleep"
    assert trade_off_sentence(ROWS) == (
        "sleep saves 41.0 % of the energy of fcfs, and the mean wait increases by 1 min, from 10 min to 11 min."
    )
    free = [*ROWS[:3], replace(ROWS[3], mean_wait_s=600.0)]
    assert trade_off_sentence(free) == "all saves 48.0 % of the energy of fcfs without a longer mean wait."
    shorter = [*ROWS[:3], replace(ROWS[3], mean_wait_s=300.0)]
    assert trade_off_sentence(shorter).endswith("and the mean wait decreases from 10 min to 5 min.")


def test_no_trade_off_without_a_saving():
    assert best_trade_off(ROWS[:1]) is None
    assert trade_off_sentence([ROWS[0], replace(ROWS[1], energy_kwh=99.99)]) is None
    assert trade_off_sentence([replace(ROWS[0], mean_wait_s=math.nan), ROWS[1]]) is None
