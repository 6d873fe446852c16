"""Speeds by GPU type and job."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import (
    GAVEL_THROUGHPUTS,
    SPEED_SOURCES,
    Speeds,
    Throughputs,
    constant_speeds,
    fill_unknown_speeds,
    gpu_types,
    measured_speeds,
    read_throughputs,
    roofline_speeds,
    speeds_for,
)
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.synth import gavel_jobs

MODELS = ("Recommendation (batch size 512)", "CycleGAN", "LM")
TYPES = ("V100", "K80")


def table(gpus=(1, 1, 1), model=(0, 1, -1), **columns):
    count = len(gpus)
    rows = {"job_id": range(count), "submit_s": [0] * count, "runtime_s": [60] * count, "nodes": [1] * count}
    return JobTable(**rows, gpus=gpus, model=model, labels={"model": MODELS}, **columns)


def codes(*names):
    return [SPEED_SOURCES.index(name) for name in names]


# -- measured --------------------------------------------------------------------------------------------


def test_recommendation_is_slower_on_the_newer_gpu():
    speeds = measured_speeds(table(), TYPES)
    assert speeds.speed[0, :2].tolist() == [1, 1]
    assert speeds.speed[1, 0] == pytest.approx(32.859 / 23.318) and speeds.speed[1, 0] > 1
    assert speeds.speed[1, 1] == pytest.approx(0.505 / 4.426)
    assert np.isnan(speeds.speed[:, 2]).all()
    assert speeds.source.tolist() == [codes("measured", "measured", "unknown")] * 2
    assert speeds.counts()["K80"] == {"unknown": 1, "measured": 2}


def test_types_of_one_family_share_measurements():
    speeds = measured_speeds(table(), ("V100M32", "V100-PCIE-16", "v100", "T4", "of my own"))
    assert (speeds.speed[:3, :2] == 1).all()
    assert np.isnan(speeds.speed[3:]).all()


def test_other_reference_type():
    speeds = measured_speeds(table(), TYPES, reference="K80")
    assert speeds.speed[0, 0] == pytest.approx(23.318 / 32.859) and speeds.speed[1, 0] == 1
    with pytest.raises(UnknownNameError, match="type of GPU with measured throughputs 'T4'"):
        measured_speeds(table(), TYPES, reference="T4")


def test_spread_gangs_insufficient_memory_and_missing_measurements():
    rates = Throughputs(
        {
            "v100": {("LM", 2): 100.0, ("LM", 4): 200.0, ("CycleGAN", 2): 10.0, ("A3C", 1): 1.0},
            "k80": {("LM", 2): 50.0, ("LM", 4): 90.0, ("CycleGAN", 2): 0.0},
        },
        {"v100": {("LM", 2): 25.0, ("LM", 4): 220.0}},
    )
    speeds = measured_speeds(table(gpus=(2, 4, 2, 8), model=(2, 2, 1, 2)), TYPES, rates)
    np.testing.assert_array_equal(speeds.speed, [[1, 1, 1, np.nan], [0.5, 0.45, 0, np.nan]])
    # The second was measured to be faster apart: that is not believed; K80 apart was not measured.
    np.testing.assert_array_equal(speeds.spread, [[0.25, 1, 1, 1], [1, 1, 1, 1]])


def test_speeds_of_gavel_jobs(data_dir):
    """Hours of jobs 4000 to 4999 on the best type, as published for a light load (15.31 h there, seed 0)."""
    rates = read_throughputs(data_dir / "gpu/gavel_throughputs.json.gz")
    for seed, hours in enumerate((15.34, 13.96, 15.75)):
        jobs = gavel_jobs(5000, 4.0, seed)
        speeds = measured_speeds(jobs, gpu_types(Cluster.preset("gavel")), rates)
        speeds.require_known()
        best_s = jobs["runtime_s"] / speeds.speed.max(axis=0)
        assert best_s[4000:].mean() / 3600 == pytest.approx(hours, abs=0.005)


def test_lm_on_eight_spread_gpus(data_dir):
    rates = read_throughputs(data_dir / "gpu/gavel_throughputs.json.gz")
    lm = {"labels": {"model": ("LM (batch size 10)",)}, "gpus": [8], "gpus_may_span_nodes": [1]}
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], model=[0], **lm)
    assert measured_speeds(jobs, ("V100",), rates).spread[0, 0] == pytest.approx(65.52 / 615.09, rel=1e-3)
    every = gavel_jobs(3000, 4.0, 0, multi_gpu=True)
    speeds = measured_speeds(every, ("V100", "P100", "K80"), rates)
    speeds.require_known()
    assert (speeds.speed[2] == 0).any()  # ResNet-50 with 128 images a step does not fit several K80
    assert (speeds.spread[:, every["gpus"] == 1] == 1).all() and speeds.spread.min() < 0.11


# -- roofline --------------------------------------------------------------------------------------------


def test_roofline_takes_the_smaller_ratio():
    speeds = roofline_speeds(table(), ("V100", "T4", "A100", "G2", "of my own"))
    assert speeds.speed[0].tolist() == [1, 1, 1]
    assert speeds.speed[1, 0] == pytest.approx(min(8.1 / 15.7, 320 / 900))
    assert speeds.speed[2, 0] == pytest.approx(min(19.5 / 15.7, 2039 / 900))
    assert np.isnan(speeds.speed[3:]).all()
    assert speeds.counts()["T4"] == {"roofline": 3}
    assert (speeds.spread == 1).all()


def test_precision():
    assert roofline_speeds(table(), ("A100",), precision="fp16").speed[0, 0] == pytest.approx(2039 / 900)
    assert roofline_speeds(table(), ("K80",), precision="fp16").speed[0, 0] == pytest.approx(4.113 / 125)
    with pytest.raises(UnknownNameError, match="unknown precision"):
        roofline_speeds(table(), ("A100",), precision="fp8")


def test_mixture_lies_between_the_ratios():
    mixed = roofline_speeds(table(), ("T4",), compute_share=[0.0, 0.5, 1.0]).speed[0]
    flops, bandwidth = 8.1 / 15.7, 320 / 900
    np.testing.assert_allclose(mixed, [bandwidth, 1 / (0.5 / flops + 0.5 / bandwidth), flops])
    with pytest.raises(InputError, match="compute_share ranges from 0 to 2"):
        roofline_speeds(table(), ("T4",), compute_share=[0, 1, 2])
    with pytest.raises(InputError, match="compute_share ranges from nan"):
        roofline_speeds(table(), ("T4",), compute_share=math.nan)
    with pytest.raises(InputError, match=r"compute_share has the shape \(2,\)"):
        roofline_speeds(table(), ("T4",), compute_share=[0, 1])


def test_insufficient_gpu_memory():
    speeds = roofline_speeds(table(), ("V100", "V100M32"), gpu_memory_gb=[8, 16, 17])
    assert speeds.speed.tolist() == [[1, 1, 0], [1, 1, 1]]


def test_unknown_reference_is_an_error():
    with pytest.raises(InputError, match="rates of 'G2' are unknown"):
        roofline_speeds(table(), ("V100",), reference="G2")
    with pytest.raises(UnknownNameError, match="unknown GPU type 'V1'"):
        roofline_speeds(table(), ("V100",), reference="V1")


def test_roofline_error_against_measurements(data_dir):
    """The error stated in the module docstring."""
    rates = read_throughputs(data_dir / "gpu/gavel_throughputs.json.gz").consolidated
    one = table(gpus=(1,), model=(0,))
    off = [
        math.log(rates[kind][what] / rates["v100"][what] / roofline_speeds(one, (kind,)).speed[0, 0])
        for kind in ("p100", "k80")
        for what in rates["v100"]
        if rates[kind][what] > 0
    ]
    assert math.exp(math.sqrt(np.mean(np.square(off)))) == pytest.approx(1.8, abs=0.05)


# -- given, combined ---------------------------------------------------------------------------------------


def test_constant_speeds_by_type():
    speeds = constant_speeds(table(), TYPES, {"K80": [0.1, 0.2, 0.3]}, {"V100": 0.5})
    np.testing.assert_array_equal(speeds.speed, [[np.nan] * 3, [0.1, 0.2, 0.3]])
    np.testing.assert_array_equal(speeds.spread, [[0.5] * 3, [1] * 3])
    with pytest.raises(UnknownNameError, match="GPU type of the cluster 'P100'"):
        constant_speeds(table(), TYPES, {"P100": 1.0})


def test_combine_uses_the_first_known_speed():
    jobs = table()
    speeds = fill_unknown_speeds(
        measured_speeds(jobs, (*TYPES, "G2")),
        roofline_speeds(jobs, (*TYPES, "G2")),
        constant_speeds(jobs, (*TYPES, "G2"), 1.0),
    )
    speeds.require_known()
    assert speeds.source.tolist() == [
        codes("measured", "measured", "roofline"),
        codes("measured", "measured", "roofline"),
        codes("given", "given", "given"),
    ]
    assert speeds.speed[1, 0] == pytest.approx(32.859 / 23.318)
    with pytest.raises(InputError, match="must have the same types and jobs"):
        fill_unknown_speeds(measured_speeds(jobs, TYPES), roofline_speeds(jobs, ("V100",)))
    with pytest.raises(InputError, match="must have the same types and jobs"):
        fill_unknown_speeds(measured_speeds(jobs, TYPES), roofline_speeds(jobs[1:], TYPES))


def test_unknown_speeds_are_named():
    with pytest.raises(InputError, match=r"row 2: its speed on 'V100' is unknown \(2 cells are\)"):
        measured_speeds(table(), TYPES).require_known()


def test_jobs_without_gpus_and_nodes_without_gpus():
    jobs = table(gpus=(0, 1, 1), model=(-1, 1, 1))
    for speeds in (
        measured_speeds(jobs, ("K80", "")),
        roofline_speeds(jobs, ("K80", "")),
        constant_speeds(jobs, ("K80", ""), 0.5),
    ):
        assert speeds.speed[:, 0].tolist() == [1, 1]
        assert speeds.speed[1, 1:].tolist() == [0, 0]
        assert 0 < speeds.speed[0, 1] < 1
    with pytest.raises(InputError, match="no column 'gpus'"):
        roofline_speeds(JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1]), ("K80",))


def test_no_jobs():
    none = table()[:0]
    both = fill_unknown_speeds(
        measured_speeds(none, TYPES, GAVEL_THROUGHPUTS),
        roofline_speeds(none, TYPES, compute_share=0.5, gpu_memory_gb=4),
    )
    assert both.speed.shape == (2, 0)
    both.require_known()


def test_invalid_speed_tables_are_errors():
    shape = (1, 1)
    zero = np.zeros(shape, np.int8)
    with pytest.raises(InputError, match=r"spread has the shape \(2, 1\) with 1 types"):
        Speeds(("V100",), np.ones(shape), np.ones((2, 1)), zero)
    with pytest.raises(InputError, match="row 0: the speed on 'V100' is -1.0; it must be a number, 0 or more"):
        Speeds(("V100",), -np.ones(shape), np.ones(shape), zero)
    with pytest.raises(InputError, match="the speed on 'V100' is inf"):
        constant_speeds(table(), ("V100",), math.inf)
    for wrong in (0.0, 1.5, math.nan):
        with pytest.raises(InputError, match=f"the spread on 'V100' is {wrong}; it must be above 0 and at most 1"):
            constant_speeds(table(), ("V100",), 1.0, wrong)


def test_speeds_for_the_types_of_a_cluster():
    assert gpu_types(Cluster.preset("gpu-mixed")) == ("A100", "V100", "T4", "RTX4090")
    assert gpu_types(Cluster.preset("helios-venus")) == ("V100",)
    plain = NodeGroup("cpu", 2, cores=8, node_level=True)
    fat = NodeGroup("gpu", 2, cores=8, gpus=4, gpu_type="T4", node_level=True)
    assert gpu_types(Cluster((plain, fat))) == ("", "T4")


# -- the type on which a run time was measured -------------------------------------------------------------


MIXED = Cluster.preset("gpu-mixed")


def measured_on(*names, requested=()):
    """One job for each: the type on which its run time was measured, and the type that it requests; "" if unknown."""
    labels = {"runtime_gpu_type": tuple(set(names) - {""}), "gpu_types": tuple(set(requested) - {""})}
    columns = {
        "runtime_gpu_type": [labels["runtime_gpu_type"].index(name) if name else -1 for name in names],
        "gpu_types": [labels["gpu_types"].index(name) if name else -1 for name in requested] or None,
    }
    count = len(names)
    rows = {"job_id": range(count), "submit_s": [0] * count, "runtime_s": [60] * count, "nodes": [1] * count}
    return JobTable(**rows, gpus=[1] * count, labels={k: v for k, v in labels.items() if v}, **columns)


@pytest.mark.parametrize("setting", ["auto", "roofline"])
def test_jobs_take_their_recorded_time_on_the_type_it_was_measured_on(setting):
    names = ("A100", "V100", "T4", "RTX4090")
    speeds = speeds_for(setting, measured_on(*names), MIXED)
    assert np.diag(speeds.speed).tolist() == [1.0] * 4
    assert np.diag(speeds.source).tolist() == codes(*["recorded"] * 4)
    assert speeds.speed[2, 0] < 1 < speeds.speed[0, 2]


def test_the_requested_type_is_the_default_and_the_recorded_type_goes_first():
    speeds = speeds_for("auto", measured_on("", "A100", "", requested=("T4", "T4", "")), MIXED)
    assert speeds.speed[2, 0] == 1.0 and speeds.speed[0, 1] == 1.0 and speeds.speed[2, 1] < 1.0
    assert speeds.speed[:, 2].tolist() == [1.0] * 4, "of an unknown type: its recorded time everywhere"
    assert speeds.source[:, 2].tolist() == codes(*["given"] * 4)


def test_one_of_several_requested_types_takes_the_recorded_time_on_each():
    speeds = speeds_for("auto", measured_on("", requested=("V100|T4",)), MIXED)
    assert speeds.speed[[1, 2], 0].tolist() == [1.0, 1.0]


def test_types_without_data_sheets_take_the_recorded_time():
    openb = Cluster.preset("openb")
    speeds = speeds_for("auto", measured_on("G2", "MISC", "T4"), openb)
    assert (speeds.speed[:, :2][[bool(name) for name in speeds.types]] == 1.0).all()
    assert speeds.speed[speeds.types.index("T4"), 2] == 1.0
    assert speeds.speed[speeds.types.index("G2"), 2] == 1.0


def test_measured_ratios_are_relative_to_the_type_of_the_run_time():
    jobs = gavel_jobs(50, 4.0)
    gavel = Cluster.preset("gavel")
    on_v100 = speeds_for("auto", jobs, gavel)
    labels = {**jobs.labels, "runtime_gpu_type": ("K80",)}
    columns = {name: jobs[name] for name in jobs.columns}
    on_k80 = speeds_for("auto", JobTable(labels=labels, **columns), gavel)
    v100, k80 = on_v100.types.index("V100"), on_v100.types.index("K80")
    assert (on_v100.speed[v100] == 1).all() and (on_k80.speed[k80] == 1).all()
    measured = on_v100.source[k80] == SPEED_SOURCES.index("measured")
    assert measured.any()
    np.testing.assert_allclose((on_v100.speed[k80] * on_k80.speed[v100])[measured], 1.0)
