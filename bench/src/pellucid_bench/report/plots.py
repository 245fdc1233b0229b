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
    reason,
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
    "other": "#a3abb8",
    "reference": "#d9dde3",
    "failed": "#a8232c",
}
FAINT = "#c9ced6"
INK = "#1c1f24"
MUTED = "#59616d"
# Curves differ in colour, dash and mark. Two of them have the same three after 35 curves, since the counts of
# colours and marks have no common factor. Eyes that see no difference of red and green tell the colours apart
# by their brightness. None is blue, which is ours, or orange, which is a bar that is better than ours.
LINES = ("#00785a", "#b04a90", "#6b3f16", "#8a8f00", "#2b2b2b")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))
MARKS = ("o", "s", "^", "D", "v", "P", "X")
CURVE_SIZES_MIN = 3
LINEAR_RATIO_MAX = 40
"""Above this ratio of the largest to the smallest figure, the scale is logarithmic."""
FEW_DECADES = 30
"""Below this ratio of its ends, a logarithmic axis has ticks at 2 and 5, too."""
WIDTH = 9.0
ROW = 0.24
AROUND = 0.95
"""Inches of a panel for its title and the texts of its axis."""
LABEL = 0.165
"""Inches from one name of a curve to the next."""
LEADER: dict[str, Any] = {"color": "#59616d", "linewidth": 0.6, "linestyle": (0, (1, 3)), "zorder": 0.9}
"""What leads the eye and is no figure: thin grey points, which no curve and no interval has."""
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
    key = _key(one, panels)
    footer = 0.17 * sum(line.count("\n") + 1 for line in source) + (0.35 if key else 0.1)
    height = sum(heights) + footer
    canvas = Canvas(figsize=(WIDTH, height))
    canvas.set_layout_engine("constrained", rect=(0, footer / height, 1, 1 - footer / height))
    grid = canvas.subplots(len(panels), 1, height_ratios=heights, squeeze=False)
    for (figure, run), axes in zip(panels, grid[:, 0], strict=True):
        _panel(one, figure, run, axes)
    canvas.text(0.01, 0.05 / height, "\n".join(source), color=MUTED, fontsize=7.5, va="bottom")
    if key:
        place = (0.005, (footer - 0.3) / height)
        drawn = canvas.legend(
            handles=key, loc="lower left", bbox_to_anchor=place, ncols=len(key), fontsize=7.5, frameon=False
        )
        drawn.set_in_layout(False)
    return _saved(canvas, suffix)


