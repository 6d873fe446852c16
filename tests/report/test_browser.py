"""The page in a browser, opened from disk without a network: drawing, zoom, selection, color schemes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.evaluation.comparison import Comparison, PolicyConfig, single_window
from kilowait.evaluation.job_measures import started_jobs
from kilowait.jobs import JobTable
from kilowait.report import page
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.gantt import assign_rows
from kilowait.units import format_duration
from tests.report.conftest import NASTY, cluster_with_outage, comparison_of, jobs_of

WAITING = "figure.chart:not([data-ready])"
PIXELS = """canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const found = {};
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] < 250) continue;
    const key = `${data[i]},${data[i + 1]},${data[i + 2]}`;
    found[key] = (found[key] || 0) + 1;
  }
  return found;
}"""
VIEW = "canvas => [canvas.chart.view.x.lo, canvas.chart.view.x.hi]"
BLUE, ORANGE, GREEN = "0,114,178", "230,159,0", "0,158,115"


@pytest.fixture(scope="module")
def small_comparison(tmp_path_factory):
    """A comparison and its page."""
    comparison = comparison_of(jobs_of(dated=True))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page([comparison], title=f"Small {NASTY}"), encoding="utf-8")
    return comparison, path


@pytest.fixture
def open_page(browser, small_comparison):
    """Open the page in a new window; fails at the end if any window had an error."""
    contexts, errors = [], []

    def open_page(path=small_comparison[1], **settings):
        context = browser.new_context(offline=True, **{"viewport": {"width": 1200, "height": 900}, **settings})
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda values: errors.append(values.text) if values.type == "error" else None)
        tab.on("request", lambda r: None if r.url.startswith("file:") else errors.append(r.url))
        tab.goto(path.as_uri())
        tab.wait_for_selector(WAITING, state="detached", timeout=30_000)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def wait_for_drawing(tab):
    """Wait two frames until all scheduled drawing is done."""
    tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def pixels(tab, canvas):
    return Counter(tab.locator(canvas).evaluate(PIXELS))


def view(tab, canvas="canvas.gantt"):
    wait_for_drawing(tab)
    low, high = tab.locator(canvas).evaluate(VIEW)
    return low, high


def test_charts_are_drawn(open_page):
    tab = open_page()
    assert tab.title() == f"Small {NASTY}"
    lines = pixels(tab, "canvas.time")
    assert all(lines[colour] > 200 for colour in (BLUE, ORANGE, GREEN)), "every line is there"
    jobs = pixels(tab, "canvas.gantt")
    assert len(jobs) > 20
    patches = tab.eval_on_selector_all(".legend i", "all => all.map(i => getComputedStyle(i).backgroundColor)")
    patches = [patch[4:-1].replace(" ", "") for patch in patches]
    assert len(patches) == 4
    assert all(jobs[patch] > 100 for patch in patches), "every size of job is there"


def test_check_boxes_hide_and_show_lines(open_page):
    tab = open_page()
    before = pixels(tab, "canvas.time")[ORANGE]
    tab.get_by_role("checkbox", name="sjf").uncheck()
    wait_for_drawing(tab)
    assert pixels(tab, "canvas.time")[ORANGE] < before / 20
    tab.get_by_role("checkbox", name="sjf").check()
    wait_for_drawing(tab)
    assert pixels(tab, "canvas.time")[ORANGE] == before


@pytest.mark.parametrize("canvas", ["canvas.time", "canvas.gantt"])
def test_zoom_by_wheel_drag_keys_and_buttons(open_page, canvas):
    tab = open_page()
    chart = tab.locator(canvas)
    chart.scroll_into_view_if_needed()
    whole_view, drawn = view(tab, canvas), pixels(tab, canvas)
    length = whole_view[1] - whole_view[0]

    chart.hover(position={"x": 600, "y": 200})
    tab.mouse.wheel(0, -200)
    low, high = view(tab, canvas)
    assert high - low < 0.8 * length
    assert pixels(tab, canvas) != drawn, "another part is drawn"
    tab.mouse.wheel(0, 200)
    assert view(tab, canvas) == pytest.approx(whole_view)

    box = chart.bounding_box()
    tab.mouse.move(box["x"] + 400, box["y"] + 150)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 600, box["y"] + 170, steps=4)
    tab.mouse.up()
    low, high = view(tab, canvas)
    plot = chart.evaluate("canvas => canvas.chart.box()")
    start = whole_view[0] + (400 - plot["left"]) / plot["width"] * length
    assert low == pytest.approx(start, rel=0.01, abs=0.01 * length)
    assert high - low == pytest.approx(200 / plot["width"] * length, rel=0.05)

    chart.press("0")
    assert view(tab, canvas) == pytest.approx(whole_view)
    chart.press("+")
    low, high = view(tab, canvas)
    assert high - low == pytest.approx(length / 2)
    chart.press("ArrowLeft")
    assert view(tab, canvas)[0] == pytest.approx(low - length / 8)
    chart.press("-")
    assert view(tab, canvas) == pytest.approx(whole_view)

    figure = tab.locator("figure").filter(has=chart)
    figure.get_by_role("button", name="Zoom in").click()
    figure.get_by_role("button", name="Later").click()
    low, high = view(tab, canvas)
    assert (low, high) == pytest.approx((whole_view[0] + 3 * length / 8, whole_view[1] - length / 8))
    figure.get_by_role("button", name="All", exact=True).click()
    assert view(tab, canvas) == pytest.approx(whole_view)
    assert pixels(tab, canvas).keys() >= {colour for colour, count in drawn.items() if count > 300}


def test_wheel_scrolls_the_page_when_fully_zoomed_out(open_page):
    tab = open_page()
    tab.locator("canvas.gantt").hover(position={"x": 600, "y": 200})
    before = tab.evaluate("scrollY")
    tab.mouse.wheel(0, 120)
    tab.wait_for_timeout(300)
    assert tab.evaluate("scrollY") > before


def test_touch_pinch_and_tap(open_page):
    tab = open_page(has_touch=True, viewport={"width": 360, "height": 740})
    chart = tab.locator("canvas.gantt")
    chart.scroll_into_view_if_needed()
    length = view(tab)[1] - view(tab)[0]
    box = chart.bounding_box()
    fingers = tab.context.new_cdp_session(tab)

    def touch(kind, *xs):
        points = [{"x": box["x"] + x, "y": box["y"] + 100, "id": place} for place, x in enumerate(xs)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 180, 220)
    for offset in (10, 30, 50):
        touch("touchMove", 180 - offset, 220 + offset)
    touch("touchEnd")
    low, high = view(tab)
    assert high - low < 0.5 * length
    tab.touchscreen.tap(box["x"] + 200, box["y"] + 120)
    assert "job" in tab.locator("#gantt-0 output").inner_text()


def move_mouse_to(tab, log, gantt_rows, piece):
    """Zoom to a rectangle and move the mouse onto it."""
    segment = int(gantt_rows.segment[piece])
    zero = float(log.jobs_table["submit_s"].min())
    start, end = log.start_s[segment] - zero, log.end_s[segment] - zero
    chart = tab.locator("canvas.gantt")
    chart.evaluate(
        "(canvas, [from, to]) => { canvas.chart.view.x.set(from, to); canvas.chart.draw(); }",
        [start - 2 * (end - start), end + 2 * (end - start)],
    )
    low, high = view(tab)
    plot = chart.evaluate("canvas => canvas.chart.box()")
    x = plot["left"] + ((start + end) / 2 - low) / (high - low) * plot["width"]
    middle = gantt_rows.first[piece] + gantt_rows.count[piece] / 2
    y = plot["top"] + plot["height"] * (1 - middle / gantt_rows.rows)
    chart.hover(position={"x": x, "y": y})
    wait_for_drawing(tab)
    return segment


def readout(tab):
    """The values of the read-out, by name."""
    names = ("job", "user", "nodes", "submitted", "waited", "started", "ran", "bounded slowdown")
    items = tab.locator("#gantt-0 output span").all_inner_texts()
    return {name: item.removeprefix(f"{name} ") for name, item in zip(names, items, strict=True)}


@pytest.mark.parametrize("policy", [0, 2])
def test_readout_shows_the_job_under_the_mouse(open_page, small_comparison, policy):
    comparison = small_comparison[0]
    log = ComparisonData(comparison, 0).log(policy)
    rows = assign_rows(log)
    tab = open_page()
    tab.get_by_label("Schedule").select_option(label=comparison.labels[policy])
    tab.wait_for_timeout(100)
    records, job_measures = log.jobs(), started_jobs(log, 10.0)
    run_s = log.end_s - log.start_s
    pieces = [p for p in range(len(rows.first)) if run_s[rows.segment[p]] > 600]
    for piece in pieces[:: len(pieces) // 6]:
        segment = move_mouse_to(tab, log, rows, piece)
        job = int(log.job[segment])
        values = readout(tab)
        assert values["job"] == str(log.jobs_table["job_id"][job])
        assert values["user"] == log.jobs_table.labels["user"][log.jobs_table["user"][job]]
        assert values["nodes"] == str(log.jobs_table["nodes"][job])
        assert values["ran"] == format_duration(run_s[segment])
        assert values["waited"] in {format_duration(abs(records["wait_s"][job] + off)) for off in (-0.01, 0, 0.01)}
        bsld = float(job_measures.bsld[np.flatnonzero(job_measures.row == job)[0]])
        assert float(values["bounded slowdown"].replace(",", "")) == pytest.approx(bsld, rel=0.006)
        assert "1996" in values["submitted"]


def test_keys_select_jobs(open_page, small_comparison):
    log = ComparisonData(small_comparison[0], 0).log(0)
    tab = open_page()
    chart = tab.locator("canvas.gantt")
    chart.focus()
    ids = log.jobs_table["job_id"][log.job]
    for expected in ids[:3].tolist():
        chart.press("n")
        assert readout(tab)["job"] == str(expected)
    chart.press("p")
    assert readout(tab)["job"] == str(ids[1])
    tab.locator("canvas.time").press("n")
    assert "jobs waiting for" in tab.locator("#time-0 output").inner_text()


def test_colours_by_size_user_and_wait(open_page):
    tab = open_page()
    drawn_pixels = []
    for by in ("by size", "by user", "by wait"):
        tab.get_by_label("Colour").select_option(label=by)
        wait_for_drawing(tab)
        drawn_pixels.append((tab.locator("#gantt-0 .legend").inner_text(), pixels(tab, "canvas.gantt")))
    assert "1 node" in drawn_pixels[0][0]
    assert "ada" in drawn_pixels[1][0]
    assert NASTY in drawn_pixels[1][0]
    assert "under 1 min" in drawn_pixels[2][0]
    assert drawn_pixels[0][1] != drawn_pixels[1][1] != drawn_pixels[2][1]


def test_vertical_zoom(open_page):
    tab = open_page()
    chart = tab.locator("canvas.gantt")
    chart.press("]")
    wait_for_drawing(tab)
    rows = chart.evaluate("canvas => [canvas.chart.view.y.lo, canvas.chart.view.y.hi]")
    assert rows == [8, 24]
    chart.press("ArrowUp")
    wait_for_drawing(tab)
    assert chart.evaluate("canvas => canvas.chart.view.y.hi") == 28


def test_light_and_dark(open_page):
    background_color = "() => getComputedStyle(document.body).backgroundColor"
    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    assert light.evaluate(background_color) == "rgb(255, 255, 255)"
    assert dark.evaluate(background_color) == "rgb(15, 20, 25)"
    assert pixels(dark, "canvas.time")[BLUE] == 0, "lines are lighter on a dark page"
    button = dark.get_by_role("button", name="Light")
    button.click()
    wait_for_drawing(dark)
    assert dark.evaluate(background_color) == "rgb(255, 255, 255)"
    assert pixels(dark, "canvas.time")[BLUE] > 200


def test_phone_page_does_not_scroll_horizontally(open_page):
    tab = open_page(viewport={"width": 360, "height": 740}, device_scale_factor=2, is_mobile=True)
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert tab.evaluate("() => [...document.querySelectorAll('canvas')].every(c => c.clientWidth <= 360)")
    table = tab.locator("div.scroll:has(table)").first
    assert table.evaluate("box => box.scrollWidth > box.clientWidth"), "tables scroll in their box"


def test_keyboard_reaches_all_controls(open_page):
    tab = open_page()
    reached = []
    for _ in range(60):
        tab.keyboard.press("Tab")
        name = "() => { const a = document.activeElement; return a.className || a.id || a.tagName; }"
        reached.append(tab.evaluate(name))
        if reached[-1] == "gantt":
            break
    assert reached[0] == "skip"
    assert reached.index("time") < reached.index("gantt")
    outline = "() => getComputedStyle(document.activeElement).outlineStyle"
    assert tab.evaluate(outline) == "solid", "what has the focus shows it"


def test_text_and_tables_need_no_script(browser, small_comparison):
    context = browser.new_context(java_script_enabled=False, offline=True)
    tab = context.new_page()
    tab.goto(small_comparison[1].as_uri())
    assert tab.get_by_text("requires JavaScript").first.is_visible()
    assert tab.locator("table").count() > 4
    assert not tab.locator("#scheme").is_visible()
    context.close()


# -- energy and outages ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def energy_page(energy_run, tmp_path_factory):
    """The page on power controls, with energy."""
    path = tmp_path_factory.mktemp("page") / "energy.html"
    path.write_text(page([energy_run]), encoding="utf-8")
    return path


BACKGROUND = "228,232,236"
POWER = "canvas.power"


def test_power_is_drawn_with_a_background_signal(open_page, energy_page):
    tab = open_page(energy_page)
    drawn_pixels = pixels(tab, POWER)
    assert all(drawn_pixels[tint] > 200 for tint in (BLUE, ORANGE, GREEN)), "every line is there"
    assert drawn_pixels[BACKGROUND] > 10_000, "the carbon intensity"
    tab.get_by_role("combobox", name="Background").select_option(label="price")
    wait_for_drawing(tab)
    priced = pixels(tab, POWER)[BACKGROUND]
    assert 1000 < priced != drawn_pixels[BACKGROUND]
    tab.get_by_role("combobox", name="Background").select_option(label="none")
    wait_for_drawing(tab)
    without_background = pixels(tab, POWER)
    assert without_background[BACKGROUND] == 0
    tab.get_by_label("Power of").select_option(label="the nodes")
    wait_for_drawing(tab)
    assert pixels(tab, POWER) != without_background
    tab.locator("#power-0").get_by_role("checkbox", name="fcfs, sleep=break-even").uncheck()
    wait_for_drawing(tab)
    assert pixels(tab, POWER)[ORANGE] < without_background[ORANGE] / 20


def test_backlog_and_power_zoom_together(open_page, energy_page):
    tab = open_page(energy_page)
    tab.wait_for_function(
        "() => document.querySelector('canvas.power').chart.view.x === "
        "document.querySelector('canvas.time').chart.view.x"
    )
    whole_view = view(tab, "canvas.time")
    drawn = pixels(tab, "canvas.time"), pixels(tab, POWER)
    tab.locator(POWER).press("+")
    assert view(tab, "canvas.time") == view(tab, POWER) != whole_view
    after = pixels(tab, "canvas.time"), pixels(tab, POWER)
    assert all(before != now for before, now in zip(drawn, after, strict=True)), "both are drawn anew"
    tab.locator("canvas.time").press("0")
    assert view(tab, POWER) == whole_view
    assert pixels(tab, POWER) == drawn[1]


def test_readout_shows_power(open_page, energy_page, energy_run):
    tab = open_page(energy_page)
    chart = tab.locator(POWER)
    chart.focus()
    chart.press("n")
    values = tab.locator("#power-0 output span").all_inner_texts()
    assert values[1].startswith("carbon intensity ")
    assert values[2].endswith(" EUR/MWh")
    at = chart.evaluate("canvas => canvas.chart.at + canvas.chart.setup.zero")
    for label, curve, words in zip(energy_run.labels, energy_run.energy.curves, values[3:], strict=True):
        place = np.searchsorted(curve.edge_s, at, side="right") - 1
        facility, nodes = words.removeprefix(f"{label} ").split(", nodes ")
        assert float(facility.removesuffix(" kW")) == pytest.approx(curve.facility_w[place] / 1e3, rel=0.006)
        assert float(nodes.removesuffix(" kW")) == pytest.approx(curve.it_w[place] / 1e3, rel=0.006)


def test_energy_on_a_dark_page_and_a_phone(open_page, energy_page):
    dark = open_page(energy_page, color_scheme="dark")
    assert pixels(dark, POWER)[BACKGROUND] == 0
    assert pixels(dark, POWER)["38,47,56"] > 10_000
    phone = open_page(energy_page, viewport={"width": 360, "height": 740}, device_scale_factor=2, is_mobile=True)
    assert phone.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert phone.locator(POWER).evaluate("canvas => canvas.clientWidth") <= 360


def test_outages_are_hatched(open_page, tmp_path):
    jobs = jobs_of(60)
    path = tmp_path / "out.html"
    text = page([comparison_of(jobs, ("fcfs",), cluster=cluster_with_outage(float(jobs["submit_s"].max())))])
    assert "the number of nodes that were unavailable" in text
    path.write_text(text, encoding="utf-8")
    tab = open_page(path)
    chart = tab.locator("canvas.gantt")
    drawn = pixels(tab, "canvas.gantt")
    chart.evaluate("canvas => { canvas.chart.setup.outages = []; canvas.chart.draw(); }")
    well = "243,245,247"
    assert pixels(tab, "canvas.gantt")[well] > drawn[well] + 5000


REDRAWS = """canvas => {
  const { view } = canvas.chart, whole = view.x.to - view.x.from, medians = {};
  for (const part of [1, 0.3, 0.1, 0.03, 0.01, 0.001]) {
    view.x.set(view.x.from + 0.4 * whole, view.x.from + (0.4 + part) * whole);
    const times = [];
    for (let i = 0; i < 7; i++) {
      const began = performance.now();
      canvas.chart.draw();
      canvas.getContext('2d').getImageData(0, 0, 1, 1); // until it is really drawn
      times.push(performance.now() - began);
    }
    medians[part] = [times.sort((a, b) => a - b)[3], canvas.chart.drawn.rectangles];
  }
  return medians;
}"""


@pytest.mark.slow
def test_redrawing_of_100_000_jobs_is_fast(open_page, tmp_path):
    jobs = kw.lublin(100_000, 256, load=0.95, seed=0, estimates="rounded")
    cluster = kw.Cluster.from_nodes(256)
    names = ("fcfs", "sjf", "saf")
    logs = [kw.simulate(jobs, cluster, name, "easy") for name in names]
    policies = tuple(PolicyConfig(name, "easy") for name in names)
    comparison = Comparison("many", 256, single_window(jobs), policies, lambda policy, _: logs[policy])
    path = tmp_path / "many.html"
    path.write_text(page([comparison]), encoding="utf-8")
    assert path.stat().st_size < 15e6
    tab = open_page(path)
    assert len(pixels(tab, "canvas.gantt")) > 1000
    medians = tab.locator("canvas.gantt").evaluate(REDRAWS)
    assert medians["1"][1] > 100_000, "all of them are drawn"
    assert max(milliseconds for milliseconds, _ in medians.values()) < 200, medians


# -- filter of the jobs ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queued_page(tmp_path_factory):
    """A comparison of jobs with two queues, and its page."""
    jobs = jobs_of(dated=True)
    columns = {name: jobs[name] for name in jobs.columns}
    queue = [int(nodes > 4) for nodes in jobs["nodes"]]
    labels = {**jobs.labels, "queue": ("small", "large")}
    comparison = comparison_of(JobTable(**columns, queue=queue, labels=labels, meta=jobs.meta))
    path = tmp_path_factory.mktemp("page") / "queues.html"
    path.write_text(page([comparison]), encoding="utf-8")
    return comparison, path


def filtered(tab, rows=3):
    """The table of the chosen jobs: cells by policy."""
    wait_for_drawing(tab)
    tab.wait_for_function(f"() => document.querySelectorAll('.filtered tbody tr').length === {rows}")
    lines = tab.locator(".filtered tbody tr").all()
    return {line.locator("th").inner_text(): line.locator("td").all_inner_texts() for line in lines}


def expected_row(log, chosen):
    wait_s = log.jobs()["wait_s"][chosen]
    bsld = started_jobs(log, 10.0, chosen).bsld.mean()
    waits = [format_duration(value) for value in (wait_s.mean(), np.percentile(wait_s, 99), wait_s.max())]
    return [f"{chosen.sum():,}", *waits], bsld


@pytest.mark.parametrize("by", ["user", "queue", "date"])
def test_filter_shows_the_waits_of_the_chosen_jobs(open_page, queued_page, by):
    comparison, path = queued_page
    tab = open_page(path)
    assert not tab.locator(".filtered").is_visible()
    table = comparison.windows[0].jobs
    day = np.floor((table["submit_s"] + 843_000_000) / 86400)
    if by == "user":
        tab.locator("[data-filter=user]").select_option(value="2")
        chosen = table["user"] == 2
    elif by == "queue":
        tab.locator("[data-filter=queue]").select_option(value="1")
        chosen = table["queue"] == 1
    else:
        first = tab.locator("[data-filter=from]").get_attribute("min")
        assert first == str(np.datetime64(int(day[0]), "D"))
        date = str(np.datetime64(int(day[0]) + 1, "D"))
        tab.locator("[data-filter=from]").fill(date)
        tab.locator("[data-filter=to]").fill(date)
        tab.locator("[data-filter=to]").dispatch_event("change")
        chosen = day == day[0] + 1
    shown = filtered(tab)
    for number, label in enumerate(comparison.labels):
        cells, bsld = expected_row(comparison.logs(number, 0), chosen)
        assert shown[label][:4] == cells
        assert float(shown[label][4].replace(",", "")) == pytest.approx(bsld, rel=0.006)
    tab.get_by_role("button", name="Clear the filter").click()
    wait_for_drawing(tab)
    assert not tab.locator(".filtered").is_visible()


def test_filter_fades_the_other_jobs(open_page, queued_page):
    tab = open_page(queued_page[1])
    whole = pixels(tab, "canvas.gantt")
    tab.locator("[data-filter=user]").select_option(value="1")
    wait_for_drawing(tab)
    patches = tab.eval_on_selector_all(".legend i", "all => all.map(i => getComputedStyle(i).backgroundColor)")
    colours = [patch[4:-1].replace(" ", "") for patch in patches]
    after = pixels(tab, "canvas.gantt")
    assert 0 < sum(after[colour] for colour in colours) < 0.6 * sum(whole[colour] for colour in colours)


# -- phones ------------------------------------------------------------------------------------------

PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True}
COLUMNS = """box => {
  const { right } = box.getBoundingClientRect();
  const cells = [...box.querySelectorAll('tbody tr:first-child td')];
  return cells.filter((cell) => cell.getBoundingClientRect().right <= right).length;
}"""


def test_main_table_shows_numbers_beside_long_names_on_a_phone(open_page, tmp_path):
    comparison = comparison_of(jobs_of(120), ("fcfs", "saf"))
    policies = tuple(replace(c, name=f"{c.policy}, sleep=break-even+dvfs=1.1") for c in comparison.policies)
    path = tmp_path / "long.html"
    path.write_text(page([replace(comparison, policies=policies)]), encoding="utf-8")
    tab = open_page(path, **PHONE)
    table = tab.locator("div.scroll:has(table)").first
    assert table.evaluate(COLUMNS) >= 2, "at least two numbers are beside the name"
    shade = table.evaluate("box => getComputedStyle(box).backgroundAttachment")
    assert shade == "local, local, scroll, scroll", "a shadow shows that the table goes on"
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_rows_with_perfect_estimates_are_folded(open_page, tmp_path):
    comparison = comparison_of(jobs_of(120), ("fcfs", "fcfs"), kinds=["rule", "clairvoyant"])
    path = tmp_path / "folded.html"
    path.write_text(page([comparison]), encoding="utf-8")
    tab = open_page(path)
    row = tab.locator("tr.folded")
    assert not row.is_visible()
    tab.get_by_label("Show 1 row with perfect estimates").check()
    assert row.is_visible()
