"""Learn the shapes of a server, and register new ones.

A shape is registered in a transaction of its own, before any row that uses it. So every row that a client can
read has shapes that it can read, and a shape of a transaction that is rolled back does no harm.
"""

from __future__ import annotations

import hashlib

from pellucid._native import ServerCodec
from pellucid.errors import Busy, DatabaseError
from pellucid.postgres import errors
from pellucid.postgres.pool import BESIDE_SECONDS_MAX, Pool
from pellucid.postgres.schema.text import formed, quoted
from pellucid.postgres.session import Session

ATTEMPTS = 100


class Shapes:
    """The shapes of one database, as this client knows them."""

    def __init__(self, codec: ServerCodec, schema: str) -> None:
        self._codec = codec
        name = quoted(schema)
        self._select = formed("SELECT names FROM {schema}.shapes WHERE id >= $1 ORDER BY id", schema=name)
        self._insert = formed(
            "INSERT INTO {schema}.shapes (id, hash, names) SELECT coalesce(max(id), -1) + 1, $1, $2 "
            "FROM {schema}.shapes ON CONFLICT (hash) DO NOTHING",
            schema=name,
        )

    def learn(self, session: Session) -> None:
        """Learn what other clients have registered; a transaction that the session is in might not see it."""
        first = self._codec.shape_count
        self._codec.learn(first, [names for (names,) in session.rows(self._select, [first])])

    def register(self, pool: Pool, shapes: list[bytes]) -> list[int] | None:
        """Return the ids of shapes, given by the bytes of their names, once the server has them all.

        None if all connections stay in use: the caller then writes without new shapes.
        """
        for _ in range(ATTEMPTS):
            ids = self._codec.ids_of(shapes)
            if None not in ids:
                return [number for number in ids if number is not None]
            missing = [names for names, number in zip(shapes, ids, strict=True) if number is None]
            try:
                with pool.session(BESIDE_SECONDS_MAX) as session:
                    try:
                        for names in missing:
                            digest = hashlib.blake2b(names, digest_size=16).digest()
                            session.execute(self._insert, [digest, names])
                    except DatabaseError as error:
                        # Another client may have taken the id at the same time.
                        if errors.sqlstate(error.__cause__) != "23505":
                            raise
                    self.learn(session)
            except Busy:
                return None
        return None
