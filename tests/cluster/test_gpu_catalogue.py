"""The catalogue of GPU types."""

from __future__ import annotations

import gzip
import json
import math

import pytest

from kilowait.cluster.gpu_catalogue import (
    GAVEL_THROUGHPUTS,
    GPU_CATALOGUE,
    GpuType,
    Throughputs,
    gpu,
    is_gpu_type,
    read_throughputs,
)
from kilowait.errors import InputError, UnknownNameError

RATES = ("fp64_tflops", "fp32_tflops", "fp16_tflops")
# Nominal, beside the MiB its nodes report.
OPENB_GB = {"G1": 10, "G2": 20, "G3": 30, "P4": 8, "2080Ti": 11, "1080Ti": 11, "M40": 12, "T4": 16, "P100": 16}
OPENB_GB |= {"A10": 24, "3090": 24, "V100M16": 16, "V100M32": 32, "A100": 80}


@pytest.mark.parametrize("name", GPU_CATALOGUE)
def test_every_gpu_type_is_complete(name):
    one = GPU_CATALOGUE[name]
    assert one.name == name and one.source and one.family
    assert gpu(name) is one and all(gpu(alias) is one for alias in one.aliases)
    assert set(one.unsure) <= {"memory_gb", "bandwidth_gb_per_s", *RATES, "tdp_w", "idle_w"}
    if name in {"G1", "G2", "G3"}:
        assert math.isnan(one.tdp_w) and math.isnan(one.idle_w) and math.isnan(one.tflops("fp16"))
        return
    assert 0 < one.idle_w < one.tdp_w / 3
    assert one.fp64_tflops <= one.fp32_tflops <= one.tflops("fp16")
    assert one.tflops("fp32") == one.fp32_tflops


def test_gpu_names_are_unique():
    names = [n.lower() for one in GPU_CATALOGUE.values() for n in (one.name, *one.aliases)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "gb"), OPENB_GB.items())
def test_names_of_openb(name, gb):
    assert gpu(name).memory_gb == gb


NVIDIA_SMI = {
    "NVIDIA A100-SXM4-80GB": "A100-SXM4-80",
    "A100-SXM4-40GB": "A100-SXM4-40",
    "NVIDIA A100-PCIE-40GB": "A100-PCIE-40",
    "NVIDIA A100 80GB PCIe": "A100-PCIE-80",
    "Tesla V100-SXM2-16GB": "V100-SXM2-16",
    "Tesla V100-SXM2-32GB": "V100-SXM2-32",
    "Tesla V100-PCIE-16GB": "V100-PCIE-16",
    "NVIDIA H100 80GB HBM3": "H100-SXM5",
    "NVIDIA H100 PCIe": "H100-PCIE",
    "NVIDIA H200": "H200",
    "NVIDIA B200": "B200",
    "NVIDIA L40S": "L40S",
    "NVIDIA A10G": "A10",
    "Tesla T4": "T4",
    "Tesla P100-PCIE-16GB": "P100",
    "Tesla P100-PCIE-12GB": "P100-12",
    "Tesla P100-SXM2-16GB": "P100-SXM2",
    "GeForce RTX 2080 Ti": "RTX2080Ti",
    "NVIDIA GeForce RTX 3090": "RTX3090",
    "Quadro RTX 6000": "RTX6000",
    "AMD Instinct MI250X": "MI250X",
}


@pytest.mark.parametrize(("printed", "name"), NVIDIA_SMI.items())
def test_names_that_nvidia_smi_prints(printed, name):
    assert gpu(printed).name == name
    assert is_gpu_type(printed, name) and is_gpu_type(name.lower(), printed)


@pytest.mark.parametrize("other", ["NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX A6000", "Tesla M40 24GB"])
def test_similar_names_are_other_types(other):
    with pytest.raises(UnknownNameError, match="unknown GPU type"):
        gpu(other)


def test_rates_are_dense_not_sparse():
    assert gpu("H100").fp16_tflops == 989
    assert gpu("V100-PCIE-16").tdp_w == 250 and gpu("V100").tdp_w == 300


