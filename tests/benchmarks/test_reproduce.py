"""Reproduction of published tables: recorded start times, published means, and the tables of the docs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.reproduce import rlscheduler, simulator_speed, tsafrir
from benchmarks.reproduce.__main__ import main
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.easy_plus_variants import Reading
from benchmarks.reproduce.rlscheduler_rules import RULES, Job, commitments_of, starts_of


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def sources(data_dir: Path) -> Sources:
    return Sources.find(str(data_dir))


@pytest.fixture(scope="module")
def rlscheduler_results(sources: Sources) -> dict[str, Any]:
    return rlscheduler.results(sources, quiet)


@pytest.fixture(scope="module")
def tsafrir_results(sources: Sources) -> dict[str, Any]:
    return tsafrir.results(sources, quiet)


@pytest.fixture(scope="module")
def page(project: Path) -> str:
    return (project / "docs" / "reproduce.md").read_text(encoding="utf-8")


# -- commitments, on a few jobs ---------------------------------------------------------------------


def test_later_shorter_job_waits_for_the_committed_job():
    jobs = [Job(0, 0, 100, 100, 3), Job(1, 1, 50, 50, 4), Job(2, 2, 1, 1, 1)]
    assert starts_of(jobs, 4, RULES["SJF"], backfill=False) == [0, 100, 150]


def test_backfilled_jobs_end_strictly_before_the_shadow_time():
    def third(request: int) -> int:
        jobs = [Job(0, 0, 100, 100, 3), Job(1, 1, 50, 50, 4), Job(2, 2, request, request, 1)]
        return starts_of(jobs, 4, RULES["FCFS"], backfill=True)[2]

    assert third(97) == 2
    assert third(98) == 150, "2 + 98 equals the shadow time"


def test_backfilling_ignores_extra_processors():
    """Job 1 leaves a processor free at the shadow time; EASY would start job 2 on it."""
    jobs = [Job(0, 0, 100, 100, 3), Job(1, 1, 50, 50, 3), Job(2, 2, 500, 500, 1)]
    assert starts_of(jobs, 4, RULES["FCFS"], backfill=True) == [0, 100, 100]


def test_shadow_time_is_fixed_at_the_commitment():
    """Job 0 requests 100 s and ends after 10 s. The shadow time stays 100, so job 3 starts and delays job 1."""
    jobs = [Job(0, 0, 10, 100, 2), Job(1, 1, 5, 5, 4), Job(2, 2, 60, 60, 1), Job(3, 20, 70, 70, 1)]
    assert starts_of(jobs, 4, RULES["FCFS"], backfill=True) == [0, 90, 2, 20]


def test_arrivals_precede_releases_of_the_same_second():
    """Job 2 arrives as job 0 ends and is backfilled before the committed job starts."""
    jobs = [Job(0, 0, 10, 20, 3), Job(1, 1, 5, 5, 4), Job(2, 10, 3, 3, 1)]
    assert starts_of(jobs, 4, RULES["FCFS"], backfill=True) == [0, 13, 10]


@pytest.mark.parametrize("rule", ["WFP3", "UNICEP"])
def test_published_wait_reverses_the_order(rule):
    """When the second job starts, a short and a long job have waited equally: the short one should go first."""
    jobs = [Job(0, 0, 100, 100, 4), Job(1, 1, 10, 10, 4), Job(2, 9, 5, 5, 4), Job(3, 9, 900, 900, 4)]
    assert starts_of(jobs, 4, RULES[f"{rule}_corrected"], backfill=False) == [0, 100, 110, 115]
    assert starts_of(jobs, 4, RULES[rule], backfill=False) == [0, 100, 1010, 110]


def test_commitments_are_reconstructed():
    jobs = [Job(0, 0, 10, 10, 3), Job(1, 1, 5, 5, 4), Job(2, 2, 1, 1, 1)]
    assert commitments_of(jobs, 4, [0, 10, 15], backfill=False) == [0, 1, 2]
    assert commitments_of(jobs, 4, [0, 10, 16], backfill=False) is None


def test_invalid_schedules_are_detected():
    jobs = [Job(0, 0, 10, 10, 200), Job(1, 1, 5, 5, 100)]
    assert rlscheduler.valid(jobs, [0, 10])
    assert not rlscheduler.valid(jobs, [0, 9])
    assert not rlscheduler.valid(jobs, [0, 0])


# -- RLScheduler ------------------------------------------------------------------------------------


def test_recorded_starts_and_metrics_of_policies_are_reproduced(rlscheduler_results):
    runs = rlscheduler_results["commitment"]
    assert set(runs) == {rule + suffix for rule in RULES for suffix in ("", "+bf")}
    for name, run in runs.items():
        windows = 512 if "corrected" in name else 2560
        assert (run["starts"], run["starts_of"]) == (windows, windows), name
        assert (run["figures"], run["figures_of"]) == (84, 84), name


def test_published_means_are_reproduced(rlscheduler_results):
    for rule, published in rlscheduler.PUBLISHED.items():
        for suffix, mean in zip(("", "+bf"), published, strict=True):
            mean_bsld = rlscheduler_results["recorded_mean_bsld"][rule + suffix]
            if rule in RULES:
                mean_bsld = rlscheduler_results["commitment"][rule + suffix]["mean_bsld"]["windows1024"]
            assert mean_bsld == pytest.approx(mean, abs=0.0051), rule + suffix


def test_recorded_starts_of_networks_follow_from_commitments(rlscheduler_results):
    for name in ("RL_greedy", "RL_greedy+bf"):
        run = rlscheduler_results["networks"][name]
        assert (run["windows"], run["valid"], run["starts"], run["explained"]) == (2, 2, 512, 512)
        assert (run["figures"], run["figures_of"]) == (14, 14)


def test_engine_agrees_with_the_reference_on_their_windows(rlscheduler_results):
    for rule, backfill in rlscheduler.REFERENCES:
        run = rlscheduler_results["engine"][f"{rule}+{backfill}"]
        assert (run["starts"], run["starts_of"], run["figures"], run["figures_of"]) == (512, 512, 60, 60)
    resorted = [
        rlscheduler_results["engine"][f"sjf+{backfill}"]["mean_bsld"]["windows1024"] for backfill in ("none", "easy")
    ]
    assert resorted == pytest.approx([47.2, 42.1], abs=0.05)


def test_wrong_starts_are_counted():
    jobs = [Job(0, 5, 10, 10, 2), Job(1, 6, 10, 10, 2)]
    tally = rlscheduler.Tally()
    tally.add({"start_offsets": [0, 2], "makespan": 11}, jobs, [5, 6])
    assert tally.to_dict() == {"starts": 1, "starts_of": 2, "figures": 1, "figures_of": 1}


# -- Tsafrir, Etsion, Feitelson ---------------------------------------------------------------------


def test_means_are_within_five_percent_except_where_documented(tsafrir_results):
    deviating = set()
    for log, rules in tsafrir_results["rows"].items():
        for rule, variants in rules.items():
            for name, published in tsafrir.PUBLISHED[log][rule]._asdict().items():
                if abs(variants[""][name] / published - 1) > 0.05:
                    deviating.add((log, rule, name))
    names = ("wait_min", "bsld")
    blue = {("SDSC-BLUE", rule, name) for rule in tsafrir.ORDER for name in names}
    predicted = {(log, rule, name) for log in tsafrir.LOGS for rule in tsafrir.PREDICTING for name in names}
    assert deviating == blue | predicted | {("SDSC-SP2", "EASY", "bsld")}


def test_one_interpretation_of_the_predictions_is_within_eight_percent(tsafrir_results):
    for log in ("KTH-SP2", "SDSC-SP2"):
        for rule in tsafrir.PREDICTING:
            for name, published in tsafrir.PUBLISHED[log][rule]._asdict().items():
                assert tsafrir_results["readings"][log][rule]["nearest"][name] == pytest.approx(published, rel=0.08)


def test_policies_equal_the_default_interpretation(sources):
    log = tsafrir.LOGS["KTH-SP2"]
    jobs = sources.jobs(log.file)[:3000]
    for rule in tsafrir.PREDICTING:
        expected = tsafrir.run(jobs, log.processors, rule)
        assert tsafrir.run(jobs, log.processors, rule, "", Reading("as they are")) == expected


# -- what is printed --------------------------------------------------------------------------------


def test_docs_show_the_command_output(page, rlscheduler_results, tsafrir_results):
    for text in (rlscheduler.text(rlscheduler_results), tsafrir.text(tsafrir_results)):
        assert text in page


def test_simulator_speed_prints_ratios_and_agreement(sources, page, monkeypatch):
    monkeypatch.setattr(simulator_speed, "best_s", lambda call, **how: 0.01 if call() is not None else 0.0)
    text = simulator_speed.text(simulator_speed.results(sources, quiet))
    assert "FCFS, pyss" in text.split("\n\n")[1]
    agreement = text.split("\n\n")[3]
    assert agreement.count("10,000 of 10,000") == 5
    assert agreement in page


def test_json_output(data_dir, capsys, monkeypatch):
    monkeypatch.setattr(tsafrir, "LOGS", {"KTH-SP2": tsafrir.LOGS["KTH-SP2"]})
    assert main(["tsafrir", "--json", "--data", str(data_dir)]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == {"KTH-SP2": 28_475}


@pytest.mark.parametrize("table", ["rlscheduler", "tsafrir", "simulator-speed"])
def test_missing_files_are_an_error(tmp_path, capsys, table):
    (tmp_path / "data" / "swf").mkdir(parents=True)
    assert main([table, "--data", str(tmp_path / "data")]) == 2
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert last.startswith("error: ") and "does not exist" in last
    assert captured.out == ""


def test_broken_recorded_results_are_an_error(tmp_path, capsys):
    (tmp_path / "swf").mkdir()
    (tmp_path / "rlscheduler_lublin_256.json.gz").write_bytes(b"no gzip")
    assert main(["rlscheduler", "--data", str(tmp_path), "--oracles", str(tmp_path)]) == 2
    assert "cannot be read as compressed JSON" in capsys.readouterr().err


def test_missing_data_folder_is_an_error(capsys, monkeypatch):
    monkeypatch.delenv("KILOWAIT_DATA", raising=False)
    assert main(["tsafrir"]) == 2
    assert "set KILOWAIT_DATA" in capsys.readouterr().err
