"""This module draws an experiment as an image with Matplotlib, for the README and the documentation.

The image has the largest size of each measure as bars or, where a group has three sizes or more, as a curve.
The same datasets give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid_bench.dataset import DatasetError
from pellucid_bench.dataset.files import replace
from pellucid_bench.report import library, units
from pellucid_bench.report.figures import (
    Experiment,
    Figure,
    Row,
    experiments,
    machine_line,
    shown_in_color,
    size_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from pellucid_bench.dataset import Dataset, Unit

COLORS = {
    "ours": "#0b62b8",
    "slower": "#a3abb8",
    "faster": "#d9730d",
    "reference": "#d9dde3",
    "failed": "#a8232c",
}
FAINT = "#c9ced6"
LINES = ("#c2410c", "#15803d", "#9333ea", "#a16207", "#be185d", "#0f766e", "#57534e")
DASHES = ("-", "--", ":")
CURVE_SIZES_MIN = 3
LINEAR_RATIO_MAX = 40
"""Above this ratio of the largest to the smallest figure, the scale is logarithmic."""
WIDTH = 9.0
ROW = 0.24
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#a3abb8",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "figure.facecolor": "white",
    # Names of marks that are random would make every image another one.
    "svg.hashsalt": "pellucid",
}


def draw(datasets: Sequence[Dataset], output: Path) -> list[Path]:
    """Write an image of each experiment, and return the files."""
    try:
        import matplotlib
    except ImportError as error:
        raise DatasetError(f"images are made with Matplotlib: {library.INSTALL} ({error})") from error
    written = []
    found = experiments(datasets)
    for one in found:
        path = output
        if len(found) > 1:
            path = output.with_name(
                f"{output.stem}-{re.sub(r'[^A-Za-z0-9_-]+', '-', one.name)}{output.suffix}"
            )
        with matplotlib.rc_context(SETTINGS):
            replace(path, _image(one, output.suffix.lower()[1:]))
        written.append(path)
    return written


def _image(one: Experiment, suffix: str) -> bytes:
    from matplotlib.figure import Figure as Canvas

    panels = [(figure, run) for figure in one.figures for run in sorted({run for run, _ in figure.measures})]
    if not panels:
        raise DatasetError(f"{one.name} has no measure, so there is nothing to draw")
    heights = [_height(one, figure, run) for figure, run in panels]
    source = [_source(one, run) for run in range(len(one.runs))]
    footer = 0.17 * sum(line.count("\n") + 1 for line in source) + 0.1
    height = sum(heights) + footer
    canvas = Canvas(figsize=(WIDTH, height))
    canvas.set_layout_engine("constrained", rect=(0, footer / height, 1, 1 - footer / height))
    grid = canvas.subplots(len(panels), 1, height_ratios=heights, squeeze=False)
    for (figure, run), axes in zip(panels, grid[:, 0], strict=True):
        _panel(one, figure, run, axes)
    canvas.text(0.01, 0.05 / height, "\n".join(source), color="#59616d", fontsize=7.5, va="bottom")
    return _saved(canvas, suffix)


def _saved(canvas: Canvas, suffix: str) -> bytes:
    image = io.BytesIO()
    # The time would make every image another one.
    metadata: dict[str, Any] = {"Date": None} if suffix == "svg" else {"Software": None}
    canvas.savefig(image, format=suffix, dpi=160, metadata=metadata)
    return image.getvalue()


def _source(one: Experiment, run: int) -> str:
    import textwrap

    letter = one.name_of_run(run)
    dataset = one.runs[run]
    text = f"{letter + ': ' if letter else ''}{dataset.command} on {machine_line(dataset)}"
    if dataset.quick:
        text += " (the shortest run: these figures mean nothing)"
    if dataset.missing:
        text += f". Not measured: {', '.join(dataset.missing)}"
    return _literal("\n".join(textwrap.wrap(text, 150)))


def _is_curve(figure: Figure) -> bool:
    return len(figure.sizes) >= CURVE_SIZES_MIN and all(
        size is not None and size > 0 for size in figure.sizes
    )


def _rows(one: Experiment, figure: Figure, run: int) -> list[Row]:
    """Return the results of a panel: all sizes of a curve, or the largest size that the run has.

    A library that is not installed is in the line below the panels, and not in each of them.
    """
    rows = [row for row in figure.rows() if row.run == run]
    rows = [row for row in rows if row.median is not None or row.name not in one.runs[run].missing]
    last = max((row.variant for row in rows), default=0)
    return rows if _is_curve(figure) else [row for row in rows if row.variant == last]


def _height(one: Experiment, figure: Figure, run: int) -> float:
    if _is_curve(figure):
        return max(3.2, 0.75 + 0.17 * len(shown_in_color(_rows(one, figure, run))))
    return 0.75 + ROW * max(1, len(_rows(one, figure, run)))


def _panel(one: Experiment, figure: Figure, run: int, axes: Axes) -> None:
    rows = _rows(one, figure, run)
    labels = f" ({', '.join(figure.labels)})" if figure.labels else ""
    letter = one.name_of_run(run)
    # Of several sizes, one is shown if they are not a curve: its title has it.
    title = figure.title if _is_curve(figure) or not rows else figure.measures[run, rows[0].variant].title
    parts = [title + labels, f"run {letter}" if letter else ""]
    axes.set_title(_literal(_short(", ".join(part for part in parts if part), 90)))
    if _is_curve(figure):
        _curves(one, figure, rows, axes)
    else:
        _bars(figure, rows, axes)


def _bars(figure: Figure, rows: list[Row], axes: Axes) -> None:
    positive = [row.median for row in rows if row.median]
    is_log = bool(positive) and max(positive) / min(positive) > LINEAR_RATIO_MAX
    if is_log:
        axes.set_xscale("log")
        axes.set_xlim(min(positive) / 1.6, max(positive) * 1.3)
    elif positive:
        axes.set_xlim(0, max(positive) * 1.02)
    for place, row in enumerate(rows):
        _bar(figure, row, place, axes, is_log=is_log)
    axes.set_yticks(range(len(rows)), [_literal(_short(row.name)) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#e6e8ec")
    axes.set_axisbelow(True)
    _ticks(axes.xaxis, figure.unit, is_log=is_log)
    if not positive:
        axes.set_xticks([])


def _bar(figure: Figure, row: Row, place: int, axes: Axes, *, is_log: bool) -> None:
    median, color = row.median, COLORS[row.role]
    edge: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8}
    if median is None:
        text = _literal(_short(row.result.error or "it has no figure", 70))
        axes.text(0.01, place, text, color=color, style="italic", **edge)
        return
    if is_log and median > 0:
        # The length of a bar means nothing on a logarithmic scale: a dot says where the figure is.
        axes.plot([axes.get_xlim()[0], median], [place, place], color=color, linewidth=0.8, alpha=0.6)
        axes.plot([median], [place], "o", color=color, markersize=5.5)
    elif not is_log:
        axes.barh(place, median, height=0.66, color=color)
    if row.result.interval:
        low, high = row.result.interval
        if low > 0 or not is_log:
            axes.plot([low, high], [place, place], color="#1c1f24", linewidth=1)
    mark = "\u2248 " if row.result.unstable else ""
    axes.text(1.01, place, _literal(mark + units.figure(median, figure.unit)), **edge)


def _curves(one: Experiment, figure: Figure, rows: list[Row], axes: Axes) -> None:
    colored = shown_in_color(rows)
    ours_here = {row.name for row in rows if row.result.ours}
    ours = [name for name in one.contenders() if name in ours_here]
    libraries = one.libraries()
    places = {library: place for place, library in enumerate(dict.fromkeys(libraries.values()))}
    names = [*colored, *dict.fromkeys(row.name for row in rows if row.median and row.name not in colored)]
    for name in names:
        points = [(figure.sizes[row.variant], row.median) for row in rows if row.name == name and row.median]
        style: dict[str, Any] = {"color": FAINT, "linewidth": 0.7, "zorder": 1}
        if name in ours:
            place = ours.index(name)
            style = {"color": COLORS["ours"], "linewidth": 1.5 if place else 2.6, "zorder": 3}
            style["linestyle"] = DASHES[place % len(DASHES)]
        elif name in colored:
            place = places[libraries[name]]
            style = {"color": LINES[place % len(LINES)], "linewidth": 1.3, "zorder": 2}
            style["linestyle"] = DASHES[place // len(LINES) % len(DASHES)]
        label = _literal(_short(name)) if name in colored else None
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label, **style)
    if len(names) > len(colored):
        axes.plot([], [], color=FAINT, linewidth=0.7, label=f"{len(names) - len(colored)} other ways")
    axes.set_xscale("log")
    axes.set_xticks([size for size in figure.sizes if size], [size_text(size) for size in figure.sizes])
    axes.minorticks_off()
    if names:
        axes.set_yscale("log")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=7.5)
    axes.grid(color="#e6e8ec")
    _ticks(axes.yaxis, figure.unit, is_log=True)


def _ticks(axis: Any, unit: Unit, *, is_log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: units.tick(value, unit)))
    if is_log:
        axis.set_minor_formatter(NullFormatter())


def _short(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _literal(text: str) -> str:
    """Return a text in which `$` begins no formula, and that the font can show in one line."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text).replace("$", r"\$")
