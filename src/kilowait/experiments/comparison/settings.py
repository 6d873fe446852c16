"""Options of comparisons: policies, windows of the logs, metric, placements and power controls.

The module imports no NumPy: the command line takes its options from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kilowait.settings import Option


@dataclass(frozen=True)
class ComparisonOptions:
    """What is compared, on which windows of the logs, and by which metric, as texts of the command line."""

    policies: Annotated[
        str,
        Option(
            "P,...",
            "Comma-separated policies: names of kilowait policies, agent:PATH for a trained agent, or "
            "rule:FILE.py:NAME for your own function.",
            "-p",
        ),
    ] = "fcfs,sjf,saf,wfp3"
    backfill: Annotated[
        str | None,
        Option(
            "B,...",
            "Comma-separated kinds of backfilling: none, easy (the default), conservative, or the number of jobs "
            "that get a reservation; on GPU clusters none (the default) or skip.",
            "-b",
        ),
    ] = None
    windows: Annotated[
        int | None,
        Option(
            "N",
            "Compare on N windows of the log instead of the whole log; gives more reliable confidence intervals "
            "and significance tests.",
            "-w",
        ),
    ] = None
    window: Annotated[str, Option("N|SPAN", "Length of a window: a number of jobs, or a span such as 7d.")] = "1024"
    warmup: Annotated[
        str,
        Option(
            "N|SPAN",
            "Jobs before a window (a number or a span) that fill the cluster and are not counted; 0: the cluster "
            "starts empty.",
        ),
    ] = "0"
    split: Annotated[
        str,
        Option(
            "train|validation|test|all|auto",
            "Part of the log to use: train is the first 60 % of the jobs, validation the next 20 %, test the last "
            "20 %; auto: test if an agent is compared, else all.",
        ),
    ] = "auto"
    seed: Annotated[int, Option("N", "Random seed of the windows and the confidence intervals.")] = 0
    metric: Annotated[
        str | None,
        Option("METRIC", "Metric to test and sort by; by default mean_bsld, on GPU clusters mean_turnaround_s."),
    ] = None
    clairvoyant: Annotated[
        bool,
        Option(
            None,
            "Also run each policy with perfect run-time estimates, to show what they would gain.",
            "--clairvoyant/--no-clairvoyant",
        ),
    ] = True
    placement: Annotated[
        str | None,
        Option(
            "P,...",
            "Comma-separated placements, as in kilowait simulate; each policy is run with each placement. By "
            "default first, or what the policy prefers.",
        ),
    ] = None
    with_user_estimates: Annotated[
        bool,
        Option(
            None,
            "With --runtime-predictor: also run each policy with the users' own estimates.",
            "--with-user-estimates/--without-user-estimates",
        ),
    ] = True
    power_controls: Annotated[
        str,
        Option(
            "L,...",
            "With --power: comma-separated sets of power controls, each joined by +: "
            "none,sleep=break-even,dvfs=1.1,all. Savings are relative to the first.",
        ),
    ] = "none"
    gpu_power_cap: Annotated[
        str | None,
        Option(
            "SHARE,...",
            "GPU clusters: comma-separated power caps as shares of the GPU's limit (TDP): none,80%,60%. Needs --power.",
        ),
    ] = None
