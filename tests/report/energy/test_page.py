"""The page with energy: what is added, and that nothing else changes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from kilowait.evaluation.comparison import PowerCurve, SignalCurve
from kilowait.evaluation.storage import save_comparison
from kilowait.report import page, write_report
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.energy import figures, interactive, tables
from kilowait.report.energy.data import STATES, EnergyData
from kilowait.report.page import _asset
from tests.report.conftest import LEVERS, NASTY, energy_contest, jobs_of
from tests.report.test_page import read

ADDED = ("energy-by-state", "pareto", "power")


@pytest.fixture(scope="module")
def drew(powered):
    return EnergyData.of(ComparisonData(powered, 0))


def cells(html):
    """Of each row of a table its name and cells, as text."""
    rows = re.findall(r'<tr[^>]*><th scope="row">(.*?)</th>(.*?)</tr>', html)
    return {
        name: [
            re.sub(r"<[^>]+>", " ", cell).replace("&nbsp;", " ").split()
            for cell in re.findall(r"<td.*?>(.*?)</td>", rest)
        ]
        for name, rest in rows
    }


def test_the_page_gains_its_parts_in_order(powered_windows):
    text = page([powered_windows])
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert re.findall(r"<h3[^>]*>(.*?)</h3>", text) == [
        "Side by side",
        "Energy, CO2 and cost",
        "How waits and slowdowns are spread",
        "Over time",
        "Power over time",
        "Who waits",
        "Job by job",
    ]
    assert "draws least energy" in text
    assert set(re.findall(r"var\((--\w+)\)", text)) <= set(re.findall(r"(--\w+): ", text))
    drawings = [a for tag, a in reader.tags if tag == "svg" and "aria-hidden" not in a]
    assert len(drawings) == 7
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in drawings)
    assert text == page([powered_windows])


def test_pages_without_energy_know_nothing_of_it(powered):
    """What energy adds is taken out of the page again, and what is left is the page without."""
    alike = replace(
        powered, contenders=tuple(replace(c, name=c.label, levers="none") for c in powered.contenders)
    )
    plain, text = page([replace(alike, energy=None)]), page([alike])
    assert not re.search(r" CO2|, kWh|data-energy|PowerChart|--behind|outages|[Hh]atched", plain)
    for words, after in (("Energy, CO2 and cost", "How waits"), ("Power over time", "Who waits")):
        text = re.sub(rf"<h3>{words}</h3>.*?(?=<h3>{after})", "", text, flags=re.DOTALL)
    text = text.replace(_asset("energy.css"), "").replace("\n" + _asset("power.js"), "")
    text = re.sub(r"<div><dt>(energy|CO2)</dt>.*?</div>", "", text)
    said = (
        "draws least energy|emits least CO2|That costs|Jobs wait no|At no longer|Nobody|No schedule can save"
    )
    text = re.sub(rf"<p>[^<]*({said})[^<]*</p>", "", text)
    policy = r"sha256-[^']+"
    assert re.sub(policy, "", text) == re.sub(policy, "", plain)


def test_the_table_has_the_records_numbers(drew):
    html = tables.energy_table(drew)
    head = re.findall(r'<th scope="col">(.*?)</th>', html)
    assert head == [
        "contender",
        "nodes, kWh",
        "saved against fcfs",
        "facility, kWh",
        "CO2, kg",
        "cost, EUR",
        "highest peak of the nodes, kW",
        "PUE",
        "mean wait",
        "mean bounded slowdown",
    ]
    rows = cells(html)
    assert list(rows) == ["fcfs", *(f"fcfs, {text}" for text in LEVERS[1:]), "no schedule can go below"]
    bound = rows.pop("no schedule can go below")
    assert float(bound[0][0].replace(",", "")) == pytest.approx(drew.bound_kwh, rel=1e-3)
    energy = drew.means("energy_kwh")
    for who, row in enumerate(rows.values()):
        assert float(row[0][0].replace(",", "")) == pytest.approx(energy[who], rel=1e-3)
        assert row[6][0] == "1.250"
    assert rows["fcfs"][1] == ["–"]
    assert rows["fcfs, all"][1] == [f"{100 * (1 - energy[4] / energy[0]):.1f}", "%"]
    assert rows["fcfs, shift=lowest-window:6h"][1][0].startswith("−"), "more than the first is no saving"
    assert "(best)" in rows["fcfs, all"][0]
    assert html.count("(best)") == 7, "the least of each column but the PUE, which is the same"


def test_signals_and_notes_are_printed(drew):
    html = tables.assumptions(drew)
    assert "<b>Carbon intensity</b>, g/kWh: GB; average; direct; a &lt;made&gt; series" in html
    assert "<b>Price</b>, EUR/MWh: DE-LU day ahead; EUR" in html
    named = SignalCurve("carbon", "g/kWh", "carbon intensity, GB, marginal", (0.0, 1.0), (1.0,))
    assert tables._signal(named) == "Carbon intensity, GB, marginal"
    assert "Power model &#x27;made&#x27;: 3 of 9 parts are estimates." in html


def test_without_signals_there_is_no_co2_and_no_cost():
    contest = energy_contest(jobs_of(80), LEVERS[:2], carbon=False, price=False)
    text = page([contest])
    read(text)
    drew = EnergyData.of(ComparisonData(contest, 0))
    head = re.findall(r'<th scope="col">(.*?)</th>', tables.energy_table(drew))
    assert not any("CO2" in words or "cost" in words for words in head)
    assert len([axes for axes in figures.pareto(drew).figure.axes if axes.lines]) == 1
    assert "Behind it" not in text
    priced = EnergyData.of(ComparisonData(energy_contest(jobs_of(80), LEVERS[:2], carbon=False), 0))
    assert figures.pareto(priced).figure.axes[1].get_xlabel() == "cost, EUR"


def test_levers_are_split(drew):
    html = tables.lever_table(drew, drew.levers[0])
    rows = cells(html)
    assert list(rows) == [*LEVERS[1:4], "alone, added up", "all"]
    energy = drew.means("energy_kwh")
    saved = [100 * (1 - energy[who] / energy[0]) for who in range(5)]
    shown = {name: float(row[0][0].replace("−", "-")) for name, row in rows.items()}
    assert shown["sleep=break-even"] == pytest.approx(-saved[1], abs=0.051)
    assert shown["alone, added up"] == pytest.approx(-sum(saved[1:4]), abs=0.051)
    assert shown["all"] == pytest.approx(-saved[4], abs=0.051)
    assert rows["sleep=break-even"][-1][-2:] == ["as", "long"]


def test_bars_add_up(drew):
    drawn = figures.spent(drew)
    axes = drawn.figure.axes[0]
    wide = {}
    for bar in axes.patches:
        wide[bar.get_y()] = wide.get(bar.get_y(), 0.0) + bar.get_width()
    totals = [sum(states.values()) for states in drew.record.states]
    assert [wide[y] for y in sorted(wide, reverse=True)] == pytest.approx(totals)
    assert [words.get_text() for words in axes.get_legend().get_texts()] == list(STATES.values())
    assert "sleep=break-even: jobs" in drawn.alt


def test_the_front_is_joined_and_names_keep_apart(drew):
    drawn = figures.pareto(drew)
    drawn.figure.draw_without_rendering()
    renderer = drawn.figure.canvas.get_renderer()
    for axes, metric in zip(drawn.figure.axes, ("energy_kwh", "co2_kg"), strict=True):
        front = drew.front(metric)
        joined = next(line for line in axes.lines if line.get_drawstyle() == "steps-post")
        assert joined.get_xdata() == pytest.approx([drew.means(metric)[who] for who in front])
        filled = [line for line in axes.lines if line.get_marker() == "o" and line.get_fillstyle() == "full"]
        assert len(filled) == len(front)
        boxes = [words.get_window_extent(renderer) for words in axes.texts]
        assert len(boxes) == 5
        for place, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:place])


def test_many_close_points_are_named_as_far_as_there_is_room():
    contest = energy_contest(jobs_of(60), LEVERS[:2])
    drew = EnergyData.of(ComparisonData(contest, 0))
    from kilowait.report.figures import new_figure

    with new_figure(height_in=3) as (figure, axes):
        points = {who: (f"a long name {who}", (1 + who / 1000, 1.0)) for who in range(60)}
        axes.plot([0, 2], [0, 2], "o")
        figures._named(figure, axes, points, [])
    assert 1 <= len(axes.texts) < 30
    assert drew.front("energy_kwh")


def test_bins_are_exact_means():
    random = np.random.default_rng(0)
    edge = np.sort(random.uniform(0, 1000, 60))
    value = random.uniform(-5, 50, 59)
    for bins in (1, 7, 59, 400):
        found = interactive.binned(edge, value, bins)
        length = (edge[-1] - edge[0]) / bins
        assert found.sum() * length == pytest.approx(value @ np.diff(edge))
    equal = np.linspace(0, 10, 60)
    assert (
        interactive.binned(equal, value, 59) is value or (interactive.binned(equal, value, 59) == value).all()
    )


def test_uneven_signals_are_cut_to_the_chart():
    signal = SignalCurve("price", "EUR/MWh", "x", (0.0, 100.0, 150.0, 400.0), (1.0, 3.0, -2.0))
    reach, values = interactive._signal(signal, 40.0, 50.0, 250.0)
    assert reach == {"from": 10.0, "to": 210.0, "bins": 4}
    assert values.tolist() == [1.0, 3.0, -2.0, -2.0]
    assert interactive._signal(signal, 0.0, 400.0, 500.0) is None


def test_charts_of_the_same_window_zoom_together(powered, powered_windows):
    assert '"along":"time-0"' in page([powered])
    found = ComparisonData(powered_windows, 0)
    assert found.typical != powered_windows.energy.drawn
    text = page([powered_windows])
    assert '"along":null' in text
    assert "This is window 1 of 20." in text


def test_a_record_without_curves_or_with_one_contender(powered):
    bare = replace(powered, energy=replace(powered.energy, curves=(), signals=(), notes=()))
    assert "No power was kept over time" in page([bare])
    one = energy_contest(jobs_of(50), ("none",))
    text = page([one])
    read(text)
    assert "The nodes draw" in text
    assert "saved against" not in text
    short = replace(powered.energy, curves=(PowerCurve((0.0, 1.0), (1.0,), (1.0,)),))
    read(page([replace(powered, energy=short)]))


def test_nasty_words_are_escaped(powered):
    record = powered.energy
    signals = tuple(
        replace(s, name=f"{s.name} {NASTY}", words=NASTY, unit=f"{s.unit}{NASTY} $") for s in record.signals
    )
    text = page([replace(powered, energy=replace(record, signals=signals, notes=(NASTY,)))])
    assert "<b onload" not in text
    read(text)


def test_figures_of_a_saved_comparison(powered, tmp_path):
    from matplotlib.image import imread

    folder = save_comparison(tmp_path / "compared", [powered], scenario={"trace": "x"}, results={})
    out = write_report([folder], tmp_path / "x.html", figures=tmp_path / "figures")
    assert "Power over time" in out.read_text(encoding="utf-8")
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert set(ADDED) <= names
    for name in ADDED:
        pixels = imread(tmp_path / "figures" / f"{name}.png")[..., :3]
        ink = (np.abs(pixels - 1.0).max(axis=2) > 0.1).mean()
        assert 0.01 < ink < 0.95, name
    again = write_report([folder], tmp_path / "y.html", figures=tmp_path / "again")
    assert again.read_bytes() == out.read_bytes()
    for name in ADDED:
        for kind in ("svg", "png"):
            assert (tmp_path / "figures" / f"{name}.{kind}").read_bytes() == (
                tmp_path / "again" / f"{name}.{kind}"
            ).read_bytes()
