"""Energy labels of jobs: energy is conserved, and unlabelled jobs and intervals have a reason."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.telemetry.labels import EnergySplit, LabelledJobs, LabelSettings, SampleFiles, label_energy
from kilowait.telemetry.node_energy import energy_curve
from kilowait.telemetry.sample_reader import MeterSamples

T0 = 1_760_000_000.0
HEADER = "time,monotonic_s,host,meter,power_w,energy_j,range_j,summed"


def line(at_s, *, host="n1", meter="node", power="", energy="", range_j="", summed="", mono=""):
    return f"{T0 + at_s:.6f},{mono},{host},{meter},{power},{energy},{range_j},{summed}"


def sample_files(folder: Path, *lines: str, header: str = HEADER) -> SampleFiles:
    path = folder / "samples.csv"
    path.write_text("\n".join((header, *lines)) + "\n")
    return SampleFiles([path])


def job_table(rows, lists=("n1",), **columns) -> JobTable:
    """Jobs from (start, run time, index of the list, cores); submitted 5 s before they start."""
    start, runtime, list_index, cores = (np.array(column, float) for column in zip(*rows, strict=True))
    return JobTable(
        job_id=np.arange(len(rows)),
        submit_s=T0 + start - 5,
        wait_s=np.full(len(rows), 5.0),
        runtime_s=runtime,
        nodes=np.ones(len(rows)),
        node_list=list_index.astype(int),
        cores=cores.astype(int),
        labels={"node_list": tuple(lists)},
        meta={"unix_start_s": 0},
        **columns,
    )


def constant_power(seconds: int, watts: float, **cells) -> list[str]:
    return [line(at, power=watts, mono=at, **cells) for at in range(seconds + 1)]


def assert_energy_is_conserved(result: LabelledJobs) -> None:
    total = math.fsum(result.measured_j) + result.unattributed_j
    assert total == pytest.approx(result.node_j, rel=1e-9, abs=1e-9)
    data = result.to_dict()
    assert data["labelled_j"] + data["unlabelled_j"] + data["unattributed_j"] == pytest.approx(data["node_j"], rel=1e-9)
    assert sum(result.unlabelled.values()) + result.labelled == len(result.jobs)


RESOURCE = {"gpu": "gpus", "node": "cores"}
METERS = (("node", "intel-rapl:0", 700.0), ("gpu", "gpu0", math.nan), ("gpu", "gpu1", math.nan))
LISTS = {
    "n0": ["n0"],
    "n[0-1]": ["n0", "n1"],
    "n[0-2]": ["n0", "n1", "n2"],
    "n2": ["n2"],
    "n[1-2],elsewhere": ["n1", "n2", "elsewhere"],
}


# -- conservation ----------------------------------------------------------------------------------


def reference_split(meters, jobs, hosts, sharing) -> tuple[np.ndarray, float, float]:
    """Energy of each job, unattributed and total energy: plain Python, interval by interval, as documented.

    `meters`: host -> list of (kind, [(begin, end, joules), ...]); intervals that are not listed are unknown.
    """
    measured, unattributed, total = np.zeros(len(jobs)), 0.0, 0.0
    for host, meter_spans in meters.items():
        job_rows = [j for j in range(len(jobs)) if host in hosts[j]]
        cuts = {at for _, spans in meter_spans for begin, end, _ in spans for at in (begin, end)}
        cuts |= {jobs[j]["start"] for j in job_rows} | {jobs[j]["end"] for j in job_rows}
        ordered = sorted(cuts)
        for begin, end in pairwise(ordered):
            energies = []
            for kind, spans in meter_spans:
                inside = [(a, b, joules) for a, b, joules in spans if a <= begin and end <= b]
                energies.append(
                    (kind, inside[0][2] * (end - begin) / (inside[0][1] - inside[0][0])) if inside else None
                )
            if any(energy is None for energy in energies):
                continue
            for kind, joules in energies:
                total += joules
                running = [j for j in job_rows if jobs[j]["start"] <= begin and end <= jobs[j]["end"]]
                weight = {
                    j: 1.0 if sharing.nodes == "exclusive" else jobs[j][RESOURCE[kind]] / len(hosts[j]) for j in running
                }
                held = sum(weight.values())
                size = {"gpu": sharing.node_gpus, "node": sharing.node_cores}[kind]
                capacity = max(held, size) if sharing.idle == "nobody" else held
                for j in running:
                    measured[j] += joules * weight[j] / capacity if held else 0.0
                unattributed += joules * (1 - held / capacity) if held else joules
    return measured, unattributed, total


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "sharing",
    [EnergySplit(), EnergySplit("shared"), EnergySplit("shared", "nobody", node_cores=16, node_gpus=3)],
    ids=["exclusive", "shared", "idle energy unattributed"],
)
def test_split_equals_reference_and_conserves_energy(tmp_path, seed, sharing):
    rng = np.random.default_rng(seed)
    names = [f"n{k}" for k in range(3)]
    lines, meters = [], {name: [] for name in names}
    for name in names:
        for kind, meter, range_j in METERS:
            if rng.random() < 0.3 and meter != "gpu0":
                continue
            at = np.cumsum(rng.uniform(0.2, 1.8, 120)).round(6)
            at[rng.integers(20, 100) :] += rng.choice([0.0, 40.0])  # a gap
            counted, watts = rng.random() < 0.5, rng.uniform(20, 60, len(at)).round(3)
            energy = np.cumsum(np.append(0, np.diff(at) * watts[1:])).round(6) + 100
            spans = []
            for k in range(len(at) - 1):
                joules = energy[k + 1] - energy[k] if counted else (watts[k] + watts[k + 1]) / 2 * (at[k + 1] - at[k])
                if at[k + 1] - at[k] <= 10.0:
                    spans.append((at[k], at[k + 1], joules))
            meters[name].append((kind, spans))
            counter = energy if math.isnan(range_j) else energy % range_j
            for t, w, e in zip(at, watts, counter, strict=True):
                cells = {"energy": f"{e:.6f}"} if counted else {"power": w}
                cells |= {} if math.isnan(range_j) else {"range_j": range_j}
                lines.append(line(t, host=name, meter=meter, mono=t, **cells))
    rows = [
        (
            round(rng.uniform(-20, 140), 3),
            round(rng.exponential(25) + 0.5, 3),
            rng.integers(len(LISTS)),
            rng.integers(1, 30),
        )
        for _ in range(40)
    ]
    gpus = rng.integers(0, 4, len(rows))
    rng.shuffle(lines)
    result = label_energy(
        job_table(rows, LISTS, gpus=gpus),
        sample_files(tmp_path, *lines),
        LabelSettings(sharing, coverage=0.5, longest_gap_s=10.0),
    )
    assert_energy_is_conserved(result)
    hosts = [list(LISTS.values())[row[2]] for row in rows]
    jobs = [
        {"start": row[0], "end": row[0] + row[1], "cores": int(row[3]), "gpus": int(held)}
        for row, held in zip(rows, gpus, strict=True)
    ]
    measured, unattributed, total = reference_split(meters, jobs, hosts, sharing)
    np.testing.assert_allclose(result.measured_j, measured, rtol=1e-6, atol=1e-3)  # Unix times have 1e-7 s
    assert (result.unattributed_j, result.node_j) == pytest.approx((unattributed, total), rel=1e-7)
    assert total > 10_000 and (result.measured_j > 0).sum() > 10


# -- single jobs -----------------------------------------------------------------------------------


def test_exclusive_job_gets_all_energy_of_its_nodes(tmp_path):
    samples = sample_files(tmp_path, *constant_power(100, 200.0), *constant_power(100, 50.0, host="n2"))
    jobs = job_table([(10.5, 50.0, 0, 4), (70.0, 10.0, 1, 4)], ["n[1-2]", "n1"])
    result = label_energy(jobs, samples)
    assert result.jobs["energy_j"].tolist() == pytest.approx([250 * 50.0, 2000.0])
    assert result.jobs["power_w"].tolist() == pytest.approx([250.0, 200.0])
    assert result.unattributed_j == pytest.approx(200 * 40 + 50 * 50) and result.labelled == 2


def test_counters_are_interpolated_at_both_ends(tmp_path):
    samples = sample_files(tmp_path, *(line(10 * k, energy=1000 * k * k, mono=10 * k) for k in range(6)))
    result = label_energy(job_table([(15.0, 20.0, 0, 1)]), samples)
    # half of 1000..4000, all of 4000..9000, half of 9000..16000
    assert result.jobs["energy_j"].tolist() == pytest.approx([1500 + 5000 + 3500])


def test_counter_wrap_is_corrected(tmp_path):
    energy = [(9000 + 300 * k) % 10_000 for k in range(11)]
    samples = sample_files(tmp_path, *(line(k, energy=e, range_j=10_000, mono=k) for k, e in enumerate(energy)))
    assert label_energy(job_table([(2.0, 6.0, 0, 1)]), samples).jobs["energy_j"].tolist() == [1800.0]


def test_reset_counter_falls_back_on_power(tmp_path):
    energy = [9000 + 300 * k if k < 5 else 300 * (k - 5) for k in range(11)]
    rows = [line(k, energy=e, power=300, mono=k) for k, e in enumerate(energy)]
    assert label_energy(job_table([(2.0, 6.0, 0, 1)]), sample_files(tmp_path, *rows)).jobs["energy_j"].tolist() == [
        1800.0
    ]
    rows = [line(k, energy=e, mono=k) for k, e in enumerate(energy)]
    result = label_energy(job_table([(0.0, 10.0, 0, 1)]), sample_files(tmp_path, *rows))
    assert result.measured_j.tolist() == [2700.0]
    assert result.jobs["energy_j"].tolist() == pytest.approx([3000.0])  # nine of ten seconds are known
    assert result.to_dict()["extrapolated_j"] == pytest.approx(300.0)
    assert "1 the counter was reset" in result.notes[-1]


def test_increase_is_unknown_if_the_counter_may_wrap_twice(tmp_path):
    """In 40 s at 300 W a counter of 10 kJ wraps more than once."""
    at = [0, 1, 2, 3, 43, 44, 45]
    rows = [line(t, energy=300 * t % 10_000, range_j=10_000, mono=t) for t in at]
    result = label_energy(job_table([(0.0, 3.0, 0, 1)]), sample_files(tmp_path, *rows), LabelSettings(longest_gap_s=60))
    assert result.node_j == pytest.approx(900 + 600)


@pytest.mark.parametrize(("idle", "shares"), [("jobs", [500.0, 1500.0]), ("nobody", [250.0, 750.0])])
def test_energy_of_shared_nodes_is_split_by_cores(tmp_path, idle, shares):
    samples = sample_files(tmp_path, *constant_power(100, 100.0))
    jobs = job_table([(10.0, 20.0, 0, 4), (10.0, 20.0, 0, 12)])
    result = label_energy(jobs, samples, LabelSettings(EnergySplit("shared", idle, node_cores=32)))
    assert result.jobs["energy_j"].tolist() == pytest.approx(shares)
    assert_energy_is_conserved(result)


def test_gpu_energy_is_split_by_gpus_held(tmp_path):
    samples = sample_files(
        tmp_path, *constant_power(50, 400.0, meter="gpu0"), *constant_power(50, 100.0, meter="intel-rapl:0")
    )
    jobs = job_table([(10.0, 10.0, 0, 4), (10.0, 10.0, 0, 4), (30.0, 10.0, 0, 4)], gpus=[1, 0, 0])
    result = label_energy(jobs, samples, LabelSettings(EnergySplit("shared")))
    assert result.jobs["energy_j"].tolist() == pytest.approx([4500.0, 500.0, 1000.0])
    assert_energy_is_conserved(result)


def test_parts_of_a_meter_are_not_added(tmp_path):
    rows = [
        *constant_power(20, 100.0, meter="intel-rapl:0", summed=1),
        *constant_power(20, 80.0, meter="intel-rapl:0:0", summed=0),
    ]
    assert label_energy(job_table([(5.0, 10.0, 0, 1)]), sample_files(tmp_path, *rows)).jobs["energy_j"].tolist() == [
        1000.0
    ]


# -- jobs without a label --------------------------------------------------------------------------


def test_every_unlabelled_job_has_a_reason(tmp_path):
    samples = sample_files(tmp_path, *constant_power(100, 100.0))
    rows = [
        (10.0, 20.0, 0, 1),  # labelled
        (90.0, 20.0, 0, 1),  # half of it is after the samples
        (500.0, 20.0, 0, 1),  # long after the samples
        (10.0, 20.0, 1, 1),  # on another node
        (40.0, 20.0, -1, 1),  # nodes unknown
        (40.0, 0.0, 0, 1),
        (40.0, 20.0, 0, 1),
        (45.0, 20.0, 0, 1),  # both on n1
        (40.0, 20.0, 2, 1),
        (40.0, 20.0, 0, 1),
    ]
    jobs = job_table(rows, ("n1", "m1", "n[3-1]"))
    wait = jobs["wait_s"].copy()
    wait[-1] = np.nan
    result = label_energy(jobs.with_columns(wait_s=wait, energy_j=np.full(10, 7.0)), samples)
    assert result.unlabelled == {
        "its start is unknown": 1,
        "it ran for 0 s": 1,
        "its nodes are not named": 2,
        "no samples of its nodes": 1,
        "no samples while it ran": 1,
        "samples cover less than 90% of its time": 1,
        "it shared its nodes with others (label with --node-sharing shared)": 2,
    }
    assert np.isnan(result.jobs["energy_j"]).tolist() == [False] + [True] * 9
    assert "the energy_j of the log was replaced" in result.notes
    assert any("n[3-1]" in note for note in result.notes)
    assert_energy_is_conserved(result)


def test_node_without_samples_is_not_covered(tmp_path):
    samples = sample_files(tmp_path, *constant_power(100, 100.0))
    jobs = job_table([(10.0, 20.0, 0, 1)], ["n[1-2]"])
    assert label_energy(jobs, samples).labelled == 0
    result = label_energy(jobs, samples, LabelSettings(coverage=0.5))
    assert result.coverage.tolist() == pytest.approx([0.5])
    assert result.jobs["energy_j"].tolist() == pytest.approx([4000.0])


def test_node_is_unknown_while_one_of_its_meters_is(tmp_path):
    rows = [*constant_power(100, 100.0, meter="gpu0"), *constant_power(50, 100.0, meter="gpu1")]
    result = label_energy(job_table([(10.0, 30.0, 0, 1), (60.0, 30.0, 0, 1)]), sample_files(tmp_path, *rows))
    assert result.jobs["energy_j"].tolist() == pytest.approx([6000.0, math.nan], nan_ok=True)
    assert result.unlabelled == {"no samples while it ran": 1}


# -- invalid samples -------------------------------------------------------------------------------


@pytest.mark.parametrize("by_s", [-40.0, 40.0, -1.5])
def test_energy_around_a_clock_change_is_unknown(tmp_path, by_s):
    rows = [line(at + (by_s if at > 50 else 0), energy=100 * at, range_j=100_000, mono=at) for at in range(101)]
    result = label_energy(job_table([(2.0, 8.0, 0, 1)]), sample_files(tmp_path, *rows))
    assert result.jobs["energy_j"].tolist() == pytest.approx([800.0])
    certain = 100 * (100 - abs(by_s)) - 200 if by_s < 0 else 100 * 99
    assert result.node_j == pytest.approx(certain, abs=350)
    assert result.node_j <= 100 * 100
    assert "the clock was set" in " ".join(result.notes) or "a gap" in " ".join(result.notes)


def test_samples_out_of_order_after_a_clock_change_are_unknown(tmp_path):
    """Ten samples per second; the clock is set back by 0.35 s after 5 s: four pairs are out of order."""
    at = np.arange(100) / 10
    rows = [line(t - 0.35 * (t > 5), energy=100 * t, range_j=1000, mono=t) for t in at]
    result = label_energy(job_table([(0.0, 4.0, 0, 1)]), sample_files(tmp_path, *rows))
    assert 990 - 35 - 50 < result.node_j < 990
    assert "the clock was set" in result.notes[0]


def test_reset_is_not_treated_as_a_wrap(tmp_path):
    energy = [700, 710, 720, 0, 10, 20]
    rows = [line(k, energy=e, range_j=1000) for k, e in enumerate(energy)]
    result = label_energy(job_table([(0.0, 2.0, 0, 1)]), sample_files(tmp_path, *rows))
    assert result.node_j == pytest.approx(40.0) and "1 the counter was reset" in result.notes[0]


def test_reboot_is_no_increase_of_the_counter(tmp_path):
    rows = [line(at, energy=900 + at, range_j=1000, mono=5000 + at) for at in range(10)]
    rows += [line(at, energy=at, range_j=1000, mono=at) for at in range(10, 20)]
    result = label_energy(job_table([(0.0, 9.0, 0, 1)]), sample_files(tmp_path, *rows))
    assert result.node_j == pytest.approx(18.0)


def test_missing_and_duplicate_samples(tmp_path):
    rows = constant_power(20, 100.0)
    rows[10] = line(10, power="nan", mono=10)
    rows[5] = line(5, power=-3, mono=5)
    rows += [rows[15], line(16, power=500.0, mono=16), "", f"{T0},x", line(3).replace(f"{T0 + 3:.6f}", "")]
    result = label_energy(
        job_table([(10.5, 0.25, 0, 1), (16.0, 0.5, 0, 1)]), sample_files(tmp_path, *rows), LabelSettings(coverage=0.1)
    )
    assert result.unlabelled == {"no samples while it ran": 1}
    assert result.jobs["energy_j"][1] == pytest.approx(150.0)
    notes = " ".join(result.notes)
    assert "1 with power_w below 0 or infinite" in notes and "2 duplicate meter and time" in notes
    assert "1 with too many or too few cells" in notes and "1 without a time" in notes
    assert "4 no value" in notes


@pytest.mark.parametrize("incomplete", ["1760000009.5,9.5,n1,node,1", "1760000009.5,9.5,n1,node,100.0,,,"])
def test_incomplete_last_line_is_not_read(tmp_path, incomplete):
    path = tmp_path / "s.csv"
    path.write_text("\n".join((HEADER, *constant_power(9, 100.0), incomplete)))
    assert "truncated" in " ".join(label_energy(job_table([(1.0, 5.0, 0, 1)]), SampleFiles([path])).notes)


def test_samples_without_overlap_are_an_error_with_the_reason(tmp_path):
    samples = sample_files(tmp_path, *constant_power(100, 100.0))
    with pytest.raises(InputError, match=r"samples are of n1, the log has nodes such as 'm7'; sample with --host"):
        label_energy(job_table([(10.0, 20.0, 0, 1)], ["m7"]), samples)
    with pytest.raises(
        InputError,
        match=r"samples are from 2025-10-09 08:53 to .* jobs from 2025-10-09 09:53 .*--timezone.*--log-start",
    ):
        label_energy(job_table([(3600.0, 20.0, 0, 1)]), samples)
    with pytest.raises(InputError, match="none of 1 jobs has a known start and a run time above 0"):
        label_energy(job_table([(10.0, 0.0, 0, 1)]), samples)


# -- logs ------------------------------------------------------------------------------------------


def test_domain_of_host_names_is_optional(tmp_path):
    samples = sample_files(tmp_path, *constant_power(50, 100.0, host="n1.cluster.example"))
    assert label_energy(job_table([(10.0, 20.0, 0, 1)]), samples).labelled == 1
    assert label_energy(job_table([(10.0, 20.0, 0, 1)], ["n1.elsewhere"]), samples).labelled == 1
    both = sample_files(tmp_path, *constant_power(50, 100.0, host="n1.a"), *constant_power(50, 100.0, host="n1.b"))
    assert label_energy(job_table([(10.0, 20.0, 0, 1)], ["n1.b"]), both).labelled == 1
    with pytest.raises(InputError, match="the log has nodes such as 'n1'"):
        label_energy(job_table([(10.0, 20.0, 0, 1)]), both)


def test_log_without_node_names_is_of_one_machine(tmp_path):
    jobs = job_table([(10.0, 20.0, 0, 1)]).with_columns(node_list=None)
    jobs = JobTable(meta=jobs.meta, **{name: jobs[name] for name in jobs.columns})
    result = label_energy(jobs, sample_files(tmp_path, *constant_power(50, 100.0)))
    assert result.labelled == 1 and "all jobs are assumed to have run on n1" in result.notes[0]
    with pytest.raises(InputError, match=r"names no nodes, but there are samples of 2 \(n1, n2 .*with NodeList"):
        label_energy(jobs, sample_files(tmp_path, *constant_power(50, 100.0), *constant_power(50, 9.0, host="n2")))


def test_zone_applies_to_times_without_time_zone(tmp_path):
    """Samples at 08:53 UTC, 10:53 in Berlin in summer; the log has 10:53."""
    samples = sample_files(tmp_path, *constant_power(50, 100.0))
    jobs = job_table([(7210.0, 20.0, 0, 1)])
    meta = {"unix_start_s": 0, "time_zone": "UTC (assumed)"}
    jobs = JobTable(labels=jobs.labels, meta=meta, **{name: jobs[name] for name in jobs.columns})
    assert label_energy(jobs, samples, LabelSettings(zone="Europe/Berlin")).jobs["energy_j"].tolist() == pytest.approx(
        [2000.0]
    )
    assert label_energy(jobs, samples, LabelSettings(zone="+02:00")).notes[0] == "times of the log taken as +02:00"
    dated = job_table([(10.0, 20.0, 0, 1)])
    with pytest.raises(InputError, match="zone is 'UTC', but the time zone of this log is already known"):
        label_energy(dated, samples, LabelSettings(zone="UTC"))


def test_missing_columns_are_errors(tmp_path):
    samples = sample_files(tmp_path, *constant_power(50, 100.0))
    jobs = job_table([(10.0, 20.0, 0, 1)])
    with pytest.raises(InputError, match=r"has no start times of jobs \(no wait_s\)"):
        label_energy(jobs.with_columns(wait_s=None), samples)
    undated = JobTable(labels=jobs.labels, **{name: jobs[name] for name in jobs.columns})
    with pytest.raises(InputError, match="the samples have dates, but the log has none; .*--log-start 2026-01-31"):
        label_energy(undated, samples)
    with pytest.raises(InputError, match="has no cores of jobs.*--node-sharing exclusive"):
        label_energy(jobs.with_columns(cores=None), samples, LabelSettings(EnergySplit("shared")))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda jobs, samples: label_energy(jobs, samples, LabelSettings(coverage=0.0)),
            "the coverage is 0; it must be above 0",
        ),
        (lambda jobs, samples: label_energy(jobs, samples, LabelSettings(longest_gap_s=0.0)), "the longest gap is 0 s"),
        (lambda jobs, samples: EnergySplit("fair"), "nodes is 'fair'; it must be exclusive or shared"),
        (
            lambda jobs, samples: EnergySplit("exclusive", "nobody"),
            "needs shared nodes of a known size; give --node-sharing shared",
        ),
        (lambda jobs, samples: EnergySplit("shared", node_cores=0), "node_cores is 0; it must be at least 1"),
    ],
)
def test_invalid_settings_are_errors(tmp_path, call, message):
    with pytest.raises(InputError, match=message):
        call(job_table([(10.0, 20.0, 0, 1)]), sample_files(tmp_path, *constant_power(50, 100.0)))


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("time,power_w", "1,2", "it has the columns time, power_w; samples need the columns time, host, and"),
        ("time,host,power_w", "2026-01-01T00:00:00,n1,5", "'2026-01-01T00:00:00' is not a time; write"),
        ("time,host,power_w", "noon,n1,5", "'noon' is not a time"),
        ("time,host,power_w", "1,n1,much", "conversion error to double: invalid value 'much'"),
        ("time,host,power_w", ",,", "there are no samples in"),
    ],
)
def test_invalid_files_are_errors(tmp_path, header, row, message):
    with pytest.raises(InputError, match=message):
        sample_files(tmp_path, row, header=header)


def test_missing_and_empty_files_are_errors(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*none\.csv"):
        SampleFiles([tmp_path / "none.csv"])
    with pytest.raises(InputError, match="contains no samples"):
        SampleFiles([tmp_path])
    (tmp_path / "half.csv").write_text("time,host")
    with pytest.raises(InputError, match="it has no complete line"):
        SampleFiles([tmp_path / "half.csv"])


def test_time_formats(tmp_path):
    for first, second in (("0", "10"), ("1970-01-01T00:00:00Z", "1970-01-01 01:00:10+01:00")):
        samples = sample_files(tmp_path, f"{first},n1,5", f"{second},n1,6", header="time,host,power_w")
        assert samples.read_host("n1")[0].utc_s.tolist() == [0.0, 10.0]


def test_curve_of_one_sample_is_empty():
    value = np.array([5.0])
    curve = energy_curve(MeterSamples("node", value, value, value, value, value), 0.0, None, Counter())
    assert curve.spans().shape == (0, 2) and curve.total_j.tolist() == [0.0]
