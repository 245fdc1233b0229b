"""Is there an order in which what concurrent clients have seen makes sense?

Strict serializability of a map: every operation, a transaction too, takes effect at one moment between its
call and its return, and sees what all operations before it have left. The search is that of Wing and Gong
with Lowe's memory of what was tried: it takes any operation as the next one that was called before the
first of the others returned, and goes back where that leads to nothing. Exhaustive, so it is for histories
of some hundred operations on a few keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

State = tuple[Any, ...]
"""The value of each key, `None` where there is none."""


@dataclass(frozen=True)
class Event:
    """What a client did and saw; where it died meanwhile, `returned` is `None`, and it happened or not."""

    client: int
    called: int
    returned: int | None
    kind: str
    arguments: tuple[Any, ...]
    result: Any = None


def _set(state: State, key: int, value: Any) -> State:
    return (*state[:key], value, *state[key + 1 :])


def _get(state: State, key: int) -> tuple[Any, State]:
    return state[key], state


def _put(state: State, key: int, value: Any) -> tuple[Any, State]:
    return None, _set(state, key, value)


def _delete(state: State, key: int) -> tuple[Any, State]:
    return state[key], _set(state, key, None)


def _bump(state: State, key: int) -> tuple[Any, State]:
    return state[key], _set(state, key, (state[key] or 0) + 1)


def _compare_and_set(state: State, key: int, expected: Any, value: Any) -> tuple[Any, State]:
    return state[key], _set(state, key, value) if state[key] == expected else state


def _move(state: State, key: int, other: int, value: Any) -> tuple[Any, State]:
    return [state[key], state[other]], _set(_set(state, other, state[key]), key, value)


def _put_unless(state: State, key: int, other: int, value: Any) -> tuple[Any, State]:
    return [state[key], state[other]], _set(state, key, value) if state[other] is None else state


def _undone(state: State, key: int, _value: Any) -> tuple[Any, State]:
    return state[key], state


def _range(state: State, start: int, stop: int) -> tuple[Any, State]:
    return [[key, state[key]] for key in range(start, stop) if state[key] is not None], state


def _count(state: State) -> tuple[Any, State]:
    return sum(value is not None for value in state), state


KINDS: dict[str, Callable[..., tuple[Any, State]]] = {
    "get": _get,
    "put": _put,
    "delete": _delete,
    "bump": _bump,
    "compare and set": _compare_and_set,
    "move": _move,
    "put unless": _put_unless,
    "undone": _undone,
    "range": _range,
    "count": _count,
}
"""What each kind of operation returns, and what it leaves."""


def order_of(events: list[Event], state: State) -> list[Event] | None:
    """An order of all that returned, and of what else must have happened; `None` where there is none."""
    events = sorted(events, key=lambda event: event.called)
    wanted = sum(1 << index for index, event in enumerate(events) if event.returned is not None)
    tried: set[tuple[int, State]] = set()
    path: list[int] = []
    # What has happened, and which operations can be next and were not tried yet.
    stack = [(0, state, _next(events, 0))]
    while stack:
        done, state, candidates = stack[-1]
        if done & wanted == wanted:
            return [events[index] for index in path]
        if not candidates:
            stack.pop()
            if path:
                path.pop()
            continue
        index = candidates.pop()
        event = events[index]
        result, after = KINDS[event.kind](state, *event.arguments)
        if event.returned is not None and result != event.result:
            continue
        mark = (done | 1 << index, after)
        if mark not in tried:
            tried.add(mark)
            path.append(index)
            stack.append((*mark, _next(events, mark[0])))
    return None


def _next(events: list[Event], done: int) -> list[int]:
    """Those called before any other that is left returned; the first of them last, to be tried first."""
    found: list[int] = []
    first_return = min(
        (
            event.returned
            for index, event in enumerate(events)
            if not done >> index & 1 and event.returned is not None
        ),
        default=None,
    )
    for index, event in enumerate(events):
        if done >> index & 1:
            continue
        if first_return is not None and event.called > first_return:
            break
        found.append(index)
    return found[::-1]
