"""How fast the disk writes pages, by how close to each other they are.

    python tools/page_density.py FOLDER

Writes a file of 4 GiB in FOLDER, and removes it. docs/internals/store.md has figures from it.
"""

import os
import random
import sys
import tempfile
import time

PAGE = 4096
FILE_PAGES = 1 << 20
COUNT = 200_000
AT_ONCE = 16
"""Pages that one call writes, as the store does it."""


def runs_of(pages: list[int]) -> list[tuple[int, int]]:
    """Group ascending pages that follow each other: the first of each group and how many they are."""
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and runs[-1][0] + runs[-1][1] == page and runs[-1][1] < AT_ONCE:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((page, 1))
    return runs


def rate(descriptor: int, pages: list[int]) -> float:
    """Write these pages and sync; return pages a second."""
    content = os.urandom(AT_ONCE * PAGE)
    runs = runs_of(pages)
    started = time.perf_counter()
    for first, count in runs:
        os.pwrite(descriptor, content[: count * PAGE], first * PAGE)
    os.fsync(descriptor)
    return len(pages) / (time.perf_counter() - started)


def main(folder: str) -> None:
    """Measure some densities, and pages at the end of the file."""
    with tempfile.TemporaryFile(dir=folder) as file:
        descriptor = file.fileno()
        content = os.urandom(1 << 20)
        for start in range(0, FILE_PAGES * PAGE, len(content)):
            os.pwrite(descriptor, content, start)
        os.fsync(descriptor)
        for percent in (20, 40, 60, 80, 90, 100):
            length = COUNT * 100 // percent
            start = random.randrange(FILE_PAGES - length + 1)
            pages = sorted(random.sample(range(start, start + length), COUNT))
            print(f"{percent} % of the pages: {rate(descriptor, pages):,.0f} a second")
        end = list(range(FILE_PAGES, FILE_PAGES + COUNT))
        print(f"at the end of the file: {rate(descriptor, end):,.0f} a second")


if __name__ == "__main__":
    main(sys.argv[1])
