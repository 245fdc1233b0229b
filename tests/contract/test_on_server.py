"""Is a table on a server a dict, whatever is done to it in whichever order?"""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import differences
import on_server
import pellucid
import pytest
import test_model
import test_rows_alone

Model = dict[str, dict[Any, Any]]


def test_each_difference_has_its_reason_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/postgresql-differences.md").read_text("utf-8")
    for heading in differences.DIFFERENCES.values():
        assert f"## {heading}\n" in page


def test_a_server_does_what_the_model_does(server: str) -> None:
    on_server.run(test_model.DatabaseMachine, server)


def test_transactions_of_rows_are_dicts(url: str) -> None:
    chance = random.Random("server")
    names = ["people", "things"]
    model: Model = {name: {} for name in names}
    with pellucid.open(url) as db:
        tables: dict[str, Any] = {name: db.table(name) for name in names}
        for turn in range(100):
            test_rows_alone.block(chance, db, tables, model, 0)
            for name in names:
                test_rows_alone.change(chance, tables[name], model[name])
            test_rows_alone.check(tables, model)
            if turn % 25 == 24:
                with db.snapshot() as snapshot:
                    test_rows_alone.check({name: snapshot.table(name) for name in names}, model)
                assert db.check() == []
    with pellucid.open(url, "r") as db:
        test_rows_alone.check({name: db.table(name) for name in names}, copy.deepcopy(model))


def test_a_table_on_a_server_is_not_compressed(url: str) -> None:
    with pellucid.open(url) as db:
        with pytest.raises(ValueError, match="cannot be created with compress=True"):
            db.table("t", compress=True)
        table = db.table("t", compress=False)
        table["a"] = 1
        assert table["a"] == 1
