"""The tables of pellucid on a PostgreSQL server.

`pellucid.open("postgresql://user@host/database")` gives a `Database` of this package, with the verbs of
`pellucid.Database`. It needs psycopg 3: `pip install 'pellucid[postgres]'`.
"""

from pellucid.postgres.database import Database, connect
from pellucid.postgres.snapshot import Snapshot
from pellucid.postgres.table import Table

__all__ = ["Database", "Snapshot", "Table", "connect"]
