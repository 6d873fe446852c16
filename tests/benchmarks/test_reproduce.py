"""Other people's tables made again: start by start where starts were written down, and as the docs print them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.reproduce import rlscheduler, simulator_speed, tsafrir
from benchmarks.reproduce.__main__ import main
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.easy_plus_variants import Reading
from benchmarks.reproduce.rlscheduler_rules import (
    RULES,
    Job,
    commitments_behind,
    starts_of,
)

from kilowait.experiments import bench


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def sources(data_dir: Path) -> Sources:
    return Sources.find(str(data_dir))


@pytest.fixture(scope="module")
def theirs(sources: Sources) -> dict[str, Any]:
    return rlscheduler.results(sources, quiet)


@pytest.fixture(scope="module")
def means(sources: Sources) -> dict[str, Any]:
    return tsafrir.results(sources, quiet)


@pytest.fixture(scope="module")
def page(project: Path) -> str:
    return (project / "docs" / "reproduce.md").read_text(encoding="utf-8")


# -- the commitment, on a few jobs whose fate is obvious --------------------------------------------


def test_a_shorter_job_that_comes_after_the_commitment_waits_for_the_committed_one():
    jobs = [Job(0, 0, 100, 100, 3), Job(1, 1, 50, 50, 4), Job(2, 2, 1, 1, 1)]
    assert starts_of(jobs, 4, RULES["SJF"], backfill=False) == [0, 100, 150]


def test_backfilling_must_end_strictly_before_the_shadow():
    def third(request: int) -> int:
        jobs = [Job(0, 0, 100, 100, 3), Job(1, 1, 50, 50, 4), Job(2, 2, request, request, 1)]
        return starts_of(jobs, 4, RULES["FCFS"], backfill=True)[2]

    assert third(97) == 2
    assert third(98) == 150, "2 + 98 is the shadow itself"


def test_backfilling_knows_no_spare_processors():
    """Job 1 leaves a processor free at the shadow; under EASY job 2 could have it."""
    jobs = [Job(0, 0, 100, 100, 3), Job(1, 1, 50, 50, 3), Job(2, 2, 500, 500, 1)]
    assert starts_of(jobs, 4, RULES["FCFS"], backfill=True) == [0, 100, 100]


def test_the_shadow_is_that_of_the_commitment():
    """Job 0 asked for 100 s and ends after 10. The shadow stays at 100, so job 3 starts and delays job 1."""
    jobs = [Job(0, 0, 10, 100, 2), Job(1, 1, 5, 5, 4), Job(2, 2, 60, 60, 1), Job(3, 20, 70, 70, 1)]
    assert starts_of(jobs, 4, RULES["FCFS"], backfill=True) == [0, 90, 2, 20]


def test_an_arrival_comes_before_a_release_of_the_same_second():
    """Job 2 comes as job 0 ends: it is there to be backfilled before the committed job takes the machine."""
    jobs = [Job(0, 0, 10, 20, 3), Job(1, 1, 5, 5, 4), Job(2, 10, 3, 3, 1)]
    assert starts_of(jobs, 4, RULES["FCFS"], backfill=True) == [0, 13, 10]


@pytest.mark.parametrize("rule", ["WFP3", "UNICEP"])
def test_the_published_wait_turns_the_order_upside_down(rule):
    """When the second job starts, a short and a long one have waited equally: the short one is to go first."""
    jobs = [Job(0, 0, 100, 100, 4), Job(1, 1, 10, 10, 4), Job(2, 9, 5, 5, 4), Job(3, 9, 900, 900, 4)]
    assert starts_of(jobs, 4, RULES[f"{rule}_corrected"], backfill=False) == [0, 100, 110, 115]
    assert starts_of(jobs, 4, RULES[rule], backfill=False) == [0, 100, 1010, 110]


def test_commitments_are_found_or_denied():
    jobs = [Job(0, 0, 10, 10, 3), Job(1, 1, 5, 5, 4), Job(2, 2, 1, 1, 1)]
    assert commitments_behind(jobs, 4, [0, 10, 15], backfill=False) == [0, 1, 2]
    assert commitments_behind(jobs, 4, [0, 10, 16], backfill=False) is None


def test_invalid_schedules_are_detected():
    jobs = [Job(0, 0, 10, 10, 200), Job(1, 1, 5, 5, 100)]
    assert rlscheduler.valid(jobs, [0, 10])
    assert not rlscheduler.valid(jobs, [0, 9])
    assert not rlscheduler.valid(jobs, [0, 0])


# -- RLScheduler ------------------------------------------------------------------------------------


def test_every_recorded_start_and_figure_of_their_rules_is_equal(theirs):
    runs = theirs["commitment"]
    assert set(runs) == {rule + suffix for rule in RULES for suffix in ("", "+bf")}
    for name, run in runs.items():
        windows = 512 if "corrected" in name else 2560
        assert (run["starts"], run["starts_of"]) == (windows, windows), name
        assert (run["figures"], run["figures_of"]) == (84, 84), name


def test_published_means_are_reproduced(theirs):
    for rule, published in rlscheduler.PUBLISHED.items():
        for suffix, mean in zip(("", "+bf"), published, strict=True):
            found = theirs["recorded_mean_bsld"][rule + suffix]
            if rule in RULES:
                found = theirs["commitment"][rule + suffix]["mean_bsld"]["windows1024"]
            assert found == pytest.approx(mean, abs=0.0051), rule + suffix


def test_the_networks_recorded_starts_are_schedules_made_by_commitments(theirs):
    for name in ("RL_greedy", "RL_greedy+bf"):
        run = theirs["networks"][name]
        assert (run["windows"], run["valid"], run["starts"], run["explained"]) == (2, 2, 512, 512)
        assert (run["figures"], run["figures_of"]) == (14, 14)


def test_the_engine_agrees_with_the_reference_on_their_windows(theirs):
    for rule, backfill in rlscheduler.REFERENCES:
        run = theirs["engine"][f"{rule}+{backfill}"]
        assert (run["starts"], run["starts_of"], run["figures"], run["figures_of"]) == (512, 512, 60, 60)
    resorted = [
        theirs["engine"][f"sjf+{backfill}"]["mean_bsld"]["windows1024"] for backfill in ("none", "easy")
    ]
    assert resorted == pytest.approx([47.2, 42.1], abs=0.05)


def test_a_wrong_start_is_counted():
    jobs = [Job(0, 5, 10, 10, 2), Job(1, 6, 10, 10, 2)]
    tally = rlscheduler.Tally()
    tally.add({"start_offsets": [0, 2], "makespan": 11}, jobs, [5, 6])
    assert tally.to_dict() == {"starts": 1, "starts_of": 2, "figures": 1, "figures_of": 1}


# -- Tsafrir, Etsion, Feitelson ---------------------------------------------------------------------


def test_means_are_within_five_percent_of_print_but_where_the_docs_say(means):
    beyond = set()
    for log, rules in means["rows"].items():
        for rule, variants in rules.items():
            for name, theirs_ in tsafrir.PUBLISHED[log][rule]._asdict().items():
                if abs(variants[""][name] / theirs_ - 1) > 0.05:
                    beyond.add((log, rule, name))
    names = ("wait_min", "bsld")
    blue = {("SDSC-BLUE", rule, name) for rule in tsafrir.ORDER for name in names}
    predicted = {(log, rule, name) for log in tsafrir.LOGS for rule in tsafrir.PREDICTING for name in names}
    assert beyond == blue | predicted | {("SDSC-SP2", "EASY", "bsld")}


def test_one_interpretation_of_the_predictions_is_within_eight_percent(means):
    for log in ("KTH-SP2", "SDSC-SP2"):
        for rule in tsafrir.PREDICTING:
            for name, theirs_ in tsafrir.PUBLISHED[log][rule]._asdict().items():
                assert means["readings"][log][rule]["nearest"][name] == pytest.approx(theirs_, rel=0.08)


def test_policies_equal_the_default_interpretation(sources):
    log = tsafrir.LOGS["KTH-SP2"]
    jobs = sources.jobs(log.file)[:3000]
    for rule in tsafrir.PREDICTING:
        plain = tsafrir.run(jobs, log.processors, rule)
        assert tsafrir.run(jobs, log.processors, rule, "", Reading("as they are")) == plain


# -- what is printed --------------------------------------------------------------------------------


def test_the_docs_show_what_the_commands_print(page, theirs, means):
    for text in (rlscheduler.text(theirs), tsafrir.text(means)):
        assert text in page


def test_simulator_speed_prints_ratios_and_agreement(sources, page, monkeypatch):
    monkeypatch.setattr(bench, "best_s", lambda call, **how: 0.01 if call() is not None else 0.0)
    text = simulator_speed.text(simulator_speed.results(sources, quiet))
    assert "FCFS, pyss" in text.split("\n\n")[1]
    agreement = text.split("\n\n")[3]
    assert agreement.count("10,000 of 10,000") == 5
    assert agreement in page


def test_json_is_json(data_dir, capsys, monkeypatch):
    monkeypatch.setattr(tsafrir, "LOGS", {"KTH-SP2": tsafrir.LOGS["KTH-SP2"]})
    assert main(["tsafrir", "--json", "--data", str(data_dir)]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == {"KTH-SP2": 28_475}


@pytest.mark.parametrize("table", ["rlscheduler", "tsafrir", "simulator-speed"])
def test_missing_files_are_one_line_and_exit_2(tmp_path, capsys, table):
    (tmp_path / "data" / "swf").mkdir(parents=True)
    assert main([table, "--data", str(tmp_path / "data")]) == 2
    said = capsys.readouterr()
    last = said.err.splitlines()[-1]
    assert last.startswith("error: ") and "does not exist" in last
    assert said.out == ""


def test_broken_recorded_results_are_one_line_and_exit_2(tmp_path, capsys):
    (tmp_path / "swf").mkdir()
    (tmp_path / "rlscheduler_lublin_256.json.gz").write_bytes(b"no gzip")
    assert main(["rlscheduler", "--data", str(tmp_path), "--oracles", str(tmp_path)]) == 2
    assert "cannot be read as compressed JSON" in capsys.readouterr().err


def test_no_folder_is_one_line_and_exit_2(capsys, monkeypatch):
    monkeypatch.delenv("KILOWAIT_DATA", raising=False)
    assert main(["tsafrir"]) == 2
    assert "set KILOWAIT_DATA" in capsys.readouterr().err
