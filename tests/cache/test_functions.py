"""Does a cache keep results of functions, computed once by one of many callers?"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy
import pandas
import pellucid
import processes
import pytest
from pellucid.cache import core, flights, functions

LIMIT = 32 << 20


@pytest.fixture(params=["file", "memory"])
def cache(request: pytest.FixtureRequest, path: Path) -> Iterator[pellucid.Cache]:
    with pellucid.Cache(path if request.param == "file" else ":memory:") as opened:
        yield opened


def square(number: int) -> int:
    return number * number


def test_a_result_is_computed_once(cache: pellucid.Cache) -> None:
    calls = []

    @cache.memoize(expire=60, tag="t")
    def call(*arguments: Any, **keywords: Any) -> Any:
        calls.append((arguments, keywords))
        return {"arguments": arguments, "keywords": keywords}

    for arguments, keywords in [((1, "a"), {}), ((), {"b": 1, "a": 2}), (([1], {"x": (1,)}), {"k": {2}})]:
        first = call(*arguments, **keywords)
        again = call(*arguments, **keywords)
        assert first == again == {"arguments": arguments, "keywords": keywords}
        assert type(first) is type(again)
    assert call(a=2, b=1) == call(b=1, a=2)
    assert len(calls) == 3
    assert cache.evict("t") == 3
    assert call.__name__ == "call"
    assert call.__wrapped__(1)["arguments"] == (1,)


def test_the_key_of_a_call_finds_its_entry(cache: pellucid.Cache) -> None:
    kept = cache.memoize()(square)
    for argument in (3, 2**70):
        assert kept(argument) == argument * argument
        assert cache.pop(kept.__cache_key__(argument)) == argument * argument
    assert kept.__cache_key__(3) == (f"{__name__}.square", (3,))


def test_arguments_that_make_no_difference_are_left_out(cache: pellucid.Cache) -> None:
    @cache.memoize(ignore={0, "log"})
    def call(handle: object, number: int, log: object = None) -> int:
        return number

    assert call(object(), 1, log=object()) == call(None, 1) == 1
    assert len(cache) == 1

    typed = cache.memoize(typed=True, name="typed")(lambda value: [value])
    assert (type(typed(1)[0]), type(typed(1.0)[0]), type(typed(True)[0])) == (int, float, bool)


def test_an_argument_without_a_digest_is_refused_before_the_function_runs(cache: pellucid.Cache) -> None:
    @cache.memoize()
    def call(argument: object) -> int:
        raise AssertionError("it ran")

    with pytest.raises(pellucid.UnsupportedKey, match=r"call.*ignore="):
        call(object())


def test_keys_of_other_libraries_are_arguments(cache: pellucid.Cache) -> None:
    moment = pandas.Timestamp("2020-01-01")
    kept = cache.memoize(name="year")(lambda moment: moment.year)
    assert (kept(moment), kept(moment), len(cache)) == (2020, 2020, 1)


def test_long_arguments_are_in_the_key_by_their_digest(cache: pellucid.Cache) -> None:
    kept = cache.memoize(name="size")(len)
    assert kept("x" * 10_000) == kept("x" * 10_000) == 10_000
    assert len(repr(kept.__cache_key__("x" * 10_000))) < 100


def test_memoize_without_brackets_and_nameless_functions_are_refused(cache: pellucid.Cache) -> None:
    with pytest.raises(TypeError, match="brackets"):
        cache.memoize(square)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name="):
        cache.memoize()(lambda: 0)
    with pytest.raises(ValueError, match="expire="):
        cache.memoize(stale=1)(square)


def test_a_version_keeps_results_apart_and_a_redefinition_is_told(cache: pellucid.Cache) -> None:
    def make(name: str, code: str) -> Any:
        names: dict[str, Any] = {"__name__": "some.module"}
        exec(code, names)  # noqa: S102
        return names[name]

    assert cache.memoize()(make("f", "def f(): return 1"))() == 1
    assert cache.memoize()(make("f", "\n\ndef f(): return 1"))() == 1
    with pytest.warns(pellucid.DatabaseWarning, match="version="):
        assert cache.memoize()(make("f", "def f(): return 2"))() == 1
    assert cache.memoize(version=2)(make("f", "def f(): return 2"))() == 2
    assert cache.memoize(name="g")(make("f", "def f(): return 3"))() == 3


def test_positional_and_keyword_arguments_are_told_apart(cache: pellucid.Cache) -> None:
    @cache.memoize()
    def call(*arguments: Any, **keywords: Any) -> list[Any]:
        return [len(arguments), len(keywords)]

    assert (call((1,), {"a": 1}), call(1, a=1)) == ([2, 0], [1, 1])


@dataclasses.dataclass
class Times:
    factor: int

    def method(self, number: int) -> int:
        return self.factor * number


class WithoutDigest:
    def method(self) -> None:
        """Do nothing."""


def test_methods_are_told_apart_by_what_they_are_bound_to(cache: pellucid.Cache) -> None:
    assert [cache.memoize()(Times(factor).method)(5) for factor in (2, 3)] == [10, 15]
    assert [cache.memoize()(text.upper)() for text in ("a", "b")] == ["A", "B"]
    with pytest.raises(ValueError, match="pass name="):
        cache.memoize()(WithoutDigest().method)
    assert cache.memoize(name="m")(WithoutDigest().method)() is None


def test_functions_inside_a_function_are_told_apart_by_what_they_close_over(cache: pellucid.Cache) -> None:
    def power(exponent: int) -> Any:
        @cache.memoize()
        def call(number: int) -> int:
            return number**exponent

        return call

    assert (power(2)(3), power(3)(3), power(2)(3)) == (9, 27, 9)

    def after(function: Callable[[int], int], number: int = 0) -> Any:
        def call(given: int, /, *, more: int = number) -> int:
            return function(given) + more

        def wrapped(given: int) -> int:
            return call(given)

        return cache.memoize()(call), cache.memoize()(functools.wraps(square)(wrapped))

    # Their code and their names are the same. They differ in a default, and in functions that have no name.
    for kept in zip(after(lambda n: n), after(lambda n: n, 1), after(lambda n: -n), strict=True):
        assert [each(5) for each in kept] == [5, 6, -5]


MAIN = """
import pellucid, sys
cache = pellucid.Cache(sys.argv[1])
@cache.memoize()
def double(number):
    return [number, {value}]
