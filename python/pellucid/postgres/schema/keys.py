"""Fit the codes of keys into PostgreSQL's index, which takes no entry of more than 2,704 bytes.

A longer code is stored as its beginning and a hash of all of it. The whole code then goes into the column
of spellings: its size as a u32, the code, and the spelling. The native module reads it there
(`server/table.rs`). Rows whose codes have the same long beginning are next to each other, but in the order
of their hashes, so a scan sorts such a run again.
"""

from __future__ import annotations

import hashlib
import struct

SHORT_SIZE_MAX = 2000
HASH_SIZE = 24
LONG_SIZE = SHORT_SIZE_MAX + HASH_SIZE
# Follows every code with the same beginning.
BEHIND = b"\xff" * (HASH_SIZE + 1)


def stored(code: bytes) -> bytes:
    """Return what stands for a code in the column of keys."""
    if len(code) <= SHORT_SIZE_MAX:
        return code
    return code[:SHORT_SIZE_MAX] + hashlib.blake2b(code, digest_size=HASH_SIZE).digest()


def stored_with(code: bytes, spelling: bytes | None) -> tuple[bytes, bytes | None]:
    """Return what stands for a code and a spelling in the columns of both."""
    if len(code) <= SHORT_SIZE_MAX:
        return code, spelling
    return stored(code), struct.pack("<I", len(code)) + code + (spelling or b"")


def is_long(key: bytes) -> bool:
    """Return whether a stored key stands for a longer one."""
    return len(key) == LONG_SIZE
