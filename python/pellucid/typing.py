"""This module has the names that annotations of pellucid's arguments and results need.

`import pellucid` does not import this module, so programs do not pay for its imports.
"""

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from os import PathLike
from typing import Any, Literal, TypeAlias
from uuid import UUID

__all__ = ["ChangeKind", "Durability", "Key", "Mode", "Path", "PicklePolicy", "Target", "Value"]

# A bool is an int, and a datetime is a date. NaN is the only float that is not a key.
Key: TypeAlias = str | bytes | int | float | date | datetime | UUID | Decimal | tuple["Key", ...] | None
"""What may be a key of a table."""

Value: TypeAlias = Any
"""What may be stored. It is `Any`, because it includes your own classes."""

Path: TypeAlias = str | tuple[str | int, ...]
"""Where a field is. `"address.city"` splits at dots; `("address", "city")` is exact."""

Target: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
"""What `open` opens: a path, or ":memory:"."""

Mode: TypeAlias = Literal["r", "w", "c", "n"]
"""How to open: read; write; create if necessary; empty."""

Durability: TypeAlias = Literal["process", "full"]
"""What a commit survives when it returns: the death of the process, or also a power cut."""

ChangeKind: TypeAlias = Literal["put", "delete", "clear", "create", "drop", "rename"]
"""What a commit changed: a row, all rows of a table, or a table."""

PicklePolicy: TypeAlias = Literal["deny", "allow"] | Iterable[str]
"""Whether stored pickles may be loaded: never, always, or if a list has all globals that they use.

`"mypkg.models.Order"` is one class or function. `"mypkg.models.*"` is all classes that the module defines."""
