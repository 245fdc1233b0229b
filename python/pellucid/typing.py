"""What may be a key, what a value, and what else do our signatures name?

For annotations. `import pellucid` leaves this module alone, and so pays for none of what it imports.
"""

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from os import PathLike
from typing import Any, Literal, TypeAlias
from uuid import UUID

__all__ = ["ChangeKind", "Durability", "Key", "Mode", "Path", "PicklePolicy", "Target", "Value"]

# A bool is an int, and a datetime a date; NaN alone is a float and no key.
Key: TypeAlias = str | bytes | int | float | date | datetime | UUID | Decimal | tuple["Key", ...] | None
"""What may be a key of a table."""

Value: TypeAlias = Any
"""What may be stored: classes of your own may too, so there is no type that says it."""

Path: TypeAlias = str | tuple[str | int, ...]
"""Where a field is: `"address.city"` splits at dots, `("address", "city")` is exact."""

Target: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
"""What `open` opens: a path, or ":memory:"."""

Mode: TypeAlias = Literal["r", "w", "c", "n"]
"""Read; write; create if need be; empty."""

Durability: TypeAlias = Literal["process", "full"]
"""What a commit has survived when it returns: the death of the process; a power cut as well."""

ChangeKind: TypeAlias = Literal["put", "delete", "clear", "create", "drop", "rename"]
"""What a commit did: to a row, to all rows of a table, to a table."""

PicklePolicy: TypeAlias = Literal["deny", "allow"] | Iterable[str]
"""Whether stored pickles may be loaded: never, always, or if all globals they use are listed.

`"mypkg.models.Order"` is one class or function, `"mypkg.models.*"` all classes that the module defines."""
