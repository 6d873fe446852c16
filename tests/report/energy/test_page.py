"""Energy sections of the page: their content, and that the other sections do not change."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from kilowait.evaluation.comparison import PowerCurve, SignalCurve
from kilowait.evaluation.storage import save_comparison
from kilowait.report import charts, page, write_report
from kilowait.report.data import energy as energy_texts
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.data.control_savings import control_savings, control_savings_table
from kilowait.report.data.energy import NODE_STATE_LABELS, EnergyData
from kilowait.report.figures import energy as figures
from kilowait.report.markup import assets, render_part
from tests.report.conftest import CONTROLS, NASTY, energy_comparison, jobs_of
from tests.report.test_page import read

ADDED = ("energy-by-state", "pareto", "power")


@pytest.fixture(scope="module")
def energy_data(energy_run):
    return EnergyData.of(ComparisonData(energy_run, 0))


def cells(html):
    """The text of the cells of a table by row name."""
    rows = re.findall(r'<tr[^>]*><th scope="row">(.*?)</th>(.*?)</tr>', html)
    return {
        name: [
            re.sub(r"<[^>]+>", " ", cell).replace("&nbsp;", " ").replace("\N{NO-BREAK SPACE}", " ").split()
            for cell in re.findall(r"<td.*?>(.*?)</td>", rest)
        ]
        for name, rest in rows
    }


def test_sections_are_in_order(energy_windows):
    text = page([energy_windows])
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert re.findall(r"<h3[^>]*>(.*?)</h3>", text) == [
        "Comparison",
        "Energy, CO2 and cost",
        "Distribution of waits and slowdowns",
        "Over time",
        "Power over time",
        "Waits by job class",
        "Winners and losers",
        "Schedule (Gantt chart)",
    ]
    assert "uses the least energy" in text
    assert set(re.findall(r"var\((--\w+)\)", text)) <= set(re.findall(r"(--\w+): ", text))
    drawings = [a for tag, a in reader.tags if tag == "svg" and "aria-hidden" not in a]
    assert len(drawings) == 7
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in drawings)
    assert text == page([energy_windows])


def test_energy_adds_sections_and_changes_nothing_else(energy_run):
    """Without the parts that energy adds, the page equals the page without energy."""
    relabelled = replace(
        energy_run, policies=tuple(replace(c, name=c.label, power_controls="none") for c in energy_run.policies)
    )
    without_energy, text = page([replace(relabelled, energy=None)]), page([relabelled])
    assert not re.search(r" CO2|, kWh|data-energy|PowerChart|--behind|outages|[Hh]atched", without_energy)
    for label, after in (("Energy, CO2 and cost", "Distribution of waits"), ("Power over time", "Waits by job")):
        text = re.sub(rf"<h3>{label}</h3>.*?(?=<h3>{after})", "", text, flags=re.DOTALL)
    text = text.replace(assets(["energy.css"]), "").replace("\n" + assets(["power.js"]), "")
    text = re.sub(r"<div><dt>(energy|CO2)</dt>.*?</div>", "", text)
    energy_sentences = (
        "uses the least energy|emits the least CO2|This increases|This does not|Without a longer|No policy|"
        "No schedule can save|saves [^<]* of the energy"
    )
    text = re.sub(rf"<p>[^<]*({energy_sentences})[^<]*</p>", "", text)
    policy = r"sha256-[^']+"
    assert re.sub(rf"{policy}|\s", "", text) == re.sub(rf"{policy}|\s", "", without_energy)


def test_energy_table_matches_the_energy_results(energy_data):
    html = render_part("table", energy_texts.energy_table(energy_data))
    head = re.findall(r'<th scope="col">(.*?)</th>', html)
    assert head == [
        "policy",
        "energy, kWh",
        "saved against fcfs",
        "facility energy, kWh",
        "CO2, kg",
        "electricity cost, EUR",
        "peak power, kW",
        "PUE",
        "mean wait",
        "mean bounded slowdown",
    ]
    rows = cells(html)
    assert list(rows) == ["fcfs", *(f"fcfs, {text}" for text in CONTROLS[1:]), "lower bound of any schedule"]
    bound = rows.pop("lower bound of any schedule")
    assert float(bound[0][0].replace(",", "")) == pytest.approx(energy_data.bound_kwh, rel=1e-3)
    energy = energy_data.means("energy_kwh")
    for policy, row in enumerate(rows.values()):
        assert float(row[0][0].replace(",", "")) == pytest.approx(energy[policy], rel=1e-3)
        assert row[6][0] == "1.250"
    assert rows["fcfs"][1] == ["–"]
    assert rows["fcfs, all"][1] == [f"{100 * (1 - energy[4] / energy[0]):.1f}", "%"]
    assert rows["fcfs, shift=lowest-window:6h"][1][0].startswith("−"), "more than the first is no saving"
    assert "(best)" in rows["fcfs, all"][0]
    assert html.count("(best)") == 7, "the least of each column but the PUE, which is the same"


def test_signals_and_notes_are_printed(energy_run):
    energy_data = EnergyData.of(ComparisonData(energy_run, 0))
    lines = energy_texts.assumptions(energy_data)
    assert lines[:2] == [
        ("Carbon intensity", ", g/kWh: GB; average; direct; a <made> series"),
        ("Price", ", EUR/MWh: DE-LU day ahead; EUR"),
    ]
    assert lines[-1] == ("", "Power model 'made': 3 of 9 parts are estimates.")
    named = SignalCurve("carbon", "g/kWh", "carbon intensity, GB, marginal", (0.0, 1.0), (1.0,))
    energy_data.record = replace(energy_data.record, signals=(named,))
    assert energy_texts.assumptions(energy_data)[0] == ("", "Carbon intensity, GB, marginal")


def test_without_signals_there_is_no_co2_and_no_cost():
    comparison = energy_comparison(jobs_of(80), CONTROLS[:2], carbon=False, price=False)
    text = page([comparison])
    read(text)
    energy_data = EnergyData.of(ComparisonData(comparison, 0))
    head = re.findall(r'<th scope="col">(.*?)</th>', render_part("table", energy_texts.energy_table(energy_data)))
    assert not any("CO2" in label or "cost" in label for label in head)
    assert len([axes for axes in figures.energy_pareto(energy_data).figure.axes if axes.lines]) == 1
    assert "Background" not in text
    with_price = EnergyData.of(ComparisonData(energy_comparison(jobs_of(80), CONTROLS[:2], carbon=False), 0))
    assert figures.energy_pareto(with_price).figure.axes[1].get_xlabel() == "cost, EUR"


def test_savings_by_power_control(energy_data):
    html = render_part("table", control_savings_table(energy_data, control_savings(energy_data)[0]))
    rows = cells(html)
    assert list(rows) == [*CONTROLS[1:4], "sum of single controls", "all"]
    energy = energy_data.means("energy_kwh")
    savings = [100 * (1 - energy[policy] / energy[0]) for policy in range(5)]
    printed = {name: float(row[0][0].replace("−", "-")) for name, row in rows.items()}
    assert printed["sleep=break-even"] == pytest.approx(-savings[1], abs=0.051)
    assert printed["sum of single controls"] == pytest.approx(-sum(savings[1:4]), abs=0.051)
    assert printed["all"] == pytest.approx(-savings[4], abs=0.051)
    assert rows["sleep=break-even"][-1][-2:] == ["no", "change"]


def test_energy_by_state_adds_up(energy_data):
    figure = figures.energy_by_state(energy_data)
    axes = figure.figure.axes[0]
    total_width = {}
    for bar in axes.patches:
        total_width[bar.get_y()] = total_width.get(bar.get_y(), 0.0) + bar.get_width()
    totals = [sum(states.values()) for states in energy_data.record.states]
    assert [total_width[y] for y in sorted(total_width, reverse=True)] == pytest.approx(totals)
    assert [label.get_text() for label in axes.get_legend().get_texts()] == list(NODE_STATE_LABELS.values())
    assert "sleep=break-even: jobs" in figure.alt


def test_pareto_front_is_drawn_and_names_do_not_overlap(energy_data):
    figure = figures.energy_pareto(energy_data)
    figure.figure.draw_without_rendering()
    renderer = figure.figure.canvas.get_renderer()
    for axes, metric in zip(figure.figure.axes, ("energy_kwh", "co2_kg"), strict=True):
        front = energy_data.pareto_front(metric)
        front_line = next(line for line in axes.lines if line.get_drawstyle() == "steps-post")
        assert front_line.get_xdata() == pytest.approx([energy_data.means(metric)[policy] for policy in front])
        filled = [line for line in axes.lines if line.get_marker() == "o" and line.get_fillstyle() == "full"]
        assert len(filled) == len(front)
        boxes = [label.get_window_extent(renderer) for label in axes.texts]
        assert len(boxes) == 5
        for index, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:index])


def test_close_points_are_named_while_there_is_space():
    comparison = energy_comparison(jobs_of(60), CONTROLS[:2])
    energy_data = EnergyData.of(ComparisonData(comparison, 0))
    from kilowait.report.figures import new_figure

    with new_figure(height_in=3) as (figure, axes):
        points = {policy: (f"a long name {policy}", (1 + policy / 1000, 1.0)) for policy in range(60)}
        axes.plot([0, 2], [0, 2], "o")
        figures._label_points(figure, axes, points, [])
    assert 1 <= len(axes.texts) < 30
    assert energy_data.pareto_front("energy_kwh")


def test_bins_are_exact_means():
    random = np.random.default_rng(0)
    edge = np.sort(random.uniform(0, 1000, 60))
    value = random.uniform(-5, 50, 59)
    for bins in (1, 7, 59, 400):
        data = charts.binned(edge, value, bins)
        length = (edge[-1] - edge[0]) / bins
        assert data.sum() * length == pytest.approx(value @ np.diff(edge))
    equal = np.linspace(0, 10, 60)
    assert charts.binned(equal, value, 59) is value or (charts.binned(equal, value, 59) == value).all()


def test_signals_are_cut_to_the_time_range():
    signal = SignalCurve("price", "EUR/MWh", "x", (0.0, 100.0, 150.0, 400.0), (1.0, 3.0, -2.0))
    reach, values = charts._signal_columns(signal, 40.0, 50.0, 250.0)
    assert reach == {"from": 10.0, "to": 210.0, "bins": 4}
    assert values.tolist() == [1.0, 3.0, -2.0, -2.0]
    assert charts._signal_columns(signal, 0.0, 400.0, 500.0) is None


def test_charts_of_the_same_window_zoom_together(energy_run, energy_windows):
    assert '"along":"time-0"' in page([energy_run])
    data = ComparisonData(energy_windows, 0)
    assert data.typical != energy_windows.energy.plotted_window
    text = page([energy_windows])
    assert '"along":null' in text
    assert "This is window 1 of 20." in text


def test_energy_without_curves_or_with_one_policy(energy_run):
    without_curves = replace(energy_run, energy=replace(energy_run.energy, curves=(), signals=(), notes=()))
    assert "The runs have no power over time" in page([without_curves])
    single_policy = energy_comparison(jobs_of(50), ("none",))
    text = page([single_policy])
    read(text)
    assert "The nodes use" in text
    assert "saved against" not in text
    short = replace(energy_run.energy, curves=(PowerCurve((0.0, 1.0), (1.0,), (1.0,)),))
    read(page([replace(energy_run, energy=short)]))


def test_signal_text_is_escaped(energy_run):
    record = energy_run.energy
    signals = tuple(
        replace(s, name=f"{s.name} {NASTY}", description=NASTY, unit=f"{s.unit}{NASTY} $") for s in record.signals
    )
    text = page([replace(energy_run, energy=replace(record, signals=signals, notes=(NASTY,)))])
    assert "<b onload" not in text
    read(text)


def test_figures_of_a_saved_comparison(energy_run, tmp_path):
    from matplotlib.image import imread

    folder = save_comparison(tmp_path / "compared", [energy_run], scenario={"trace": "x"}, results={})
    out = write_report([folder], tmp_path / "x.html", figures=tmp_path / "figures")
    assert "Power over time" in out.read_text(encoding="utf-8")
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert set(ADDED) <= names
    for name in ADDED:
        pixels = imread(tmp_path / "figures" / f"{name}.png")[..., :3]
        ink = (np.abs(pixels - 1.0).max(axis=2) > 0.1).mean()
        assert 0.01 < ink < 0.95, name
    second_report = write_report([folder], tmp_path / "y.html", figures=tmp_path / "again")
    assert second_report.read_bytes() == out.read_bytes()
    for name in ADDED:
        for kind in ("svg", "png"):
            assert (tmp_path / "figures" / f"{name}.{kind}").read_bytes() == (
                tmp_path / "again" / f"{name}.{kind}"
            ).read_bytes()
