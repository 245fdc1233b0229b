"""This module uses DuckDB."""

# ruff: noqa: D102 (the docstrings of the methods are at `Store` and `Queried`)

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pellucid_bench.contenders.queries import PREFIX, InSql, cut
from pellucid_bench.contenders.stores import InFile, Number, column_rows, json_text, number_in
from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import loop
from pellucid_bench.sample_records import VARIED, Population, Record


class DuckDb(InFile):
    """DuckDB with columns, loaded in batches: from tables of Arrow, or else from lists, which is slower."""

    name = "duckdb, columns"
    suffix = ".duckdb"
    batch_size = 20_000

    def __init__(
        self,
        population: Population,
        directory: Path,
        duckdb: Any,
        pyarrow: Any,
        dumps: Callable[[object], str],
    ) -> None:
        super().__init__(population, directory)
        self._duckdb, self._pyarrow, self._dumps = duckdb, pyarrow, dumps
        self._connection: Any = None

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self._connection = self._duckdb.connect(str(self.path))
        self._connection.execute(
            "CREATE TABLE people (k BIGINT PRIMARY KEY, name VARCHAR, age DOUBLE, amt DOUBLE, "
            "last VARCHAR, rest VARCHAR)"
        )
        self._connection.execute("BEGIN")
        rows = iter(column_rows(records, self._dumps))
        while batch := list(islice(rows, self.batch_size)):
            self._insert([list(column) for column in zip(*batch, strict=True)])
        self._connection.execute("COMMIT")

    def _insert(self, columns: list[list[Any]]) -> None:
        if self._pyarrow is None:
            types = ("BIGINT", "VARCHAR", "DOUBLE", "DOUBLE", "VARCHAR", "VARCHAR")
            line = ", ".join(f"unnest(?::{kind}[])" for kind in types)
            self._connection.execute(f"INSERT INTO people SELECT {line}", columns)
        else:
            arrow = self._pyarrow
            types = (
                arrow.int64(),
                arrow.string(),
                arrow.float64(),
                arrow.float64(),
                arrow.string(),
                arrow.string(),
            )
            arrays = [arrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            self._connection.register(
                "batch", arrow.table(arrays, names=[f"c{place}" for place in range(len(arrays))])
            )
            self._connection.execute("INSERT INTO people SELECT * FROM batch")
            self._connection.unregister("batch")

    def loop_sum(self) -> Callable[[], Number]:
        names = {"execute": self._connection.execute}
        return loop("(age,)", "execute('SELECT age FROM people').fetchall()", "age or 0", names)

    def own_sum(self) -> Callable[[], Number]:
        connection = self._connection
        return lambda: number_in(connection.execute("SELECT sum(age) FROM people").fetchone())

    def field_line(self) -> tuple[str, dict[str, Any]]:
        line = "SELECT age FROM people WHERE k = ?"
        return "execute(line, (key,)).fetchone()[0] or 0", {"execute": self._connection.execute, "line": line}

    def set_all(self, values: Iterable[Number]) -> None:
        # One statement for each row takes about 0.3 ms. DuckDB is not made for this, and takes no part in it.
        raise NotImplementedError

    def size(self) -> int | None:
        self._connection.execute("CHECKPOINT")
        return super().size()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def stores(rivals: Rivals, population: Population, directory: Path) -> list[DuckDb]:
    """Return a table with a column for each plain field."""
    duckdb, dumps = rivals.find("duckdb"), json_text(rivals)
    return [DuckDb(population, directory, duckdb, rivals.find("pyarrow"), dumps)] if duckdb else []


class Duck(InSql, InFile):
    """DuckDB with the same columns in its own file, loaded from CSV, on one thread like the others."""

    name = "duckdb"
    suffix = ".duckdb"
    begins = f"LIKE '{PREFIX}%'"

    def __init__(self, directory: Path, duckdb: Any, dumps: Callable[[object], str]) -> None:
        super().__init__(VARIED, directory)
        self._duckdb, self._dumps = duckdb, dumps
        self._connection: Any = None

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self._connection = self._duckdb.connect(str(self.path))
        self._connection.execute("SET threads = 1")
        self._connection.execute(
            "CREATE TABLE people (k BIGINT, name VARCHAR, age BIGINT, amt DOUBLE, last VARCHAR, "
            "nested VARCHAR, rest VARCHAR)"
        )
        text = self.path.with_suffix(".csv")
        with text.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(cut(records, self._dumps))
        self._connection.execute(f"COPY people FROM '{text}' (FORMAT csv, HEADER false)")
        self._connection.execute("CHECKPOINT")
        text.unlink()

    def execute(self, line: str) -> Any:
        """Run a statement and return its result, to be fetched."""
        return self._connection.execute(line)

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.execute(line).fetchall()
        return found

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Run DuckDB on this number of threads."""
        self.execute(f"SET threads = {count}")
        try:
            yield
        finally:
            self.execute("SET threads = 1")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def queried(rivals: Rivals, directory: Path) -> list[Duck]:
    """Return a table with a column for each field that is asked for."""
    duckdb = rivals.find("duckdb")
    return [Duck(directory, duckdb, json_text(rivals))] if duckdb else []
