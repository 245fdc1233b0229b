"""This module prints the results of the tour, in a terminal or into a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pellucid.demo.library import Record, source_files
from pellucid.demo.lookups import TIMES, Found
from pellucid.demo.tour import ARGUMENTS_MANY, ROUNDS, Asked, Changed, Read, Stored, Timing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TEXT_WIDTH = 60


@contextmanager
def progress(console: Console, limit: int | None) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar over files (with a limit, over definitions). In a pipe, show no bar."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("[bold]reading and storing"),
        BarColumn(),
        TextColumn("{task.fields[found]:>7,} definitions"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[module]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=limit or len(source_files()), found=0, module="")

        def on_file(module: str, files: int, found: int) -> None:
            bar.update(task, completed=found if limit else files, found=found, module=module[:30])

        yield on_file


def stored(console: Console, python: str, result: Stored) -> None:
    """Print what was stored."""
    console.print(
        f"[bold]1. Stored[/] {result.storing.count:,} definitions of {python}'s library: "
        + ", ".join(f"{count:,} {_plural(kind)}" for kind, count in result.kinds.most_common())
    )
    table = _table()
    table.add_row("source read", f"{result.files:,} files, {result.source_size / 1e6:.1f} MB")
    table.add_row("different lists of fields", f"{result.shapes:,}")
    table.add_row("parsed by ast", _rate(result.parsing, "definitions"))
    table.add_row("stored by pellucid", _rate(result.storing, "records"))
    if result.not_python:
        table.add_row("files that are not Python", f"{len(result.not_python)} (on purpose, to test parsers)")
    console.print(table)


def read(console: Console, result: Read) -> None:
    """Print the results of reading."""
    per_row = result.file_size / result.rows
    console.print(
        f"[bold]2. Closed and opened again[/] in {_time(result.opening.seconds)}: one file of "
        f"{result.file_size / 1e6:.1f} MB, {per_row:,.0f} bytes for a record"
    )
    console.print(
        "   [dim]The file was written just now, so the system has it in memory. Each figure is from the "
        "first run, unless stated otherwise.[/]"
    )
    console.print(f"[bold]3. One record[/], [cyan]table{list(result.example_key)!r}[/]:")
    console.print(_record_table(result.example))
    table = _table()
    table.add_row("record.size", f"{_time(result.field_at_hand.each)}, reads only this field")
    table.add_row(
        'record.to_dict()\\["size"]', f"{_time(result.whole_at_hand.each)}, decodes the whole record"
    )
    table.add_row("table\\[key].size", f"{_time(result.one_field.each)}, also looks up the key")
    table.add_row('table\\[key].to_dict()\\["size"]', f"{_time(result.whole_record.each)}, likewise")
    table.add_row("", f"[dim]mean of {result.one_field.count:,}, fastest of {ROUNDS} rounds[/]")
    console.print(table)
    console.print(f"[bold]4. All {result.rows:,} records[/], {result.lines:,} lines of definitions:")
    table = _table()
    table.add_row("for r in table.values(): n += r.size", _rate(result.loop, "rows"))
    table.add_row('table.sum("size")', _rate(result.native, "rows"))
    table.add_row("count all calls of all definitions", _rate(result.calls, "rows"))
    table.add_row("with a docstring", f"{result.with_doc:,} ({result.with_doc / result.rows:.0%})")
    table.add_row("longest", "\n".join(f"{size:>6,} lines  {name}" for size, name in result.longest))
    table.add_row("most called", "\n".join(f"in {count:>6,}  {name}" for name, count in result.called))
    console.print(table)


def asked(console: Console, result: Asked) -> None:
    """Print the results of the queries."""
    from rich.markup import escape

    console.print("[bold]5. Found by content[/], in the packed bytes:")
    table = _table()
    table.add_row('group_by("module").agg(size=F.size.max())', _rate(result.modules, "rows"))
    table.add_row("", "\n".join(f"{size:>6,} lines  {name}" for size, name in result.longest))
    table.add_row(f"where(F.args.length() > {ARGUMENTS_MANY}).count()", _rate(result.many, "rows"))
    table.add_row("", f"{result.many_count:>6,} functions; these have the most arguments:")
    table.add_row("", "\n".join(f"{count:>6,}        {name}" for count, name in result.most_arguments))
    table.add_row("column(F.decorators.each()), counted", _rate(result.decorated, "rows"))
    table.add_row("", "\n".join(f"{count:>6,}        @{name}" for name, count in result.decorators))
    console.print(table)
    console.print(f"   [cyan]{escape(result.question)}[/] explains itself:")
    for line in result.explained.splitlines():
        console.print(f"      [dim]{escape(line)}[/]")
    console.print('   [cyan]column("size")[/]: lines of a function, and how many have so many')
    console.print(_histogram(result.sizes))


def found(console: Console, result: Found) -> None:
    """Print the results of the indexes."""
    from rich.markup import escape

    console.print("[bold]6. Found by indexes[/], which every write keeps up to date:")
    table = _table()
    for text, timing in result.made:
        table.add_row(text, _rate(timing, "rows"))
    table.add_row("bytes of the file for each entry: value, key, about 10", f"{result.bytes_each:>12,.0f}")
    console.print(table)
    console.print(f"   Queries without and with indexes, the fastest of {TIMES} runs:")
    for lookup in result.lookups:
        console.print(f"      [cyan]{escape(lookup.query)}[/]")
        console.print(f"      {_time(lookup.scan):>10}  by a scan")
        console.print(f"      {_time(lookup.index):>10}  by [cyan]{escape(lookup.straight)}[/]")
        console.print(f"                  [dim]{_many(lookup.found)}[/]")
    console.print(f"   [cyan]{escape(result.question)}[/] chooses an index itself:")
    for line in result.explained.splitlines():
        console.print(f"      [dim]{escape(line)}[/]")
    console.print(
        '   [cyan]create_index("one_place", (F.module, F.lines.first), unique=True)[/] refuses a copy:'
    )
    console.print(f"      [dim]UniqueError: {escape(result.refused)}[/]")


def _many(places: list[str]) -> str:
    more = f" and {len(places) - 2:,} more" if len(places) > 2 else ""
    return (", ".join(places[:2]) or "none") + more


def _histogram(sizes: list[int]) -> Table:
    """Make a table with the number of sizes between each power of two and the next."""
    from rich.bar import Bar
    from rich.table import Table

    counts = Counter(max(size, 1).bit_length() for size in sizes)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=12)
    table.add_column(justify="right", style="cyan")
    table.add_column()
    most = max(counts.values(), default=1)
    for bits in range(min(counts, default=1), max(counts, default=1) + 1):
        first, last = 1 << (bits - 1), (1 << bits) - 1
        label = f"{first}-{last}" if last > first else str(first)
        table.add_row(label, f"{counts[bits]:,}", Bar(most, 0, counts[bits], width=50))
    return table


def changed(console: Console, result: Changed) -> None:
    """Print what was changed."""
    console.print(
        f"[bold]7. Changed in place[/], and in the indexes, all {result.moved.count:,} definitions "
        f"of {result.module}:"
    )
    table = _table()
    before, after = ("-".join(map(str, lines)) for lines in (result.before, result.after))
    table.add_row("r.lines.first += 1; r.lines.last += 1", _rate(result.moved, "records"))
    table.add_row("", _work(result.moving))
    table.add_row("r.calls.append(...)", _rate(result.appended, "records"))
    table.add_row("", _work(result.appending))
    table.add_row("after opening again", f"lines {before} are {after}; calls end in {result.last_call!r}")
    console.print(table)


def _work(counts: dict[str, int]) -> str:
    """Describe the work that the counters of the library counted."""
    encoded, overwritten = counts["values_encoded"], counts["slots_overwritten"]
    values, slots = (
        f"{count:,} {word}{'' if count == 1 else 's'}"
        for count, word in ((encoded, "value"), (overwritten, "slot"))
    )
    return f"[dim]{values} encoded, {slots} overwritten in place[/]"


def _table() -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(style="cyan", min_width=40)
    table.add_column()
    return table


def _record_table(record: Record) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, show_header=False)
    table.add_column(style="cyan")
    table.add_column()
    for name, value in record.items():
        if isinstance(value, list):
            shown = _short_list(value)
        else:
            shown = _short(str(value).partition("\n")[0] if isinstance(value, str) else repr(value))
        table.add_row(name, Text(shown))
    return table


def _short_list(values: list[object]) -> str:
    lines = [_short(repr(value)) for value in values[:4]]
    if len(values) > len(lines):
        lines.append(f"... {len(values) - len(lines)} more")
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 3] + "..."


def _plural(kind: str) -> str:
    return kind + ("es" if kind.endswith("s") else "s")


def _rate(timing: Timing, what: str) -> str:
    return f"{timing.rate:>12,.0f} {what}/s  ({_time(timing.seconds)})"


def _time(seconds: float) -> str:
    for bound, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < bound:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.1f} s"
