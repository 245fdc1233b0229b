"""Is a database a dict, whatever is done to it in whatever order? Random operations against a plain dict.

The model is a dict from what orders a key to its first spelling and its value; records are changed in it as
plain dicts and lists. After each step everything stored is compared, to the last bit.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pellucid
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule
from values import field_names, fingerprint, keys, long_keys, order, plain, records, values

Model = dict[Any, tuple[Any, Any]]

# Few keys, so that most operations meet what others have done.
few_keys = (
    st.sampled_from(["a", "b", 1, 1.0, True, 2.5, ("a", 1), ("a", 1.0), None, b"\x00"]) | long_keys | keys
)
stored = records | records | values


def outcome(work: Callable[[], Any]) -> tuple[str, Any]:
    """What `work` returns or raises, as a dict or list would let us see it."""
    try:
        return "gives", fingerprint(plain(work()))
    except (KeyError, IndexError, ValueError) as error:
        return "raises", type(error)


def is_moved(handle: Any) -> bool:
    """Whether a handle stands for an element of a list that has other elements now."""
    try:
        len(handle)
    except KeyError as error:
        return "read it again" in str(error)
    return False


def containers_in(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all dicts and lists in a value, its own included."""
    found = [here] if isinstance(value, (dict, list)) else []
    if isinstance(value, dict):
        for key, element in value.items():
            found += containers_in(element, (*here, key))
    elif isinstance(value, (list, tuple)):
        for index, element in enumerate(value):
            found += containers_in(element, (*here, index))
    return found


def follow(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def dict_changes(data: st.DataObject, target: dict[Any, Any]) -> Callable[[Any], Any]:
    """A change of a dict, to be done to the record and to the model alike."""
    known = st.sampled_from(sorted(target, key=repr)) if target else field_names
    # NaN as a key equals nothing, not even what was stored.
    field = data.draw(known | field_names | st.integers(-2, 2))
    value = data.draw(values)
    fields = data.draw(records)
    changes: list[Callable[[Any], Any]] = [
        lambda it: it.__setitem__(field, value),
        lambda it: it.__delitem__(field),
        lambda it: it.pop(field),
        lambda it: it.pop(field, 7),
        lambda it: it.popitem(),
        lambda it: it.setdefault(field, value),
        lambda it: it.update(fields),
        lambda it: it.__ior__(fields) and None,
        lambda it: it.clear(),
        lambda it: it.get(field),
        list,
        len,
    ]
    return data.draw(st.sampled_from(changes))


def list_changes(data: st.DataObject, target: list[Any]) -> Callable[[Any], Any]:
    """A change of a list."""
    index = data.draw(st.integers(-len(target) - 1, len(target)))
    bound = st.none() | st.integers(-len(target) - 1, len(target) + 1)
    part = slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, -1])))
    value = data.draw(values)
    more = data.draw(st.lists(st.integers() | values, max_size=4))
    changes: list[Callable[[Any], Any]] = [
        lambda it: it.append(value),
        lambda it: it.append(5),
        lambda it: it.extend(more),
        lambda it: it.insert(index, value),
        lambda it: it.__setitem__(index, value),
        lambda it: it.__delitem__(index),
        lambda it: it.__setitem__(part, more),
        lambda it: it.__delitem__(part),
        lambda it: it.pop(),
        lambda it: it.pop(index),
        lambda it: it.reverse(),
        lambda it: it.sort(key=lambda element: repr(fingerprint(plain(element)))),
        lambda it: it.clear(),
        lambda it: it.__imul__(2) and None,
        lambda it: it.__iadd__(more) and None,
        lambda it: it[index],
        lambda it: list(map(plain, it[part])),
        len,
    ]
    return data.draw(st.sampled_from(changes))


def unshared(value: Any) -> Any:
    """A copy that meets nothing twice: `list *= 2` gives a list its parts again, a record copies of them."""
    if type(value) is dict:
        return {key: unshared(element) for key, element in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(unshared, value))
    return copy.deepcopy(value)