def _key(one: Experiment, panels: Sequence[tuple[Figure, int]]) -> list[Any]:
    """Return what the colours mean, of those that are there: of bars and dots, and of curves."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    flat = [(figure, run) for figure, run in panels if not _is_curve(figure)]
    rows = [row for figure, run in flat for row in _rows(one, figure, run)]
    roles = {"slower" if row.role == "other" else row.role for row in rows}
    names = {
        "ours": "pellucid",
        "slower": "another library",
        "faster": "another library, better than pellucid",
        "reference": "for orientation",
    }
    key: list[Any] = [Patch(color=COLORS[role], label=name) for role, name in names.items() if role in roles]
    if any(row.result.interval for row in rows):
        key.append(Line2D([], [], color=INK, linewidth=1, label="95 % interval"))
    if any(row.result.unstable for row in rows):
        key.append(Line2D([], [], linestyle="", label="\u2248 unstable"))
    curves = [row for figure, run in panels if _is_curve(figure) for row in _rows(one, figure, run)]
    if curves and rows:
        # Each curve has its name at its end.
        key.append(Line2D([], [], color=COLORS["ours"], linewidth=2.6, label="a curve of pellucid"))
    return key


def _saved(canvas: Canvas, suffix: str) -> bytes:
    image = io.BytesIO()
    # The time would make every image another one.
    metadata: dict[str, Any] = {"Date": None} if suffix == "svg" else {"Software": None}
    canvas.savefig(image, format=suffix, dpi=160, metadata=metadata)
    return _with_numbered_ids(image.getvalue()) if suffix == "svg" else image.getvalue()


def _with_numbered_ids(svg: bytes) -> bytes:
    """Number the ids that Matplotlib hashes from places, whose last bits may differ from run to run."""
    hashed = dict.fromkeys(re.findall(rb'\bid="([a-zA-Z][0-9a-f]{10})"', svg))
    numbers = {name: b"i%d" % number for number, name in enumerate(hashed)}
    return re.sub(rb"\b[a-zA-Z][0-9a-f]{10}\b", lambda found: numbers.get(found[0], found[0]), svg)


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
        return max(3.4, AROUND + 0.05 + LABEL * len(_names(_rows(one, figure, run))[0]))
    return AROUND + ROW * max(1, len(_rows(one, figure, run)))


def _panel(one: Experiment, figure: Figure, run: int, axes: Axes) -> None:
    rows = _rows(one, figure, run)
    labels = f" ({', '.join(figure.labels_beside)})" if figure.labels_beside else ""
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
    medians = [row.median for row in rows if row.median is not None]
    ends = [end for row in rows for end in row.result.interval or ()]
    positive = [median for median in medians if median > 0]
    is_log = bool(positive) and min(medians) >= 0 and max(positive) / min(positive) > LINEAR_RATIO_MAX
    low, high = min([0.0, *medians, *ends]), max([0.0, *medians, *ends])
    if is_log:
        axes.set_xscale("log")
        axes.set_xlim(min(positive) / 1.6, high * 1.3)
    elif low < high:
        room = (high - low) * 0.02
        axes.set_xlim(low - room if low < 0 else 0, high + room)
        if low < 0:
            axes.axvline(0, color=MUTED, linewidth=0.8)
    for place, row in enumerate(rows):
        _bar(figure, row, place, axes, is_log=is_log)
    axes.set_yticks(range(len(rows)), [_literal(_short(row.name)) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#e6e8ec")
    axes.set_axisbelow(True)
    _ticks(axes.xaxis, figure.unit, is_log=is_log)
    if low == high:
        axes.set_xticks([])
    else:
        axes.set_xlabel(_literal(figure.axis), color=MUTED, fontsize=8, loc="left")


def _bar(figure: Figure, row: Row, place: int, axes: Axes, *, is_log: bool) -> None:
    median, color = row.median, COLORS[row.role]
    edge: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8}
    if median is None:
        text = _literal(_short(reason(row.result), 70))
        axes.text(0.01, place, text, color=color, style="italic", **edge)
        return
    if is_log and median > 0:
        # The length of a bar means nothing on a logarithmic scale: a dot says where the figure is. Grey
        # points lead the eye to it: a line would look like a bar, or like an interval.
        axes.plot([axes.get_xlim()[0], median], [place, place], **LEADER)
        axes.plot([median], [place], "o", color=color, markersize=5.5)
    elif not is_log:
        axes.barh(place, median, height=0.66, color=color)
    if row.result.interval:
        low, high = row.result.interval
        if low > 0 or not is_log:
            axes.plot([low, high], [place, place], color=INK, linewidth=1)
    mark = "\u2248 " if row.result.unstable else ""
    axes.text(1.01, place, _literal(mark + units.figure(median, figure.unit)), **edge)


def _names(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Return the contenders that have figures: those whose curves have a colour, and the others."""
    colored = shown_in_color(rows)
    rest = dict.fromkeys(row.name for row in rows if row.median is not None and row.name not in colored)
    return colored, list(rest)


def _curves(one: Experiment, figure: Figure, rows: list[Row], axes: Axes) -> None:
    colored, rest = _names(rows)
    curves = {
        name: [
            (figure.sizes[row.variant] or 0.0, row.median)
            for row in rows
            if row.name == name and row.median is not None
        ]
        for name in [*rest, *colored]
    }
    figures = [median for points in curves.values() for _, median in points]
    is_log = bool(figures) and min(figures) > 0
    axes.set_xscale("log")
    axes.set_xticks([size for size in figure.sizes if size], [size_text(size) for size in figure.sizes])
    axes.minorticks_off()
    axes.set_yscale("log" if is_log else "linear")
    styles = _styles(one, colored)
    for name, points in curves.items():
        style = styles.get(name, {"color": FAINT, "linewidth": 0.7, "marker": ".", "zorder": 1})
        axes.plot(*zip(*points, strict=True), markersize=3.5, **style)
    if figures and min(figures) < 0:
        axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.set_xlabel(_literal(figure.size_axis), color=MUTED, fontsize=8)
    axes.set_ylabel(_literal(figure.axis), color=MUTED, fontsize=8)
    axes.grid(color="#e6e8ec")
    axes.set_axisbelow(True)
    _ticks(axes.yaxis, figure.unit, is_log=is_log)
    ends = {name: curves[name][-1] for name in colored}
    room = _height(one, figure, rows[0].run) - AROUND if rows else 1.0
    _name_curves(axes, ends, styles, LABEL / room)
    if rest:
        ways = "1 other way" if len(rest) == 1 else f"{len(rest)} other ways"
        axes.text(0.995, 0.01, f"grey: {ways}", transform=axes.transAxes, color=MUTED, fontsize=7, ha="right")


