"""Does a shelf keep every object that pickle keeps? CPython's own tests of pickle say so.

`AbstractPickleTests` of `test.pickletester`, as it is: `dumps` stores the object in a shelf, and `loads`
reads it again. Bytes that a test gives to `loads` itself go to pickle.
"""

from __future__ import annotations

import pickle
import unittest
from typing import Any

from drop_ins import standard

# What is about the pickler that a test was given, and not about the object.
OTHER_PROTOCOL = "a class tells the protocol that it was asked for, or is stored under a name of Python 2"
OTHER_PICKLER = "looks at the pickler itself"
# Since 3.15.
IMMUTABLE = "asks whether two equal texts are one object, and a record holds each text where it stands"
WITHOUT = {
    "test_reduce_ex_calls_base": OTHER_PROTOCOL,
    "test_builtin_exceptions": OTHER_PROTOCOL,
    "test_framed_write_sizes_with_delayed_writer": OTHER_PICKLER,
    "test_unicode_memoization": IMMUTABLE,
    "test_bytes_memoization": IMMUTABLE,
}

if standard.has_tests("pickletester"):
    import pellucid.shelve
    from test import pickletester

    class Token(bytes):
        """A pickle of the object, for the tests that look at its bytes, and the key of the stored one."""

        key: str

    class TestThroughAShelf(pickletester.AbstractPickleTests, unittest.TestCase):
        fast = False

        def setUp(self) -> None:
            self.shelf = pellucid.shelve.open(":memory:", fast=self.fast)
            self.addCleanup(self.shelf.close)

        def dumps(self, arg: Any, proto: int | None = None, **options: Any) -> bytes:
            if options:
                # A buffer callback and old names have no meaning for a shelf.
                return pickle.dumps(arg, proto, **options)
            key = f"key {len(self.shelf)}"
            self.shelf[key] = arg
            token = Token(pickle.dumps(arg, proto))
            token.key = key
            return token

        def loads(self, buf: bytes, **options: Any) -> Any:
            if isinstance(buf, Token) and not options:
                return self.shelf[buf.key]
            return pickle.loads(buf, **options)

    for name in WITHOUT:
        if hasattr(TestThroughAShelf, name):
            setattr(TestThroughAShelf, name, None)

    def test_nearly_all_of_them_are_run() -> None:
        names = unittest.defaultTestLoader.getTestCaseNames(TestThroughAShelf)
        assert len(names) >= 100
