"""Does FastAPI serve rows as the JSON that they are?"""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import sys
from typing import Any

import fastapi
import fastapi.encoders
import pellucid
import pydantic
import pytest
from fastapi.testclient import TestClient
from pellucid import F
from pellucid.contrib.fastapi import install

ROW = {"codes": ["DE", "FR"], "none": [], "nested": [{"a": ["xy"]}], "on": datetime.date(2024, 5, 17), "n": 1}
EXPECTED = {**ROW, "on": "2024-05-17"}


@dataclasses.dataclass
class User:
    name: str
    tags: list[str]


class Model(pydantic.BaseModel):
    codes: list[str]
    n: int


@pytest.fixture
def table() -> pellucid.Table[Any]:
    install()
    rows = pellucid.open(":memory:").table("rows")
    rows["a"] = ROW
    return rows


def served(returned: Any, **options: Any) -> Any:
    app = fastapi.FastAPI()

    @app.get("/", **options)
    def view():  # type: ignore[no-untyped-def]  # an annotation would be that of the answer
        return returned()

    answer = TestClient(app).get("/")
    assert answer.status_code == 200
    return answer.json()


def test_a_record_a_list_a_query_and_a_table_are_served(table: pellucid.Table[Any]) -> None:
    assert served(lambda: table["a"]) == EXPECTED
    assert served(lambda: table["a"].codes) == ["DE", "FR"]
    assert served(lambda: table.where(F.n == 1)) == [EXPECTED]
    assert served(lambda: table) == {"a": EXPECTED}
    assert served(lambda: {"rows": [table["a"]], "page": 1}) == {"rows": [EXPECTED], "page": 1}
    assert served(lambda: list(table.select("n"))) == [{"n": 1}]


def test_a_view_of_a_buffer_is_served(table: pellucid.Table[Any]) -> None:
    view = pellucid.view(memoryview(pellucid.dumps({"codes": ["DE"]})))
    assert served(lambda: view) == {"codes": ["DE"]}


def test_a_path_operation_with_a_return_type_serves_them_as_well(table: pellucid.Table[Any]) -> None:
    for model in (dict, dict[str, Any], pellucid.Record, Any):
        assert served(lambda: table["a"], response_model=model) == EXPECTED
    assert served(lambda: list(table.where()), response_model=list[dict[str, Any]]) == [EXPECTED]
    assert served(lambda: table["a"], response_model=Model) == {"codes": ["DE", "FR"], "n": 1}


def test_instances_of_a_typed_table_are_served() -> None:
    users = pellucid.open(":memory:").table("users", type=User)
    users["a"] = User("Ann", ["DE", "FR"])
    assert served(lambda: users["a"]) == {"name": "Ann", "tags": ["DE", "FR"]}
    assert served(users.where) == [{"name": "Ann", "tags": ["DE", "FR"]}]


def test_installing_again_changes_nothing() -> None:
    install()
    before = dict(fastapi.encoders.ENCODERS_BY_TYPE)
    install()
    assert before == fastapi.encoders.ENCODERS_BY_TYPE


def test_a_database_that_is_opened_after_fastapi_is_loaded_needs_no_call() -> None:
    program = """
import fastapi.encoders, pellucid
table = pellucid.open(":memory:").table("t")
table[1] = {"codes": ["DE", "FR"]}
assert fastapi.encoders.jsonable_encoder(table[1]) == {"codes": ["DE", "FR"]}
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_program_without_fastapi_loads_nothing_of_it() -> None:
    program = """
import sys, pellucid
pellucid.open(":memory:")["a"] = 1
assert not {"fastapi", "pydantic", "pellucid.contrib"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
