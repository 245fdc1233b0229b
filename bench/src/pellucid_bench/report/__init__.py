"""This package makes the reports of datasets: a page of plots, image files, and the table of the README.

from pellucid_bench.dataset import read
from pellucid_bench.report import table, write

write(read("dict.json"), Path("dict.html"))     # or dict.svg, dict.png
print(table(read("dict.json")[0]))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from pellucid_bench.dataset import Dataset, DatasetError
from pellucid_bench.dataset.files import replace
from pellucid_bench.report.markdown import table
from pellucid_bench.report.page import page
from pellucid_bench.report.plots import draw

__all__ = ["table", "write"]


def write(datasets: Sequence[Dataset], output: Path, only: str = "") -> list[Path]:
    """Write a page (`.html`) or images (`.svg`, `.png`), and return the files that were written.

    A page has all experiments. An image has one: with several experiments, `plots.svg` stands for
    `plots-dict.svg`, `plots-writes.svg` and so on. Measures without `only` in their titles are left out.
    """
    if only:
        datasets = [run for one in datasets if (run := _some(one, only)).measures]
        if not datasets:
            raise DatasetError(f"no measure has {only!r} in its title, so there is nothing to report")
    match output.suffix.lower():
        case ".html" | ".htm":
            replace(output, page(datasets))
            return [output]
        case ".svg" | ".png":
            return draw(datasets, output)
        case suffix:
            raise DatasetError(
                f"cannot write {output}: a report is a file named .html, .svg or .png, not {suffix!r}"
            )


def _some(run: Dataset, only: str) -> Dataset:
    return dataclasses.replace(run, measures=[one for one in run.measures if only in one.title])