class DatabaseMachine(RuleBasedStateMachine):
    """What a user may do, in any order."""

    target = ":memory:"
    snapshots = Bundle("snapshots")

    @initialize()
    def open(self) -> None:
        self.db = pellucid.open(self.target)
        self.model: Model = {}
        # Of each transaction and savepoint: its context, and the model at its start.
        self.begun: list[tuple[Any, Model]] = []

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()

    def expected(self) -> list[Any]:
        return [[fingerprint(part) for part in self.model[place]] for place in sorted(self.model)]

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        if hasattr(self, "db"):
            assert [
                [fingerprint(key), fingerprint(plain(value))] for key, value in self.db.items()
            ] == self.expected()
            assert len(self.db) == len(self.model)

    # Rows

    @rule(key=few_keys, value=stored)
    def put(self, key: Any, value: Any) -> None:
        self.db[key] = value
        first, _ = self.model.get(order(key), (key, None))
        self.model[order(key)] = (first, copy.deepcopy(value))

    @rule(pairs=st.lists(st.tuples(few_keys, stored), max_size=4))
    def update(self, pairs: list[Any]) -> None:
        self.db.update(pairs)
        for key, value in pairs:
            first, _ = self.model.get(order(key), (key, None))
            self.model[order(key)] = (first, copy.deepcopy(value))

    @rule(key=few_keys)
    def delete(self, key: Any) -> None:
        there = order(key) in self.model
        assert (key in self.db) == there
        assert outcome(lambda: self.db.__delitem__(key)) == outcome(
            lambda: self.model.__delitem__(order(key))
        )

    @rule(key=few_keys)
    def pop(self, key: Any) -> None:
        assert outcome(lambda: self.db.pop(key)) == outcome(lambda: self.model.pop(order(key))[1])

    @rule()
    def popitem(self) -> None:
        if self.model:
            key, value = self.db.popitem()
            assert [fingerprint(key), fingerprint(value)] == [
                fingerprint(part) for part in self.model.pop(max(self.model))
            ]

    @rule(key=few_keys, value=stored)
    def setdefault(self, key: Any, value: Any) -> None:
        given = self.db.setdefault(key, value)
        _, expected = self.model.setdefault(order(key), (key, copy.deepcopy(value)))
        assert fingerprint(plain(given)) == fingerprint(expected)

    @rule()
    def clear(self) -> None:
        self.db.clear()
        self.model.clear()

    # What stands in rows

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def change_records_in_place(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(sorted(self.model)))
        key, value = self.model[place]
        if not isinstance(value, (dict, list)):
            return
        root = self.db[key]
        handles: dict[tuple[Any, ...], Any] = {}
        # The lists that were changed since, for each handle.
        changed: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for _ in range(data.draw(st.integers(1, 5))):
            path = data.draw(st.sampled_from(containers_in(value)))
            target = follow(value, path)
            # A handle from before the last changes shows them, too.
            handle = handles.setdefault(path, follow(root, path))
            if isinstance(target, list) != isinstance(handle, pellucid.RecordList) or is_moved(handle):
                # Only an element of a list that has been changed stands elsewhere.
                assert not is_moved(handle) or any(path[: len(other)] == other for other in changed[path])
                handle = handles[path] = follow(root, path)
                changed[path] = []
            changed.setdefault(path, [])
            if isinstance(target, list):
                for others in changed.values():
                    others.append(path)
            change = dict_changes(data, target) if isinstance(target, dict) else list_changes(data, target)
            before = copy.deepcopy(value)
            assert outcome(lambda: change(handle)) == outcome(lambda: change(target)), (before, path)  # noqa: B023
            assert fingerprint(plain(root)) == fingerprint(value), (before, path)
            value = unshared(value)
        self.model[place] = (key, value)

    # Transactions, snapshots, the file

    @rule()
    def begin(self) -> None:
        context = self.db.transaction()
        context.__enter__()
        self.begun.append((context, copy.deepcopy(self.model)))

    @precondition(lambda self: self.begun)
    @rule()
    def commit(self) -> None:
        context, _ = self.begun.pop()
        context.__exit__(None, None, None)

    @precondition(lambda self: self.begun)
    @rule()
    def roll_back(self) -> None:
        context, self.model = self.begun.pop()
        context.__exit__(KeyError, KeyError(), None)

    @rule(target=snapshots)
    def take_snapshot(self) -> Any:
        seen = self.begun[0][1] if self.begun else self.model
        return self.db.snapshot(), [[fingerprint(part) for part in seen[place]] for place in sorted(seen)]

    @rule(snapshot=snapshots)
    def look_at_snapshot(self, snapshot: Any) -> None:
        snap, expected = snapshot
        if snap is not None and not repr(snap).endswith("closed>"):
            assert [[fingerprint(key), fingerprint(plain(value))] for key, value in snap.items()] == expected

    @precondition(lambda self: not self.begun and self.target != ":memory:")
    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = pellucid.open(self.target)


class FileMachine(DatabaseMachine):
    """The same on disk, where it can be closed and opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.target = str(Path(self.folder) / "test.pel")

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


TestInMemory = DatabaseMachine.TestCase
TestInMemory.settings = settings(max_examples=60, stateful_step_count=15)
TestOnDisk = FileMachine.TestCase
TestOnDisk.settings = settings(max_examples=60, stateful_step_count=15)
