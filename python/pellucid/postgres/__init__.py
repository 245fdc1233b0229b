"""The tables of pellucid on a PostgreSQL server, and tables of other programs there.

`pellucid.open("postgresql://user@host/database")` gives a `Database` of this package, with the verbs of
`pellucid.Database`. It needs psycopg 3: `pip install 'pellucid[postgres]'`.
`adopt` reads a table of pickles or JSON, and `migrate` converts it.
"""

from pellucid.postgres.database import Database, connect
from pellucid.postgres.foreign_tables import Adopted, adopt, migrate
from pellucid.postgres.snapshot import Snapshot
from pellucid.postgres.table.table import Table

__all__ = ["Adopted", "Database", "Snapshot", "Table", "adopt", "connect", "migrate"]
