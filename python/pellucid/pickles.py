"""This module decides which pickles may be loaded, and limits what they can use.

It is the only module that imports pickle. `"allow"` loads any pickle with Python's own unpickler. A list of
globals loads a pickle that uses only these globals:

    "mypkg.models.Order"   this class or function, with its full name
    "mypkg.models.*"       the classes that the module mypkg.models itself defines, with nested classes

A wildcard allows no function, and nothing that the module imported. A class must confirm with its own
`__module__` and `__qualname__` that it is the class of that name. Dots lead only through classes, never
through a module or an object.

A list of names alone is not safe, because a pickle can also call and change what it gets. So there are two
more rules. A pickle may call only a global of the list, not an object that it made (an `operator.attrgetter`
reaches everything). A pickle may fill, or set the state of, only an object that it made. It may not change a
class, a function or an enum member, because the whole process shares these. CPython's native unpickler cannot
do these checks. Its Python version can, but it is slower.
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import io
import itertools
import pickle
import struct
import sys
import types
from fnmatch import fnmatchcase

from pellucid import renames
from pellucid.errors import CorruptRecord, Error, PickleDenied, UnreadableValue, UnsupportedValue

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = [
    "ADDITEMS",
    "BUILD",
    "DAMAGED",
    "DEFAULT_PROTOCOL",
    "NEWOBJ",
    "REDUCE",
    "SIZE_PER_BYTE",
    "DamagedPickle",
    "Instructions",
    "Restricted",
    "check_globals",
    "decode",
    "dumps",
    "encode",
    "load_any",
    "loads",
    "shared_member",
    "wanted",
]

# A shelf over a mapping of the caller's own pickles as shelve does: there is no policy to ask.
DEFAULT_PROTOCOL = pickle.DEFAULT_PROTOCOL
dumps = pickle.dumps
loads = pickle.loads
# The bytes of instructions that the unpickler of plain values does in its own way.
REDUCE, NEWOBJ, BUILD, ADDITEMS = pickle.REDUCE[0], pickle.NEWOBJ[0], pickle.BUILD[0], pickle.ADDITEMS[0]

DAMAGED = "a stored pickle is damaged: "
# Buffers of this many bytes or more lie beside their pickle, where they can be read in place.
BUFFER_SIZE_MIN = 4096
WILDCARDS = frozenset("*?[")
BOUND_METHODS = (types.MethodType, types.BuiltinMethodType)
MISSING = object()
# The process shares these, or they hand over to what it shares what is set in them.
SHARED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.GenericAlias,
    staticmethod,
    classmethod,
    property,
    super,
)


class Unpicklable(UnsupportedValue, pickle.PicklingError):
    """A value that pickle cannot write, either: an `UnsupportedValue`, and what pickle itself raises."""


class DamagedPickle(CorruptRecord, pickle.UnpicklingError):
    """A stored pickle that is damaged: a `CorruptRecord`, and what pickle itself raises."""


def encode(
    value: object,
    policy: str | tuple[str, ...],
    advise: Callable[[object], str | None] = lambda _: None,
    *,
    is_fast: bool = False,
    parts: list[object] | None = None,
) -> tuple[bytes, tuple[bytes, ...]]:
    """The pickle of a value, if `policy` allows to load it again, and the large buffers beside it.

    Where there is none, `advise` says what to store instead. With `is_fast`, the pickle has no memo. `parts`
    gets the objects of the memo: those that the pickle would not repeat.
    """
    cls = type(value)
    try:
        data, buffers = _dumps(value, is_fast, parts)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        # The native encoder puts the place in front of it.
        instead = advise(value)
        raise Unpicklable(
            f", of type {cls.__module__}.{cls.__qualname__}, cannot be pickled: {error}"
            + (f"; {instead}" if instead else "")
        ) from error
    if not isinstance(policy, str):
        # Refuse now what the same policy could not read back later.
        try:
            decode(data, policy, buffers)
        except PickleDenied as error:
            why = str(error).replace("a stored pickle", "its pickle", 1)
            raise PickleDenied(
                f", of type {cls.__module__}.{cls.__qualname__}, would be a pickle that cannot be read back: "
                f"{why}"
            ) from None
        except DamagedPickle as error:
            raise UnsupportedValue(
                f", of type {cls.__module__}.{cls.__qualname__}, would be a pickle that cannot be read back: "
                f"{str(error).removeprefix(DAMAGED)}"
            ) from error.__cause__
    return data, buffers


def _dumps(value: object, is_fast: bool, parts: list[object] | None) -> tuple[bytes, tuple[bytes, ...]]:
    buffers: list[bytes] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        # What is not contiguous stays in the pickle.
        try:
            data = buffer.raw()
        except BufferError:
            return True
        if data.nbytes < BUFFER_SIZE_MIN:
            return True
        buffers.append(bytes(data))
        return False

    if not is_fast and parts is None:
        data = pickle.dumps(value, protocol=5, buffer_callback=is_small)
        return data, tuple(buffers)
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5, buffer_callback=is_small)
    pickler.fast = is_fast
    try:
        pickler.dump(value)
    except (ValueError, RecursionError) as error:
        if is_fast and ("cyclic" in str(error) or isinstance(error, RecursionError)):
            raise pickle.PicklingError(
                "with fast=True, no object may contain itself, and this one does; open without fast=True"
            ) from error
        raise
    if parts is not None:
        memo = [part for _, part in pickler.memo.copy().values()]
        # The dict of an instance is no part beside the instance.
        own = {id(_own_dict(part)) for part in memo}
        parts.extend(part for part in memo if id(part) not in own)
    return stream.getvalue(), tuple(buffers)


def _own_dict(value: object) -> object:
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def wanted(data: bytes) -> str | None:
    """The first class or function that a pickle names, mostly that of its object; runs nothing of it."""
    import pickletools

    texts: list[str] = []
    try:
        for operation, argument, _ in itertools.islice(pickletools.genops(data), 100):
            if operation.name == "GLOBAL":
                return str(argument).replace(" ", ".")
            if operation.name == "STACK_GLOBAL":
                return ".".join(texts[-2:]) if len(texts) > 1 else None
            if "UNICODE" in operation.name:
                texts.append(str(argument))
    except Exception:  # Whatever is wrong with it: this is for a message alone.
        return None
    return None


def decode(data: bytes, policy: str | tuple[str, ...], buffers: tuple[object, ...] | None = None) -> object:
    """Return the object of a stored pickle, if `policy` ("allow" or a list) allows all globals that it names.

    `buffers` are those that lie beside the pickle.

    A damaged pickle raises `DamagedPickle`.
    """
    if policy != "allow":
        return Restricted(data, tuple(policy), buffers).load()
    try:
        if renames.is_used():
            return _Renaming(io.BytesIO(data), buffers=buffers).load()
        return pickle.loads(data, buffers=buffers)  # noqa: S301  the user has said so
    except (pickle.UnpicklingError, EOFError, struct.error) as error:
        raise DamagedPickle(f"{DAMAGED}{error}") from error
    except (ImportError, AttributeError) as error:
        missing = _missing(data)
        if missing is None:
            raise
        raise UnreadableValue(missing) from error


class _Renaming(pickle.Unpickler):
    """Python's own unpickler, which looks up the classes that have moved."""

    def find_class(self, module: str, name: str) -> object:
        old = f"{module}.{name}"
        new = renames.new_name(old)
        return super().find_class(*((module, name) if new == old else renames.split(new)))


