"""This module has the operations of the table of benchmarks: which measure each is, and which result of ours.

`tools/publish.py` writes all of them into the page of the benchmarks, and those that decide for a user into
the README. `guard.py` measures all of them for two revisions.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: one of our results, and those of others."""

    operation: str
    measure: str
    """The id of the measure, as a pattern."""
    title: str
    """Its title, with the settings of the experiment in braces."""
    others: dict[str, str]
    """The name of each in the table, by its contender."""
    ours: str = "pellucid"
    in_readme: bool = False

    @property
    def experiment(self) -> str:
        """Return the experiment of the measure."""
        return self.measure.partition("/")[0]


SQLITE = "sqlite3, columns"
ROWS = [
    Row(
        "read one field of packed bytes",
        "records/bytes-at-hand-read-one-field-uniform",
        "bytes at hand, read one field (uniform)",
        {
            "orjson": "orjson",
            "ujson": "ujson",
            "pickle": "pickle",
            "msgspec msgpack, Struct of one field": "msgspec (a Struct of that field)",
        },
        in_readme=True,
    ),
    Row(
        "read one field of a record that you hold",
        "records/a-record-at-hand-read-one-field-uniform",
        "a record at hand, read one field (uniform)",
        {"dict": '`d["age"]` on a dict', "object with __slots__": "an object with `__slots__`"},
        "pellucid, stored record",
    ),
    Row(
        "loop over all records and read a field, for each",
        "records/loop-over-all-records-adding-one-field-uniform",
        "loop over all records, adding one field (uniform)",
        {
            "list of live dicts": "the same over a list of live dicts",
            SQLITE: "sqlite3",
            "duckdb, columns": "duckdb",
            "lmdb + orjson": "lmdb + orjson",
        },
        in_readme=True,
    ),
    Row(
        '`table.sum("age")`, for each record',
        "records/sum-of-one-field-over-all-records-uniform",
        "sum of one field over all records (uniform)",
        {"loop over live dicts": "a loop over live dicts", SQLITE: "sqlite3", "duckdb, columns": "duckdb"},
    ),
    Row(
        "read a field by key, 200 keys repeatedly",
        "records/stored-records-read-one-field-of-one-by-its-key-uniform",
        "stored records, read one field of one by its key (uniform)",
        {"lmdb + orjson": "lmdb + orjson", SQLITE: "sqlite3", "list of live dicts": "a live list"},
    ),
    Row(
        "bulk load, for each record",
        "records/bulk-load-of-many-records-uniform",
        "bulk load of many records (uniform)",
        {"lmdb + orjson": "lmdb + orjson", "sqlite3, JSON": "sqlite3"},
    ),
    Row(
        "count with a filter on a field, for each row scanned",
        "query/count-where-one-field-is-above-a-number",
        "count where one field is above a number",
        {
            "list of live dicts": "a list of live dicts",
            SQLITE: "sqlite3",
            "duckdb": "duckdb",
            "polars, in memory": "polars",
        },
        in_readme=True,
    ),
    Row(
        "read small values by random key, right after a million puts",
        "dict/read/1000000",
        "random reads after {writes[1]:,} writes",
        {
            "dbm.gnu": "dbm.gnu",
            "lmdb, a transaction for each, sync off": "lmdb",
            "rocksdict": "rocksdict",
            "plyvel": "plyvel",
        },
        in_readme=True,
    ),
    Row(
        "one put that survives `kill -9`, 10,000 keys",
        "dict/write/10000",
        "{writes[0]:,} single writes",
        {
            "dbm.gnu": "dbm.gnu",
            "plyvel": "plyvel",
            "rocksdict": "rocksdict",
            "lmdb, a transaction for each, sync off": "lmdb",
            "sqlite3, file, WAL, INSERT and commit": "sqlite3 (WAL)",
            "diskcache": "diskcache",
        },
        in_readme=True,
    ),
    Row(
        "one put that survives a power cut",
        "dict/write/10000",
        "{writes[0]:,} single writes",
        {"lmdb, a transaction for each": "lmdb", "sqlite3, file, INSERT and commit": "sqlite3"},
        "pellucid, full",
        in_readme=True,
    ),
    Row(
        "ten puts that survive a power cut, eight threads",
        "writes/transactions-of-10-puts-in-full-eight-writers",
        "transactions of 10 puts in full, eight writers",
        {
            "plyvel + orjson, threads": "plyvel",
            "sqlite3, WAL, threads": "sqlite3 (WAL)",
            "lmdb + orjson, threads": "lmdb",
        },
        "pellucid, threads",
    ),
    Row(
        "`rec.age += 1`, a commit each",
        "writes/rec.age-+-1-each-a-commit",
        "rec.age += 1, each a commit",
        {
            "plyvel + orjson": "plyvel + orjson",
            "lmdb + orjson": "lmdb + orjson",
            "sqlite3, WAL": "sqlite3 (WAL)",
        },
    ),
    Row(
        "a shelf of 10,000 values: one write and one read, with open and close",
        "dropins/shelve-both/10000",
        "shelve: {shelve_counts[0]:,} values, both",
        {"dbm.gnu": "shelve on dbm.gnu", "dbm.sqlite3": "on dbm.sqlite3", "dbm.dumb": "on dbm.dumb"},
        in_readme=True,
    ),
    Row(
        "read a value of 1 MB, cold",
        "megabyte/cold-read/*",
        "read a value of 1 MB at random, cold",
        {"plain files": "plain files", "lmdb": "lmdb", "diskcache": "diskcache", "shelve": "shelve"},
    ),
    Row(
        "`dumps` of a list of small dicts, for each",
        "records/dumps-of-a-list-of-*-small-dicts",
        "dumps of a list of {dump_rows:,} small dicts",
        {"orjson": "orjson", "msgspec msgpack": "msgspec (msgpack)", "pickle": "pickle"},
    ),
    Row(
        "`dumps` of a list of mixed records, for each",
        "records/dumps-of-a-list-of-*-mixed-records",
        "dumps of a list of {dump_rows:,} mixed records",
        {"orjson": "orjson", "msgspec msgpack": "msgspec (msgpack)", "pickle": "pickle"},
        in_readme=True,
    ),
]
