"""Throughput files in Gavel's format."""

from __future__ import annotations

import gzip
import json

import pytest

from kilowait.cluster.gpu_throughputs import GAVEL_THROUGHPUTS, Throughputs, read_throughputs
from kilowait.errors import InputError

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
