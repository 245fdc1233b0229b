# The part of the stub of the compiled module that shows what is in a table. There is no module of this name.
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar, type_check_only

from pellucid._native import Expression, Query, Record, RecordList, SortBy, Table
from pellucid.claims import Claim
from pellucid.look.rows import Rows
from pellucid.typing import Key, Path

__all__ = ["_brief", "_figures", "_is_selected", "_no_attribute", "_survey", "_untyped"]

_V = TypeVar("_V")

# What a truth value or an iteration would be, of what has none. Each is an error for a type checker, which
# goes on with what follows: after a `NoReturn`, mypy takes all for unreachable. No argument is a `Never`.
@type_check_only
class AskExists: ...

@type_check_only
class UseSigns: ...

@type_check_only
class UseEach: ...

# The methods that tables, databases and snapshots have in common.
@type_check_only
class Looks(Generic[_V]):
    def head(self, n: int = 5) -> Rows[_V]: ...
    def tail(self, n: int = 5) -> Rows[_V]: ...
    def sample(self, n: int = 5, *, seed: int | None = None) -> Rows[_V]: ...
    def fields(self, *, exact: bool = False) -> Rows[dict[str, Any]]: ...
    def describe(self) -> Rows[dict[str, Any]]: ...
    def value_counts(self, path: Path | Expression, limit: int | None = None) -> Rows[dict[str, Any]]: ...
    def _ipython_key_completions_(self) -> list[Any]: ...
    def _repr_html_(self) -> str: ...

# What holds for some time, in tables and databases.
@type_check_only
class Timed(Generic[_V]):
    def claim(
        self,
        where: Expression,
        set: Mapping[str, Any],  # noqa: A002
        *,
        order_by: Expression | SortBy | Path | Sequence[Expression | SortBy | Path] | None = None,
        lease: float | timedelta = 60.0,
        timeout: float | timedelta | None = 0.0,
    ) -> Claim | None: ...
    def put(
        self, key: Key, value: _V | Mapping[Any, Any], *, expire: float | timedelta | None = None
    ) -> None: ...
    def expire(self) -> int: ...

def _brief(handle: Record | RecordList, count: int) -> tuple[list[tuple[Any, Any]], int]: ...
def _figures(
    of: Table[Any] | Query[Any], path: Path | Expression
) -> list[tuple[int, float, float | None, list[float]]] | None: ...
def _is_selected(query: Query[Any]) -> bool: ...
def _no_attribute(object: object, kind: str, name: str) -> AttributeError: ...  # noqa: A002
def _survey(
    of: Table[Any] | Query[Any], count: int, exact: bool
) -> tuple[list[tuple[Any, ...]], int, int, bool]: ...
def _untyped(table: Table[Any]) -> Table[Any]: ...