print(double(4), *list(cache)[0][:1])
cache.close()
"""


def test_functions_of_programs_go_by_their_files(path: Path, tmp_path: Path) -> None:
    def run(name: str, value: int) -> str:
        program = tmp_path / name
        program.write_text(MAIN.replace("{value}", str(value)))
        command = [sys.executable, str(program), str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    first = run("one.py", 1)
    assert first.startswith("[4, 1]")
    assert "one.py.double" in first
    assert run("two.py", 2).startswith("[4, 2]")
    assert run("one.py", 3) == first


@dataclasses.dataclass
class Pet:
    name: str
    legs: int


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Person:
    name: str
    pets: list[Pet]
    colour: Colour = Colour.RED


def test_a_spawned_process_finds_the_results_of_its_program(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, os, sys, pellucid\n"
        "cache = pellucid.Cache(sys.argv[1])\n"
        "@cache.memoize()\n"
        "def process(): return os.getpid()\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(process() == pool.apply(process), len(cache))\n"
    )
    done = subprocess.run([sys.executable, program, path], capture_output=True, text=True, check=True)
    assert done.stdout == "True 1\n"


def test_instances_come_back_as_the_annotation_says(cache: pellucid.Cache) -> None:
    calls = []

    @cache.memoize()
    def person(name: str) -> Person:
        calls.append(name)
        return Person(name, [Pet("Rex", 4)])

    @cache.memoize()
    def people(*names: str) -> dict[str, Person] | None:
        calls.append(names)
        return {name: Person(name, []) for name in names}

    assert person("ann") == person("ann") == Person("ann", [Pet("Rex", 4)])
    assert type(person("ann").colour) is Colour
    assert people("a", "b") == people("a", "b") == {"a": Person("a", []), "b": Person("b", [])}
    assert len(calls) == 2


def test_instances_come_back_where_type_names_the_class(cache: pellucid.Cache) -> None:
    struct = msgspec.defstruct("Point", [("x", int)])
    calls = []

    @cache.memoize(type=list[struct])
    def points(count):  # type: ignore[no-untyped-def]
        calls.append(count)
        return [struct(x) for x in range(count)]

    assert points(3) == points(3) == [struct(0), struct(1), struct(2)]
    assert calls == [3]


def test_instances_that_the_annotation_does_not_name_stay_instances(cache: pellucid.Cache) -> None:
    @cache.memoize()
    def call() -> list:  # type: ignore[type-arg]
        return [Pet("Rex", 4)]

    with pytest.warns(pellucid.DatabaseWarning, match="is not kept"):
        assert call() == [Pet("Rex", 4)]
    assert call() == [Pet("Rex", 4)]


def test_a_result_that_cannot_be_stored_is_returned_with_one_warning(cache: pellucid.Cache) -> None:
    calls = []

    @cache.memoize()
    def call(number: int) -> Any:
        calls.append(number)
        return (each for each in range(number))

    with pytest.warns(pellucid.DatabaseWarning, match="computed each time") as caught:
        assert list(call(3)) == list(call(3)) == [0, 1, 2]
    assert len(caught) == 1
    assert calls == [3, 3]


@pytest.mark.filterwarnings("ignore:a result of")
def test_callers_do_not_wait_for_a_result_that_cannot_be_stored(cache: pellucid.Cache) -> None:
    many = 5
    all_at_once, begun, first = threading.Barrier(many - 1), threading.Barrier(many), iter([True])

    def compute() -> Any:
        if next(first, False):
            # Time for the others to wait for this one.
            time.sleep(0.2)
        else:
            all_at_once.wait(60)
        return iter(range(3))

    memoized = cache.memoize()(compute)

    def call(by_key: bool) -> list[int]:
        begun.wait(60)
        return list(cache.get_or_create("key", compute) if by_key else memoized())

    with ThreadPoolExecutor(many) as pool:
        for by_key in (False, True):
            assert list(pool.map(call, [by_key] * many)) == [[0, 1, 2]] * many
            first = iter([True])
            assert ("key" in cache, len(cache)) == (False, 0)


@pytest.mark.filterwarnings("ignore:a result of", "ignore:a value of")
@pytest.mark.parametrize("how", ["other key", "too large"])
def test_one_of_many_callers_computes_what_can_be_stored_beside_what_cannot(path: Path, how: str) -> None:
    calls, many = [], 4
    all_at_once = threading.Barrier(many)

    def compute(number: int) -> Any:
        calls.append(number)
        if number == 2:
            time.sleep(0.1)
        elif len(calls) > 1:
            all_at_once.wait(60)
        return number if number == 2 else iter([]) if how == "other key" else b"x" * (40 << 20)

    with pellucid.Cache(path, size_limit=None if how == "other key" else LIMIT) as cache:
        memoized = cache.memoize()(compute)
        memoized(1)
        with ThreadPoolExecutor(many) as pool:
            list(pool.map(memoized, [1] * many))
            assert list(pool.map(memoized, [2] * many)) == [2] * many
    assert calls.count(2) == 1


@pytest.mark.filterwarnings("ignore:a result of")
def test_callers_do_not_wait_for_an_exception_that_cannot_be_kept(cache: pellucid.Cache) -> None:
    many, first = 4, iter([True])
    all_at_once, begun = threading.Barrier(many - 1), threading.Barrier(many)

    @cache.memoize(errors=ValueError)
    def fails() -> None:
        if next(first, False):
            time.sleep(0.2)
        else:
            all_at_once.wait(60)
        raise ValueError(iter([]))

    def call() -> None:
        begun.wait(60)
        with pytest.raises(ValueError, match="iterator"):
            fails()

    with ThreadPoolExecutor(many) as pool:
        for each in [pool.submit(call) for _ in range(many)]:
            each.result(100)


class Unpickled:
    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("it needs a connection")

    def __init__(self) -> None:
        self.state = 1


class Unreachable(Unpickled):
    def __setstate__(self, state: Any) -> None:
        raise ConnectionRefusedError(111, "the server is down")


class Unsayable(Unpickled):
    def __setstate__(self, state: Any) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("it has no text")

        raise Mute


class Unpicklable:
    def __reduce__(self) -> Any:
        raise NotImplementedError("it has no pickle")


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


@pytest.mark.parametrize(
    ("pickle", "hint", "make", "why"),
    [
        ("allow", None, Unpicklable, "it has no pickle"),
        ("allow", None, Unpickled, "it needs a connection"),
        ("allow", None, Unreachable, "the server is down"),
        ("allow", None, Unsayable, "Mute"),
        (["decimal.Decimal"], None, lambda: range(3), "not among the allowed globals"),
        ("deny", set[Point], lambda: {Point(1)}, r"of type \S*Point"),
        ("deny", None, Mock, r"of type \S*Mock"),
    ],
)
def test_what_its_class_does_not_let_be_stored_is_returned(
    path: Path, pickle: Any, hint: Any, make: Callable[[], Any], why: str
) -> None:
    with pellucid.Cache(path, pickle=pickle, size_limit=LIMIT) as cache:
        call = cache.memoize(name="call", type=hint)(make)
        with pytest.warns(pellucid.DatabaseWarning, match=why) as caught:
            # A mock is of a class of its own.
            assert {type(made).__name__ for made in (call(), call())} == {type(make()).__name__}
        assert len(caught) == 1
        assert len(cache) == 0


@pytest.mark.parametrize("pickle", ["deny", "allow"])
def test_a_result_that_nests_too_deeply_is_returned_with_a_warning(pickle: Any) -> None:
    with pellucid.Cache(":memory:", pickle=pickle) as cache:

        @cache.memoize()
        def call() -> list:  # type: ignore[type-arg]
            deep: list[Any] = []
            # Newer Pythons go by the room on the stack, and not by a count.
            for _ in range(200_000):
                deep = [deep]
            return deep

        with pytest.warns(pellucid.DatabaseWarning, match="is not kept"):
            assert len(call()) == 1


def test_a_record_comes_back_as_the_dict_that_a_later_call_gives(cache: pellucid.Cache) -> None:
    table = pellucid.open(":memory:").table("t")
    table["a"] = {"x": [1]}
    kept = cache.memoize(name="row")(lambda key: table[key])
    assert [type(kept("a")) for _ in range(2)] == [dict, dict]


def test_the_first_call_returns_what_later_calls_do(cache: pellucid.Cache) -> None:
    made = {"small": numpy.arange(3), "large": numpy.arange(100_000), "list": [numpy.zeros(2)]}
    kept = cache.memoize(name="arrays")(lambda: made)
    for result in (kept(), kept()):
        assert not result["large"].flags.writeable
        assert not result["list"][0].flags.writeable
        assert (result["small"] == made["small"]).all()
        assert result is not made


def test_an_exception_is_not_kept_unless_asked(cache: pellucid.Cache) -> None:
    calls = []

    def call(number: int) -> int:
        calls.append(number)
        raise FileNotFoundError(2, "missing", f"file {number}")

    kept, plain = cache.memoize(errors=OSError, name="kept")(call), cache.memoize(name="plain")(call)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="missing: 'file 1'"):
            kept(1)
    assert calls == [1]
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            plain(1)
    assert calls == [1, 1, 1]
    other = cache.memoize(errors=KeyError, name="kept")(call)
    with pytest.raises(FileNotFoundError):
        other(1)
    assert len(calls) == 4
    assert cache.get(kept.__cache_key__(1), "nothing") == "nothing"


class Odd(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__(f"{one} {two}")


def test_an_exception_that_its_args_do_not_make_again_is_not_kept(cache: pellucid.Cache) -> None:
    @cache.memoize(errors=Odd)
    def call() -> None:
        raise Odd(1, 2)

    def message() -> str:
        with pytest.raises(Odd) as caught:
            call()
        return str(caught.value)

    with pytest.warns(pellucid.DatabaseWarning, match=r"Odd cannot be made again"):
        assert message() == "1 2"
    assert message() == "1 2"


class Unreduced(Exception):
    def __reduce__(self) -> str:
        raise ZeroDivisionError


def test_an_exception_that_would_lose_attributes_is_not_kept(cache: pellucid.Cache) -> None:
    @cache.memoize(errors=subprocess.CalledProcessError)
    def call() -> None:
        subprocess.run(["sh", "-c", "echo why >&2; exit 3"], check=True, capture_output=True)

    def error() -> Any:
        with pytest.raises(subprocess.CalledProcessError) as raised:
            call()
        return raised.value.stderr

    with pytest.warns(pellucid.DatabaseWarning, match="cannot be made again from its args"):
        assert error() == b"why\n"
    assert error() == b"why\n"


def raise_of_a_module() -> None:
    importlib.import_module("no_module_of_this_name")


class Coded(ValueError):
    __slots__ = ("code",)

    def __init__(self, *args: Any) -> None:
        super().__init__("not found")
        self.code = args[0] if args else 0


def raise_coded() -> None:
    raise Coded(404)


def raise_a_hidden_one() -> None:
    class Hidden(ValueError):
        pass

    raise Hidden("hidden")


@pytest.mark.parametrize("function", [raise_of_a_module, raise_coded, raise_a_hidden_one])
@pytest.mark.filterwarnings("ignore:a result of")
def test_an_exception_comes_back_as_it_was(cache: pellucid.Cache, function: Callable[[], None]) -> None:
    memoized = cache.memoize(errors=(ImportError, ValueError))(function)

    def facts() -> tuple[Any, ...]:
        with pytest.raises((ImportError, ValueError)) as raised:
            memoized()
        error = raised.value
        names = ("name", "path", "code", "args")
        return type(error).__name__, str(error), [getattr(error, name, None) for name in names]

    assert facts() == facts() == facts()


def test_touch_leaves_a_result_what_it_is(cache: pellucid.Cache) -> None:
    pets = cache.memoize("pets", type=list[Pet])(lambda: [Pet("Rex", 4)])
    calls = []

    @cache.memoize(errors=KeyError)
    def fails() -> None:
        calls.append(1)
        raise KeyError("x")

    for _ in range(2):
        assert pets() == [Pet("Rex", 4)]
        with pytest.raises(KeyError):
            fails()
        assert cache.touch(pets.__cache_key__(), 60)
        assert cache.touch(fails.__cache_key__(), 60)
    assert calls == [1]
    # An error is no value of its key.
    assert fails.__cache_key__() not in cache
    assert dict(cache) == {pets.__cache_key__(): [{"name": "Rex", "legs": 4}]}
    assert list(reversed(cache)) == [pets.__cache_key__()]
    assert cache.popitem()[0] == pets.__cache_key__()
    with pytest.raises(KeyError, match="empty"):
        cache.popitem()
    assert cache.incr(fails.__cache_key__()) == 1


def test_an_exception_whose_reduce_fails_comes_out_itself(cache: pellucid.Cache) -> None:
    @cache.memoize(errors=Unreduced)
    def call() -> None:
        raise Unreduced("what happened")

    with pytest.warns(pellucid.DatabaseWarning, match="__reduce__ of Unreduced fails"):  # noqa: SIM117
        with pytest.raises(Unreduced, match="what happened"):
            call()


def test_a_function_may_call_itself(cache: pellucid.Cache) -> None:
    @cache.memoize()
    def fibonacci(number: int) -> int:
        return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)

    assert fibonacci(80) == 23416728348467685

    turns = [0]

    @cache.memoize(ignore={0})
    def again(turns: list[int]) -> int:
        turns[0] += 1
        return again(turns) + 1 if turns[0] < 3 else 0

    assert again(turns) == 0 + 2


def test_one_of_many_threads_computes(cache: pellucid.Cache) -> None:
    calls, results, many = [], [], 30
    begun = threading.Barrier(many)

    @cache.memoize()
    def slow(number: int) -> int:
        calls.append(number)
        time.sleep(0.05)
        return number

    def work() -> None:
        begun.wait()
        results.append(slow(7))

    threads = [threading.Thread(target=work) for _ in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [7] * many
    assert calls == [7]


def test_a_failed_computation_lets_the_next_caller_compute(cache: pellucid.Cache) -> None:
    calls = []

    @cache.memoize()
    def flaky() -> int:
        calls.append(1)
        time.sleep(0.02)
        if len(calls) == 1:
            raise OSError("once")
        return 5

    results: list[object] = []

    def work() -> None:
        try:
            results.append(flaky())
        except OSError as error:
            results.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, results)) == ["5"] * 4 + ["once"]
    assert len(calls) == 2


PROCESS = """
import os, pellucid, sys, time
cache = pellucid.Cache(sys.argv[1])
@cache.memoize(name="slow")
def slow(key):
    print("computing", flush=True)
    if sys.argv[2] == "hang":
        time.sleep(1000)
    time.sleep(0.3)
    return os.getpid()
