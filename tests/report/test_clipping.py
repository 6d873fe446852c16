"""No text of a figure is cut off at the edge of the figure, whatever the names of the policies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kilowait.report import figures as drawing
from kilowait.report import page

LONG_NAME = "of_one_site_with_a_long_name_and_many_settings"


def cut_texts(figure):
    """The texts of a figure that reach beyond its edges."""
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title]
        texts += [] if axes.get_legend() is None else axes.get_legend().get_texts()
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
            texts += [label for at, label in ticks if low <= at <= high]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_visible()]
    edge = figure.bbox
    return [
        text
        for text, box in boxes
        if text.strip() and (box.x0 < -1 or box.y0 < -1 or box.x1 > edge.width + 1 or box.y1 > edge.height + 1)
    ]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that pages draw while the test runs."""
    found, as_svg = [], drawing.as_svg
    monkeypatch.setattr(drawing, "as_svg", lambda figure, prefix: (found.append(figure), as_svg(figure, prefix))[1])
    return found


def test_figures_of_a_comparison(drawn, windowed_comparison):
    page([windowed_comparison])
    assert len(drawn) == 5
    assert [cut_texts(figure) for figure in drawn] == [[]] * 5


def test_figures_of_energy(drawn, energy_run):
    page([energy_run])
    assert [cut_texts(figure) for figure in drawn] == [[]] * len(drawn)


def test_figures_of_policies_with_long_names(drawn, windowed_comparison):
    policies = [replace(config, name=f"{config.policy}_{LONG_NAME}") for config in windowed_comparison.policies]
    page([replace(windowed_comparison, policies=tuple(policies))])
    assert [cut_texts(figure) for figure in drawn] == [[]] * 5