def _styles(one: Experiment, colored: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the colour, dash and mark of each curve. Ours are blue, and the first of them is thick."""
    in_order = sorted(colored, key=one.contenders().index)
    ours = [name for name in in_order if name in one.ours()]
    others = [name for name in in_order if name not in ours]
    styles = {}
    for place, name in enumerate(ours):
        width = 1.4 if place else 2.6
        styles[name] = {"color": COLORS["ours"], "linewidth": width, "zorder": 3}
        styles[name] |= {"linestyle": DASHES[place % len(DASHES)], "marker": MARKS[place % len(MARKS)]}
    for place, name in enumerate(others):
        styles[name] = {"color": LINES[place % len(LINES)], "linewidth": 1.2, "zorder": 2}
        dash = DASHES[place // len(LINES) % len(DASHES)]
        styles[name] |= {"linestyle": dash, "marker": MARKS[place % len(MARKS)]}
    return styles


def _name_curves(
    axes: Axes, ends: dict[str, tuple[float, float]], styles: dict[str, dict[str, Any]], gap: float
) -> None:
    """Write the name of each curve beside its last point, after a piece of the curve as a key.

    Points lead from the edge of the plot to the name. A curve that ends before the edge has no points: they
    would cross the curves that go on to the edge.
    """
    to_axes = axes.transScale + axes.transLimits
    axes.autoscale_view()
    axes.set_xlim(*axes.get_xlim())
    axes.set_ylim(*axes.get_ylim())
    points = {name: to_axes.transform(end) for name, end in ends.items()}
    last = max((x for x, _ in points.values()), default=0.0)
    order = sorted(points, key=lambda name: -points[name][1])
    place: dict[str, Any] = {"clip_on": False, "transform": axes.transAxes}
    for name, height in zip(order, spread([points[name][1] for name in order], gap), strict=True):
        x, y = points[name]
        if x > last - 1e-6:
            axes.plot([x + 0.008, 1.0, 1.025], [y, y, height], **LEADER, **place)
        axes.plot([1.03, 1.05, 1.07], [height] * 3, markevery=[1], markersize=3.5, **styles[name], **place)
        color = styles[name]["color"]
        axes.text(1.078, height, _literal(_short(name)), color=color, fontsize=7.5, va="center", **place)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move heights, which fall, so far apart that texts at them do not overlap, and no further than needed.

    >>> spread([0.9, 0.5, 0.5, 0.1], 0.1)
    [0.9, 0.55, 0.45, 0.1]
    """
    # Those that overlap make a group, which is centred where its members would be.
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _top(groups[-1], gap) > _bottom(groups[-2], gap) - gap + 1e-9:
            last = groups.pop()
            groups[-1] += last
    return [round(_top(group, gap) - place * gap, 6) for group in groups for place in range(len(group))]


def _top(group: Sequence[float], gap: float) -> float:
    """Return the place of the first of a group, which stays within the panel if there is room."""
    half = (len(group) - 1) / 2 * gap
    return min(max(sum(group) / len(group), half), max(1 - half, half)) + half


def _bottom(group: Sequence[float], gap: float) -> float:
    return _top(group, gap) - (len(group) - 1) * gap


def _ticks(axis: Any, unit: Unit, *, is_log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: units.tick(value, unit)))
    if is_log:
        low, high = sorted(axis.get_view_interval())
        # Within few powers of ten, these alone would be one tick or none.
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < FEW_DECADES else (1,)))
        axis.set_minor_formatter(NullFormatter())


def _short(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _literal(text: str) -> str:
    """Return a text in which `$` begins no formula, and that the font can show in one line."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text).replace("$", r"\$")
