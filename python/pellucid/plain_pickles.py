"""This module loads pickles of plain values that another program wrote, without trusting them.

Such a pickle names a few classes and functions. In place of each it gets a stand-in, which makes the same
value and checks its arguments: the originals also take arguments with which they fill memory or never end.
What a pickle comes to, with parts that occur many times, is limited by its length.
"""

from __future__ import annotations

import builtins
import datetime
import io
import sys
from collections import Counter, OrderedDict, defaultdict
from functools import partial

from pellucid import pickles

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["decode_foreign"]

# Most objects that a short pickle may come to.
SIZE_MAX = 1 << 16
# A text, bytes or a number of this many bytes counts as one object more.
BYTES_PER_OBJECT = 16
WITH_A_LENGTH = (str, bytes, bytearray, int)
# What a defaultdict calls for a missing key. A pickle may name these classes, but not call them.
FACTORIES = frozenset(("bool", "dict", "float", "int", "list", "set", "str", "tuple"))
INT_MAX = 1 << 63
NAME_MAX = 255


def decode_foreign(file: io.BytesIO, policy: str | tuple[str, ...], encoding: str = "ASCII") -> object:
    """Return the next object of a file of pickles that another program wrote, under the rules of `decode`.

    Plain values need no entry in the list, whatever their pickles call. `encoding` is that of the strings of
    Python 2.
    """
    if policy == "allow":
        return pickles.load_any(file, encoding)
    return Foreign(file, tuple(policy), encoding).load()


class Foreign(pickles.Restricted):
    """An unpickler for plain values, and for the globals of a list."""

    def __init__(self, file: io.BytesIO, names: tuple[str, ...], encoding: str) -> None:
        super().__init__(file.getvalue(), names, file=file, encoding=encoding)
        self.file = file
        self.begin = file.tell()

    def load(self) -> object:
        value = super().load()
        self.size_max = SIZE_MAX + pickles.SIZE_PER_BYTE * (self.file.tell() - self.begin)
        measure_all(value, self.check_measure)
        return value

    def find_class(self, module: str, name: str) -> object:
        holder, own = self.current_name(module, name)
        full_name = f"{holder}.{own}"
        if full_name in self.globals.in_full or self.globals.has_match(holder, own):
            return super().find_class(module, name)
        if full_name in STAND_INS:
            stand_in = partial(STAND_INS[full_name], self)
            self.given[id(stand_in)] = stand_in
            return stand_in
        if holder == "builtins" and own in FACTORIES:
            # What is not among the given cannot be called.
            return getattr(builtins, own)
        return super().find_class(module, name)


def refused(what: str) -> pickles.DamagedPickle:
    """The error for a call with arguments that pickles of plain values do not have."""
    return pickles.DamagedPickle(f"{pickles.DAMAGED}a {what} is made of what it is never made of")


def _new(unpickler: Any) -> None:
    """Make an object of a class (NEWOBJ). A stand-in makes it by itself."""
    made_by = unpickler.stack[-2]
    kind = pickles.REDUCE if isinstance(made_by, partial) else pickles.NEWOBJ
    pickles.Restricted.dispatch[kind](unpickler)


def _build(unpickler: Any) -> None:
    """Give an object its state (BUILD). That of a UUID is checked here, because its class does not."""
    from uuid import UUID

    target, state = unpickler.stack[-2:]
    if type(target) is UUID:
        numbers = list(state.values()) if type(state) is dict else []
        if not numbers or not all(type(number) is int and 0 <= number < 1 << 128 for number in numbers):
            raise refused("UUID")
    pickles.Restricted.dispatch[pickles.BUILD](unpickler)


def _add_items(unpickler: Any) -> None:
    """Add items to a set (ADDITEMS) one by one: many with the same hash take long, and Ctrl-C is heard."""
    target = unpickler.metastack[-1][-1]
    unpickler.check_made(target)
    items = unpickler.stack
    unpickler.check_keys(items)
    unpickler.pop_mark()
    for item in items:
        target.add(item)


Foreign.dispatch = pickles.Instructions(pickles.Restricted.dispatch)
Foreign.dispatch.update({pickles.NEWOBJ: _new, pickles.BUILD: _build, pickles.ADDITEMS: _add_items})


def measure_all(value: object, check: Callable[[int, int], None]) -> None:
    """Call `check` with how many objects each container in a value comes to, and how deep it is."""
    measured: dict[int, tuple[int, int]] = {}
    begun: set[int] = set()
    work = [value]
    while work:
        part = work[-1]
        parts = _parts_of(part)
        if id(part) not in begun:
            begun.add(id(part))
            inner = [one for one in parts if isinstance(one, CONTAINERS) and id(one) not in begun]
            if inner:
                work += inner
                continue
        work.pop()
        if id(part) in measured:
            continue
        size, depth = 1, 1
        for one in parts:
            # An object that contains itself is not measured yet; storing it is refused, or ends.
            more, levels = measured.get(id(one)) or (_weight(one), 0)
            size += more
            depth = max(depth, levels + 1)
        check(size, depth)
        measured[id(part)] = (size, depth)


CONTAINERS = (list, tuple, dict, set, frozenset)


def _parts_of(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*dict.keys(value), *dict.values(value)]
    return list(value) if isinstance(value, CONTAINERS) else []