def _globals_in(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each class or function that a pickle wants; runs nothing of it."""
    import pickletools

    # What was pushed, and what was noted for later, where it is a text.
    pushed: list[str | None] = []
    memo: dict[int, str | None] = {}
    argument: Any
    for operation, argument, _ in pickletools.genops(data):
        if operation.name == "GLOBAL":
            module, _, name = str(argument).partition(" ")
            yield module, name
            pushed.append(None)
        elif operation.name == "STACK_GLOBAL":
            names = [text for text in pushed[-2:] if text is not None]
            if len(names) == 2:
                yield names[0], names[1]
            pushed.append(None)
        elif operation.name == "MEMOIZE":
            memo[len(memo)] = pushed[-1] if pushed else None
        elif "PUT" in operation.name:
            memo[int(argument)] = pushed[-1] if pushed else None
        elif "GET" in operation.name:
            pushed.append(memo.get(int(argument)))
        else:
            pushed.append(argument if "UNICODE" in operation.name else None)


def _missing(data: bytes) -> str | None:
    """Say which class or function a pickle wants that is not there; None if all are."""
    for module, name in _globals_in(data):
        new = renames.new_name(f"{module}.{name}")
        holder, rest = (module, name) if new == f"{module}.{name}" else renames.split(new)
        try:
            found: Any = importlib.import_module(holder)
            for part in rest.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            return (
                f"a stored pickle wants {new!r}, which is not there: {error}; if it has moved, say "
                f"pellucid.rename_classes({{{new!r}: 'its.new.Name'}})"
            )
    return None


def load_any(file: io.BytesIO, encoding: str) -> object:
    """Return the next object of a file of pickles that another program wrote, whatever globals they name.

    `encoding` is that of the strings of Python 2.
    """
    begin = file.tell()
    try:
        if renames.is_used():
            return _Renaming(file, encoding=encoding).load()
        return pickle.load(file, encoding=encoding)  # noqa: S301  the user has said so
    except (pickle.UnpicklingError, EOFError, struct.error) as error:
        raise DamagedPickle(f"{DAMAGED}{error}") from error
    except (ImportError, AttributeError) as error:
        missing = _missing(file.getvalue()[begin:])
        if missing is None:
            raise
        raise UnreadableValue(missing) from error


def check_globals(names: tuple[str, ...]) -> None:
    """Raise `ValueError` for a name in `pickle=[...]` that cannot name a global."""
    for name in names:
        module, _, last = name.rpartition(".")
        if not module or not last:
            raise ValueError(
                f"pickle=[{name!r}] names no global; write the module before the name, as in "
                '"decimal.Decimal" or "mypkg.models.*"'
            )
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise ValueError(f"pickle=[{name!r}] names no global; no module has a surrogate in its name")
        if WILDCARDS.intersection(module):
            raise ValueError(
                f"pickle=[{name!r}] has a wildcard in the module's name; a wildcard may only follow the last "
                'dot, as in "mypkg.models.*": list the modules one by one'
            )


class Globals:
    """The globals of a list: full names, and wildcards as (module or class, pattern)."""

    def __init__(self, names: tuple[str, ...]) -> None:
        check_globals(names)
        self.listed = list(names)
        self.in_full = frozenset(name for name in names if not WILDCARDS.intersection(name))
        self.patterns = [tuple(name.rsplit(".", 1)) for name in names if WILDCARDS.intersection(name)]

    def has_match(self, module: str, name: str) -> bool:
        """Say whether a wildcard covers `name` of `module`: `a.*` covers classes of `a`, not of `a.b`."""
        full_name = f"{module}.{name}"
        for holder, pattern in self.patterns:
            if not f"{holder}.".startswith(f"{module}.") or not full_name.startswith(f"{holder}."):
                continue
            if fnmatchcase(full_name[len(holder) + 1 :].split(".")[0], pattern):
                return True
        return False

    def find(self, module: str, name: str) -> object:
        """Return the class or function; raise `PickleDenied` if the list does not have it."""
        full_name = f"{module}.{name}"
        is_in_full = full_name in self.in_full
        if not is_in_full and not self.has_match(module, name):
            raise PickleDenied(
                f"a stored pickle wants {full_name!r}, which is not among the allowed globals "
                f"{self.listed}; add it to pickle=[...] if you trust it"
            )
        found = _member(module, name, is_in_full)
        if _is_class(found):
            own_name = f"{_type_module(found)}.{_type_qualname(found)}"
            if is_in_full or own_name == full_name:
                return found
            raise PickleDenied(
                f"a stored pickle wants {full_name!r}, which is another name for {own_name!r}; a wildcard "
                f"allows only the classes that a module itself defines: add {full_name!r} to pickle=[...] if "
                "you trust it"
            )
        if is_in_full and callable(found):
            return found
        kind = type(found).__name__
        raise PickleDenied(
            f"a stored pickle wants {full_name!r}, which is a {kind} and not a class; a wildcard in "
            "pickle=[...] allows classes, and a full name allows a class or a function"
        )


def _is_class(value: object) -> bool:
    # Do not use isinstance(), which asks the object itself for its class.
    return issubclass(type(value), type)


# What `type` stores for a class, whatever its metaclass says.
_type_module: Callable[[Any], object] = type.__dict__["__module__"].__get__
_type_qualname: Callable[[Any], object] = type.__dict__["__qualname__"].__get__
_type_members: Callable[[Any], Any] = type.__dict__["__dict__"].__get__


def _member(module: str, name: str, is_in_full: bool) -> object:
    """Return the object called `name` in `module`, without running code of the objects on the path."""
    try:
        __import__(module)
        holder: Any = sys.modules[module]
    except (ImportError, KeyError, ValueError) as error:
        raise PickleDenied(
            f"a stored pickle wants '{module}.{name}', and its module cannot be imported: {error}"
        ) from error
    first, *nested = name.split(".")
    found: Any = vars(holder).get(first, MISSING)
    if found is MISSING:
        # Some modules create a name when it is first asked for. This runs their code.
        found = getattr(holder, first, MISSING) if is_in_full else MISSING
        if found is MISSING:
            raise _not_there(module, name)
    for part in nested:
        if not _is_class(found):
            raise PickleDenied(
                f"a stored pickle wants '{module}.{name}', which leads through a {type(found).__name__}; "
                "dots in the names of globals lead through classes only"
            )
        members = _type_members(found)
        if part not in members:
            raise _not_there(module, name)
        found = members[part]
        if isinstance(found, staticmethod):
            found = found.__func__
    return found


def _not_there(module: str, name: str) -> PickleDenied:
    return PickleDenied(f"a stored pickle wants {name!r}, which module {module!r} does not have")


@functools.lru_cache(maxsize=64)
def _globals_of(names: tuple[str, ...]) -> Globals:
    return Globals(names)


# Most objects that a tuple, and all keys together, may come to: these, and SIZE_PER_BYTE for each byte.
SIZE_MAX = 1_000_000
SIZE_PER_BYTE = 64
# Python hashes tuples inside each other with a call for each, on a stack that it does not check.
DEPTH_MAX = 1000

# Typed as Any, because type checkers know little about the Python version of the unpickler.
_Unpickler: Any = pickle._Unpickler


# The measure of what is neither a tuple nor a frozenset.
LEAF = (None, 1, 0)


class Instructions(dict):  # type: ignore[type-arg]
    """The functions of an unpickler, by the byte of the instruction."""

    def __missing__(self, code: int) -> object:
        raise pickle.UnpicklingError(f"no instruction has the byte {code:#04x}")


class Restricted(_Unpickler):  # type: ignore[misc]
    """An unpickler that lets a pickle call the globals of a list, but not change them."""

    dispatch = Instructions(_Unpickler.dispatch)

    def __init__(
        self,
        data: bytes,
        names: tuple[str, ...],
        buffers: tuple[object, ...] | None = None,
        file: io.BytesIO | None = None,
        encoding: str = "ASCII",
    ) -> None:
        super().__init__(io.BytesIO(data) if file is None else file, buffers=buffers, encoding=encoding)
        self.globals = _globals_of(names)
        # The key is the address, because some classes have no hash. The value keeps the object alive.
        self.given: dict[int, object] = {}
        # How many objects each tuple and frozenset comes to, written out, and how deep they are inside each
        # other; the key is the address, as above.
        self.sizes: dict[int, tuple[object, int, int]] = {}
        self.size_max = SIZE_MAX + SIZE_PER_BYTE * len(data)
        self.hashed_size = 0

    def load(self) -> object:
        """Return the next object; raise `DamagedPickle` or `PickleDenied`."""
        try:
            return super().load()
        except (Error, MemoryError):
            raise
        except IndexError as error:
            # An instruction found fewer items on the stack than it needs.
            raise DamagedPickle(f"{DAMAGED}its stack is too short") from error
        except (pickle.UnpicklingError, EOFError, struct.error) as error:
            raise DamagedPickle(f"{DAMAGED}{error}") from error
        except Exception as error:
            raise DamagedPickle(f"{DAMAGED}{type(error).__name__}: {error}") from error

    def current_name(self, module: str, name: str) -> tuple[str, str]:
        """Return the name that a global has today: pickles of old protocols have the names of Python 2."""
        if self.proto < 3:
            import _compat_pickle as compat

            if (module, name) in compat.NAME_MAPPING:
                return compat.NAME_MAPPING[module, name]
            return compat.IMPORT_MAPPING.get(module, module), name
        return module, name

    def find_class(self, module: str, name: str) -> object:
        """Return the class or function that the pickle names, if the list allows it."""
        module, name = self.current_name(module, name)
        old = f"{module}.{name}"
        new = renames.new_name(old)
        if new != old:
            module, name = renames.split(new)
        if (module, name) == ("builtins", "getattr") and "builtins.getattr" not in self.globals.in_full:
            found: object = shared_member
        else:
            found = self.globals.find(module, name)
        self.given[id(found)] = found
        return found

    def get_extension(self, code: int) -> None:
        """Push the class or function of an extension code, if the list allows it."""
        # Never use the cache of extensions: other unpicklers, without a list, fill it.
        registered = copyreg._inverted_registry.get(code)  # type: ignore[attr-defined]
        if registered is None:
            raise ValueError(f"a stored pickle has the extension code {code}, which is not registered")
        self.append(self.find_class(*registered))

    def check_callable(self, function: Any) -> None:
        """Raise unless `function` is a global that the pickle got, or a class method of one."""
        if id(function) in self.given:
            return
        if type(function) in BOUND_METHODS:
            owner = function.__self__
            if _is_class(owner) and id(owner) in self.given:
                return
        raise PickleDenied(
            f"a stored pickle calls a {type(function).__name__} object that it made itself; under a list of "
            "globals, it may call only these"
        )

    def check_made(self, target: object) -> None:
        """Raise if the pickle is about to change `target`, and the whole process shares `target`."""
        enum = sys.modules.get("enum")
        is_member = enum is not None and isinstance(target, enum.Enum)
        if is_member or id(target) in self.given or isinstance(target, SHARED):
            raise PickleDenied(
                f"a stored pickle changes {target!r}, which it did not make; under a list of globals, it may "
                "change only its own objects"
            )

    def _instantiate(self, cls: object, arguments: object) -> None:
        # These are the instructions INST and OBJ, of protocols 0 and 1.
        self.check_callable(cls)
        super()._instantiate(cls, arguments)
        self.measure(self.stack[-1])

    def size_of(self, value: object) -> int:
        """Return how many objects `value` comes to, if those that occur twice count twice."""
        return self.sizes.get(id(value), LEAF)[1]

    def measure(self, made: object) -> None:
        """Note the size of a new tuple or frozenset, which Python may hash and compare as a whole.

        45 tuples that each hold the one before twice come to 2**45 objects, and Python visits each of them,
        without a look at signals.
        """
        if isinstance(made, tuple):
            parts = tuple.__iter__(made)
        elif isinstance(made, frozenset):
            parts = frozenset.__iter__(made)
        else:
            return
        size, depth = 1, 1
        for part in parts:
            _, more, levels = self.sizes.get(id(part), LEAF)
            size += more
            depth = max(depth, levels + 1)
        self.check_measure(size, depth)
        self.sizes[id(made)] = (made, size, depth)

    def check_measure(self, size: int, depth: int) -> None:
        """Raise if an object comes to more objects than a pickle of this size can need, or is too deep."""
        if size > self.size_max:
            raise DamagedPickle(
                f"{DAMAGED}a few objects of it come to {size:,}, each inside others many times"
            )
        if depth > DEPTH_MAX:
            raise DamagedPickle(f"{DAMAGED}its objects are inside each other {DEPTH_MAX:,} times and more")

    def check_keys(self, keys: list[object]) -> None:
        """Raise if the keys of dicts and sets come to more objects than a pickle of this size can need."""
        self.hashed_size += sum(map(self.size_of, keys))
        if self.hashed_size > self.size_max:
            raise pickle.UnpicklingError(
                f"its keys come to more than {self.size_max:,} objects, each inside others many times"
            )

    def load_bytearray8(self) -> None:
        """Read a bytearray, without making room first for the length that the pickle claims."""
        (size,) = struct.unpack("<Q", self.read(8))
        data = self.read(min(size, sys.maxsize))
        if len(data) < size:
            raise pickle.UnpicklingError("a bytearray is cut off")
        self.append(bytearray(data))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8


def _guard(code: bytes, check: str, operand: Callable[[Restricted], object]) -> None:
    """Make an instruction check one of its operands before it runs."""
    run = Restricted.dispatch[code[0]]

    def checked(unpickler: Restricted) -> None:
        getattr(unpickler, check)(operand(unpickler))
        run(unpickler)

    Restricted.dispatch[code[0]] = checked


for _code, _depth in ((pickle.REDUCE, 2), (pickle.NEWOBJ, 2), (pickle.NEWOBJ_EX, 3)):
    _guard(_code, "check_callable", lambda unpickler, depth=_depth: unpickler.stack[-depth])  # type: ignore[misc]
for _code, _depth in ((pickle.BUILD, 2), (pickle.APPEND, 2), (pickle.SETITEM, 3)):
    _guard(_code, "check_made", lambda unpickler, depth=_depth: unpickler.stack[-depth])  # type: ignore[misc]
for _code in (pickle.APPENDS, pickle.SETITEMS, pickle.ADDITEMS):
    # Their operands are after a mark on the stack, and the target is before it.
    _guard(_code, "check_made", lambda unpickler: unpickler.metastack[-1][-1])


def _measured(code: bytes) -> None:
    """Make an instruction note the size of what it made."""
    run = Restricted.dispatch[code[0]]

    def measured(unpickler: Restricted) -> None:
        run(unpickler)
        unpickler.measure(unpickler.stack[-1])

    Restricted.dispatch[code[0]] = measured


for _code in (pickle.SETITEMS, pickle.DICT):
    _guard(_code, "check_keys", lambda unpickler: unpickler.stack[::2])
for _code in (pickle.ADDITEMS, pickle.FROZENSET):
    _guard(_code, "check_keys", lambda unpickler: unpickler.stack)
_guard(pickle.SETITEM, "check_keys", lambda unpickler: unpickler.stack[-2:-1])
for _code in (
    *(pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.FROZENSET),
    *(pickle.REDUCE, pickle.NEWOBJ, pickle.NEWOBJ_EX),
):
    _measured(_code)


def shared_member(cls: object, name: object) -> object:
    """Do the little for which pickles name `getattr`: members of enums (of 3.11.0 to 3.11.3), time zones."""
    import enum
    from zoneinfo import ZoneInfo

    if cls is ZoneInfo and name == "_unpickle":
        return ZoneInfo._unpickle  # type: ignore[attr-defined]
    if isinstance(cls, enum.EnumMeta) and type(name) is str and name in cls.__members__:
        return cls.__members__[name]
    raise PickleDenied(f"a stored pickle wants the attribute {name!r} of an object, which can reach anything")
