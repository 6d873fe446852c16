"""Zeus measurements of GPU jobs under power caps, and cap curves fitted to them."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.energy.power import GPU_CAP_CURVES, fit_cap_curve, read_cap_table
from kilowait.errors import InputError

HEADER = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"


def test_fit_of_the_v100(data_dir):
    table = read_cap_table(data_dir / "power" / "zeus_summary_power_v100.csv.gz", "V100")
    fitted, constant = fit_cap_curve(table), GPU_CAP_CURVES["V100"]
    assert (round(fitted.a, 2), round(fitted.c, 2)) == (constant.a, constant.c) == (0.58, 1.51)
    assert fitted.rmse <= 0.08
    # Without the uncapped runs, which lie on the curve by definition, the error is 0.0801.
    r, slowdown, _ = table.relative()
    capped = np.array([run.cap_w for run in table.runs if _drawing(table, run)]) < 250
    assert np.sqrt(np.mean((constant.slowdown(r) - slowdown)[capped] ** 2)) == pytest.approx(0.0801, abs=1e-4)


def _drawing(table, run):
    return next(other.power_w for other in table.runs if other.job == run.job and other.cap_w == 250) > 90


@pytest.mark.parametrize("gpu", ["RTX6000", "A40"])
def test_fit_of_the_other_gpus(data_dir, gpu):
    table = read_cap_table(data_dir / "power" / f"zeus_summary_power_{gpu.lower()}.csv.gz", gpu)
    fitted = fit_cap_curve(table)
    assert (round(fitted.a, 2), round(fitted.c, 2)) == (GPU_CAP_CURVES[gpu].a, GPU_CAP_CURVES[gpu].c)
    assert fitted.rmse <= GPU_CAP_CURVES[gpu].rmse


def test_measured_medians_of_the_v100(data_dir):
    r, slowdown, power = read_cap_table(data_dir / "power" / "zeus_summary_power_v100.csv.gz").relative()
    for low, high, slowdown_median, energy in (
        (0.85, 0.9, 1.07, 0.86),
        (0.65, 0.7, 1.20, 0.76),
        (0.55, 0.6, 1.43, 0.77),
    ):
        inside = (r >= low) & (r < high)
        assert round(float(np.median(slowdown[inside])), 2) == slowdown_median
        assert round(float(np.median((slowdown * power)[inside])), 2) == energy
        # The modelled saving exceeds the measured one by at most 0.05.
        assert GPU_CAP_CURVES["V100"].relative_energy((low + high) / 2) > energy - 0.05


def test_small_table(tmp_path):
    path = tmp_path / "gpu.csv"
    path.write_text(HEADER + "d,n,1,sgd,250,10,200\nd,n,1,sgd,100,20,99\nd,n,2,sgd,100,20,99\n")
    table = read_cap_table(path)
    assert [(run.cap_w, run.throughput_per_s, run.power_w) for run in table.runs[:2]] == [
        (250, 0.1, 200),
        (100, 0.05, 99),
    ]
    r, slowdown, power = table.relative()  # the third has no uncapped run
    assert (r.tolist(), slowdown.tolist(), power.tolist()) == ([1.25, 0.5], [1, 2], [1, 0.495])
    with pytest.raises(InputError, match="draws more than 300 W"):
        table.relative(300)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "lacks the column"),
        (HEADER, "has no rows"),
        (HEADER + "d,n,1,sgd,250,0,200\n", "line 2: .*time_per_epoch '0'"),
        (HEADER + "d,n,1,sgd,250,10,\n", "line 2: .*average_power ''"),
        (HEADER + "d,n,1,sgd,x,10,5\n", "line 2: power_limit 'x'"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    path = tmp_path / "gpu.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_cap_table(path)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot read the power table"):
        read_cap_table(tmp_path / "none.csv")