def test_families_join_variants():
    assert {gpu(n).family for n in ("V100", "V100M32", "V100-PCIE-16")} == {"V100"}
    assert gpu("P100-12").family == "P100" and gpu("T4").family == "T4"


def test_default_idle_power():
    assert gpu("1080Ti").idle_w == pytest.approx(0.15 * 250)
    assert "idle_w" in gpu("1080Ti").unsure


@pytest.mark.parametrize("spelling", ["RTX 4090", "rtx-4090", "4090", "RTX4090"])
def test_gpu_names_ignore_spelling_variants(spelling):
    assert gpu(spelling).name == "RTX4090"


def test_unknown_gpu_name_is_an_error():
    with pytest.raises(UnknownNameError, match="unknown GPU type 'V-1000'; did you mean 'v100'"):
        gpu("V-1000")
    with pytest.raises(UnknownNameError, match="unknown precision 'fp8'"):
        gpu("V100").tflops("fp8")


@pytest.mark.parametrize("wrong", [-1.0, 0.0, math.inf])
def test_invalid_gpu_numbers_are_errors(wrong):
    with pytest.raises(InputError, match="tdp_w of the GPU type 'X' is .*; it must be above 0, or NaN"):
        GpuType(name="X", memory_gb=8.0, tdp_w=wrong)


WHOLE = {
    "v100": {"('LM (batch size 10)', 8)": {"null": 615.1, "('A3C', 1)": [1.0, 2.0]}, "('A3C', 1)": {"null": 7}},
    "v100_unconsolidated": {"('LM (batch size 10)', 8)": {"null": 65.5}},
}


@pytest.mark.parametrize("packed", [False, True])
def test_read_throughputs(tmp_path, packed):
    text = json.dumps(WHOLE).encode()
    path = tmp_path / ("t.json.gz" if packed else "t.json")
    path.write_bytes(gzip.compress(text) if packed else text)
    table = read_throughputs(path)
    assert table.consolidated == {"v100": {("LM (batch size 10)", 8): 615.1, ("A3C", 1): 7.0}}
    assert table.unconsolidated == {"v100": {("LM (batch size 10)", 8): 65.5}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot read the throughput file"),
        ("[]", "has no table"),
        ("{}", "has no table"),
        ('{"v100": 3}', "'v100' in .* is not a table"),
        ('{"v100": {"LM": {"null": 1}}}', "has 'LM'; it must be"),
        ('{"v100": {"(\'LM\', 1)": {"null": "x"}}}', "with a number"),
        ('{"v100": {"(\'LM\', 1)": {"null": -1}}}', "throughput of 'LM' on 1 'v100' is -1.0"),
        ('{"v100": {"(\'LM\', 0)": {"null": 1}}}', "on at least 1 GPU"),
    ],
)
def test_invalid_files_are_errors(tmp_path, text, message):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_throughputs(path)


def test_missing_file_and_invalid_gzip_are_errors(tmp_path):
    with pytest.raises(InputError, match="no throughput file"):
        read_throughputs(tmp_path / "none.json")
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(InputError, match="cannot read"):
        read_throughputs(tmp_path / "t.json.gz")


def test_non_numeric_throughput_is_an_error():
    with pytest.raises(InputError, match="is nan"):
        Throughputs({"v100": {("LM", 1): float("nan")}})


def test_built_in_rows_equal_the_published_file(data_dir):
    table = read_throughputs(data_dir / "gpu/gavel_throughputs.json.gz")
    assert set(table.consolidated) == set(table.unconsolidated) == set(GAVEL_THROUGHPUTS.consolidated)
    assert len(table.consolidated["v100"]) == 83
    for kind, rates in GAVEL_THROUGHPUTS.consolidated.items():
        assert len(rates) == 12
        for what, rate in rates.items():
            assert rate == pytest.approx(table.consolidated[kind][what], abs=6e-4)