sys.stdin.readline()
print(slow("key"), flush=True)
cache.close()
"""


def started(path: Path, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(path), what]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_one_of_many_processes_computes(path: Path) -> None:
    children = [started(path, "go") for _ in range(4)]
    outputs = [child.communicate("\n", timeout=60)[0].split() for child in children]
    assert sum(output.count("computing") for output in outputs) == 1
    assert len({output[-1] for output in outputs}) == 1


def test_when_the_process_that_computes_is_killed_another_one_takes_over(path: Path) -> None:
    first, second = started(path, "hang"), started(path, "go")
    assert first.stdin
    assert first.stdout
    first.stdin.write("\n")
    first.stdin.flush()
    assert first.stdout.readline() == "computing\n"
    assert second.stdin
    second.stdin.write("\n")
    second.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.3)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    output, _ = second.communicate(timeout=60)
    assert output.split()[0] == "computing"


def test_a_fork_while_a_claim_ends_keeps_nothing_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pellucid.Cache(path).close()
    children, close = [], os.close

    def close_beside_a_fork(descriptor: int) -> None:
        child = processes.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)
        close(descriptor)

    claimed = flights.claim(f"{path}-uses", b"the name", waits=False)
    assert claimed is not None
    with monkeypatch.context() as patched:
        patched.setattr(flights.os, "close", close_beside_a_fork)
        claimed.release()
    try:
        again = flights.claim(f"{path}-uses", b"the name", waits=False)
        assert again is not None
        again.release()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert len(children) == 1


def test_caches_in_memory_have_claims_of_their_own() -> None:
    first, second = pellucid.Cache(":memory:"), pellucid.Cache(":memory:")
    met = threading.Barrier(2)

    def inner() -> int:
        met.wait(60)
        return 1

    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(first.get_or_create, 1, lambda: second.get_or_create(2, inner)),
            pool.submit(first.get_or_create, 2, lambda: second.get_or_create(1, inner)),
        ]
        assert [each.result(60) for each in asked] == [1, 1]


def test_a_fork_inside_a_computation_does_not_keep_the_claim(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        children = []

        @cache.memoize()
        def forks() -> int:
            child = processes.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
            return 1

        assert forks() == 1
        cache.clear()
        begun = time.monotonic()
        try:
            key = cache.key("other")
            assert cache.get_or_create(key, lambda: 2) == 2
            cache.clear()
            assert (
                functions.Results(cache, functions.Kept(), "x").fetch(forks.__cache_key__(), lambda: 3) == 3
            )
        finally:
            os.kill(children[0], signal.SIGKILL)
            os.waitpid(children[0], 0)
        assert time.monotonic() - begun < 20


def test_a_stale_result_is_served_while_one_caller_computes(
    cache: pellucid.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(core, "time", lambda: now[0])
    monkeypatch.setattr(functions, "time", lambda: now[0])
    computing, done = threading.Event(), threading.Event()
    calls = []

    @cache.memoize(expire=10, stale=20)
    def call() -> int:
        calls.append(1)
        if len(calls) > 1:
            computing.set()
            assert done.wait(60)
        return len(calls)

    assert call() == 1
    now[0] += 15
    thread = threading.Thread(target=call)
    thread.start()
    assert computing.wait(60)
    assert [call() for _ in range(5)] == [1] * 5
    done.set()
    thread.join()
    assert call() == 2
    assert len(calls) == 2
    now[0] += 31
    assert call() == 3


def test_get_or_create_computes_a_missing_value(cache: pellucid.Cache) -> None:
    assert cache.get_or_create("key", lambda: [1], expire=60, tag="t") == [1]
    assert cache.get_or_create("key", lambda: [2]) == [1]
    assert cache.get_or_create({"a": 1}, lambda: 3) == cache[{"a": 1}] == 3
    assert cache.evict("t") == 1


def test_a_class_that_has_changed_is_computed_again(cache: pellucid.Cache) -> None:
    old = dataclasses.make_dataclass("Thing", [("a", int)])
    new = dataclasses.make_dataclass("Thing", [("a", int), ("b", int)])
    assert cache.memoize(name="thing", type=old)(lambda: old(1))() == old(1)
    assert cache.memoize(name="thing", type=new)(lambda: new(1, 2))() == new(1, 2)
    assert cache.memoize(name="thing", type=new)(lambda: new(3, 4))() == new(1, 2)


def test_a_call_in_a_transaction_waits_for_no_other_caller(path: Path) -> None:
    with pellucid.Cache(path) as cache:
        has_begun, may_end = threading.Event(), threading.Event()

        @cache.memoize(name="slow")
        def slow() -> str:
            if threading.current_thread() is threading.main_thread():
                return "here"
            has_begun.set()
            may_end.wait()
            return "there"

        other = threading.Thread(target=slow)
        other.start()
        has_begun.wait()
        with cache.transact():
            assert slow() == "here"
        may_end.set()
        other.join()
        assert slow() in ("here", "there")
