"""Errors that name Python arguments, reworded with the options of the command."""

from __future__ import annotations

import pytest

from kilowait.cli.app import ALIASES, options_of, with_option_names

SIMULATE, COMPARE, TRAIN = options_of(["simulate"]), options_of(["compare"]), options_of(["train"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('use on_oversized="drop" to leave out', "use --oversized drop to leave out"),
        ("at_limit='kil' is unknown", "--at-limit kil is unknown"),
        ("schedule_per is for batch clusters", "--schedule-per is for batch clusters"),
        ("resume=True", "resume=True"),  # simulate has no --resume
        ("preempt=False keeps it", "--no-preempt keeps it"),
        ("force=True replaces it", "--force replaces it"),
        ("migrate=True", "--migrate"),
        ("--carbon-scope is of no use", "--carbon-scope is of no use"),
        ("--power is missing", "--power is missing"),
        ("power_controls='all' needs a model", "--power-controls all needs a model"),
        ("the policy random:seed=3 and power of jobs", "the policy random:seed=3 and power of jobs"),
        ("column submit_s of jobs.csv, runs/my_jobs", "column submit_s of jobs.csv, runs/my_jobs"),
    ],
)
def test_arguments_become_options(text, expected):
    assert with_option_names(text, SIMULATE) == expected


def test_only_options_of_the_command_are_named():
    assert with_option_names("window_jobs=5", COMPARE) == "--window 5"
    assert with_option_names("window_jobs=5", SIMULATE) == "window_jobs=5"
    assert with_option_names("n_envs and resume=True", TRAIN) == "--num-envs and --resume"
    assert with_option_names("split='tset'", COMPARE) == "--split tset"


def test_aliases_are_parameters_of_some_command():
    known = set()
    for command in (
        "simulate", "compare", "train", "evaluate", "pareto", "predict score", "synth sample", "traces anonymize"
    ):  # fmt: skip
        known |= set(options_of(command.split()))
    assert set(ALIASES.values()) <= known


def test_messages_name_options(kilowait):
    assert "--oversized drop" in kilowait("simulate", "lublin:3:64", "--cluster", "nodes:1").error()
    assert (
        "--carbon-scope needs a power model" in kilowait("simulate", "lublin:3:64", "--carbon-scope", "direct").error()
    )
