"""A way to a PostgreSQL server that can be cut at any message of the protocol."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import servers


class Wire:
    """Passes messages between clients and a server, until it is told to cut."""

    def __init__(self, directory: Path, host: str, port: str) -> None:
        self._host, self._port = host, port
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / f".s.PGSQL.{port}"))
        self._listener.listen()
        self._lock = threading.Lock()
        self._left: int | None = None
        self._is_forwarded = False
        self.was_cut = False
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, message: int, *, is_forwarded: bool) -> None:
        """End the connection at this message (from 1) of a client, before the server gets it or after."""
        with self._lock:
            self._left, self._is_forwarded, self.was_cut = message, is_forwarded, False

    def mend(self) -> None:
        """Cut nothing any more."""
        with self._lock:
            self._left = None

    def close(self) -> None:
        """End all connections."""
        self._listener.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._host.startswith("/"):
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{self._host}/.s.PGSQL.{self._port}")
            else:
                server = socket.create_connection((self._host, int(self._port)))
            self._ends += [client, server]
            threading.Thread(target=self._to_server, args=[client, server], daemon=True).start()
            threading.Thread(target=self._to_client, args=[server, client], daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error):
            # The first message has no type.
            is_first = True
            while True:
                head = read(client, 4 if is_first else 5)
                body = read(client, struct.unpack("!i", head[-4:])[0] - 4)
                is_first = is_first and struct.unpack("!i", body[:4])[0] != 196608
                if self._is_cut(head):
                    if self._is_forwarded:
                        server.sendall(head + body)
                    break
                server.sendall(head + body)
        # What the server says from here on reaches no client. It may still do what it was told.
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _is_cut(self, head: bytes) -> bool:
        # Not at the message by which a client says that it leaves.
        if head[:1] == b"X":
            return False
        with self._lock:
            if self._left is None:
                return False
            self._left -= 1
            if self._left > 0:
                return False
            self._left, self.was_cut = None, True
            return True

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        for end in (server, client):
            with contextlib.suppress(OSError):
                end.close()


def read(source: socket.socket, size: int) -> bytes:
    """Read exactly this many bytes."""
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise OSError("the end")
        data += more
    return data


@contextlib.contextmanager
def wire(directory: Path, url: str) -> Iterator[tuple[Wire, str]]:
    """A wire to the server of a URL, and the URL that leads through it."""
    parameters = servers.driver("psycopg").conninfo.conninfo_to_dict(
        url.replace("schema=", "application_name=")
    )
    host, port = str(parameters["host"]), str(parameters.get("port", "5432"))
    made = Wire(directory, host, port)
    quoted = servers.urllib.parse.quote
    try:
        yield made, url.replace(quoted(host, safe=""), quoted(str(directory), safe=""))
    finally:
        made.close()
