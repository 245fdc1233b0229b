"""Have the classes of a file and those of a server the same verbs? Read by mypy and never run."""

from typing import Any

import pellucid
from pellucid import postgres
from pellucid._native import ServerTable
from pellucid.postgres import protocols, verbs
from pellucid.postgres.connection import DatabaseConnection
from pellucid.postgres.query.reader import ServerReader
from pellucid.postgres.query.watch import PastConnection, PastTables
from pellucid.postgres.schema.tables import DatabaseTables
from pellucid.postgres.snapshot import SnapshotConnection, SnapshotTables
from pellucid.postgres.table.index import Index
from pellucid.postgres.table.index_entries import ServerIndexEntries
from pellucid.postgres.table.records import Records
from pellucid.postgres.table.rows import ServerRowStore


def tables(file: "pellucid.Table[Any]", server: postgres.Table) -> list[verbs.Table]:
    return [file, server]


def indexes(file: "pellucid.Index[Any]", server: Index) -> list[verbs.Index]:
    return [file, server]


def databases(file: pellucid.Database, server: postgres.Database) -> list[verbs.Database]:
    return [file, server]


def snapshots(file: pellucid.Snapshot, server: postgres.Snapshot) -> list[verbs.Snapshot]:
    return [file, server]


def connections(
    database: DatabaseConnection, snapshot: SnapshotConnection, past: PastConnection
) -> list[protocols.Connection]:
    return [database, snapshot, past]


def known_tables(
    database: DatabaseTables, snapshot: SnapshotTables, past: PastTables
) -> list[protocols.Tables]:
    return [database, snapshot, past]


def parts(
    rows: ServerRowStore, entries: ServerIndexEntries, reader: ServerReader, records: Records
) -> tuple[protocols.RowStore, protocols.IndexEntries, protocols.Reader, ServerTable]:
    return rows, entries, reader, records


def what_is_not_the_same(file: pellucid.Snapshot) -> list[verbs.Database]:
    return [file]  # error: List item 0 has incompatible type "Snapshot"; expected "Database"
