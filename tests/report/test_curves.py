"""Lines over a stream: the numbers below the axis can be read."""

from __future__ import annotations

from itertools import pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from prol.report.comparison import Spread
from prol.report.page.plots import Curves, Line
from prol.report.plot import WIDTH


@pytest.mark.parametrize("last", [5, 10, 999, 6_000, 50_000, 1_200_000])
def test_numbers_below_the_axis_do_not_run_together(last: int) -> None:
    places = [last * part / 20 for part in range(1, 21)]
    line = Line("PROL", places, [Spread.of([50.0 + part]) for part in range(20)])
    [plot] = Curves("at-any-time", "Accuracy at any time", "images seen", "accuracy, %", [line]).plots()
    figure = Figure(figsize=(WIDTH, plot.height), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    plot.draw(figure)
    canvas.draw()
    labels = [label for label in figure.axes[0].get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent(canvas.get_renderer()) for label in labels]
    assert len(boxes) >= 3
    for left, right in pairwise(boxes):
        assert right.x0 - left.x1 > 0.5 * left.height, [label.get_text() for label in labels]