def _weight(value: object) -> int:
    return 1 + sys.getsizeof(value) // BYTES_PER_OBJECT if type(value) in WITH_A_LENGTH else 1


def _complex(_: Foreign, real: object, imaginary: object) -> complex:
    if not (isinstance(real, float) and isinstance(imaginary, float)):
        raise refused("complex")
    return complex(real, imaginary)


def _set(unpickler: Foreign, items: object = ()) -> set[Any]:
    if type(items) not in (list, tuple, set, frozenset):
        raise refused("set")
    found = list(items)  # type: ignore[call-overload]
    unpickler.check_keys(found)
    # One by one, as in ADDITEMS.
    made = set()
    for item in found:
        made.add(item)
    return made


def _frozenset(unpickler: Foreign, items: object = ()) -> frozenset[Any]:
    return frozenset(_set(unpickler, items))


def _ordered_dict(unpickler: Foreign, pairs: object = ()) -> OrderedDict[Any, Any]:
    if type(pairs) not in (list, tuple):
        raise refused("OrderedDict")
    made: OrderedDict[Any, Any] = OrderedDict()
    for pair in pairs:  # type: ignore[attr-defined]
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise refused("OrderedDict")
        unpickler.check_keys(pair[:1])
        made[pair[0]] = pair[1]
    return made


def _counter(_: Foreign, counts: object = None) -> Counter[Any]:
    if counts is None:
        return Counter()
    if type(counts) is not dict:
        raise refused("Counter")
    return Counter(counts)


def _default_dict(unpickler: Foreign, factory: Any = None) -> defaultdict[Any, Any]:
    is_plain = getattr(factory, "__module__", "") == "builtins" and factory.__name__ in FACTORIES
    if factory is not None and not is_plain and id(factory) not in unpickler.given:
        raise refused("defaultdict")
    return defaultdict(factory)


def _decimal(_: Foreign, digits: object) -> object:
    from decimal import Decimal

    # A number of a million digits takes half a minute, and no signal is heard.
    if type(digits) is not str:
        raise refused("Decimal")
    return Decimal(digits)


def _when(cls: Any) -> Callable[..., object]:
    def made(_: Foreign, *arguments: object) -> object:
        # A str is the bytes of Python 2.
        if not all(map(_is_small, arguments)):
            raise refused(cls.__name__)
        return cls(*arguments)

    return made


def _is_small(value: object) -> bool:
    if type(value) is int:
        return abs(value) < INT_MAX
    if type(value) in (str, bytes):
        return len(value) <= NAME_MAX  # type: ignore[arg-type]
    return value is None or isinstance(value, (bool, float, datetime.tzinfo, datetime.timedelta))


def _uuid(_: Foreign, text: object = None) -> object:
    from uuid import UUID

    if text is None:
        # BUILD gives it its number.
        return object.__new__(UUID)
    if type(text) is not str or len(text) > NAME_MAX:
        raise refused("UUID")
    return UUID(text)


def _safe_uuid(_: Foreign, value: object) -> object:
    from uuid import SafeUUID

    if value is not None and type(value) is not int:
        raise refused("SafeUUID")
    return SafeUUID(value)


def _zone(_: Foreign, key: object, is_shared: object = True) -> object:
    from zoneinfo import ZoneInfo

    if type(key) is not str or len(key) > NAME_MAX:
        raise refused("ZoneInfo")
    return ZoneInfo(key) if is_shared else ZoneInfo.no_cache(key)


def _attribute(_: Foreign, owner: object, name: object) -> object:
    """Do the little for which pickles of plain values name `getattr`: a member of an enum, a time zone."""
    if isinstance(owner, partial) and name == "_unpickle" and owner.func is _zone:
        return owner
    if isinstance(owner, partial) and type(name) is str and owner.func is _safe_uuid:
        from uuid import SafeUUID

        if name in SafeUUID.__members__:
            return SafeUUID[name]
    return pickles.shared_member(owner, name)


def _encoded(_: Foreign, text: object, encoding: object) -> bytes:
    # Protocols up to 2 write bytes as a text. Other encodings of Python take quadratic time.
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise refused("bytes")
    return text.encode("latin-1")


def _bytes(_: Foreign, data: object = b"") -> bytes:
    # A number would be a size: ten bytes of pickle would make gigabytes.
    if type(data) is not bytes:
        raise refused("bytes")
    return data


def _bytearray(unpickler: Foreign, data: object = b"", encoding: object = None) -> bytearray:
    return bytearray(_bytes(unpickler, data) if encoding is None else _encoded(unpickler, data, encoding))


# The globals in pickles of values that the record format has.
STAND_INS: dict[str, Callable[..., object]] = {
    "builtins.complex": _complex,
    "builtins.set": _set,
    "builtins.frozenset": _frozenset,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.getattr": _attribute,
    "collections.Counter": _counter,
    "collections.OrderedDict": _ordered_dict,
    "collections.defaultdict": _default_dict,
    "decimal.Decimal": _decimal,
    **{
        f"datetime.{cls.__name__}": _when(cls)
        for cls in (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone)
    },
    "uuid.UUID": _uuid,
    "uuid.SafeUUID": _safe_uuid,
    "zoneinfo.ZoneInfo": _zone,
    "_codecs.encode": _encoded,
}
