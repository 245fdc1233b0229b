"""Does Flask serve rows as the JSON that they are?"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import flask
import pellucid
import pytest
from pellucid import F
from pellucid.contrib.flask import install

ROW = {"codes": ["DE", "FR"], "on": datetime.date(2024, 5, 17), "of": decimal.Decimal("1.10"), "n": 1}
EXPECTED = {**ROW, "on": "2024-05-17", "of": "1.10"}


@pytest.fixture
def table() -> pellucid.Table[Any]:
    rows = pellucid.open(":memory:").table("rows")
    rows["a"] = ROW
    return rows


def served(returned: Any, app: flask.Flask | None = None) -> Any:
    app = app or flask.Flask("test")
    install(app)
    install(app)
    app.add_url_rule("/", "view", lambda: returned())  # noqa: PLW0108
    answer = app.test_client().get("/")
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    return answer.get_json()


def test_a_record_a_list_a_query_and_a_table_are_served(table: pellucid.Table[Any]) -> None:
    assert served(lambda: table["a"]) == EXPECTED
    assert served(lambda: table["a"].codes) == ["DE", "FR"]
    assert served(lambda: table.where(F.n == 1)) == [EXPECTED]
    assert served(lambda: table) == {"a": EXPECTED}
    assert served(lambda: {"rows": [table["a"]]}) == {"rows": [EXPECTED]}
    assert served(lambda: [table["a"]]) == [EXPECTED]


def test_jsonify_takes_them(table: pellucid.Table[Any]) -> None:
    assert served(lambda: flask.jsonify(table["a"])) == EXPECTED
    assert served(lambda: flask.jsonify(rows=table.where())) == {"rows": [EXPECTED]}


def test_a_status_and_headers_stay(table: pellucid.Table[Any]) -> None:
    app = flask.Flask("test")
    install(app)
    app.add_url_rule("/", "view", lambda: (table["a"], 201, {"X-Row": "a"}))
    answer = app.test_client().get("/")
    assert (answer.status_code, answer.headers["X-Row"], answer.get_json()) == (201, "a", EXPECTED)


def test_what_the_app_serves_otherwise_stays(table: pellucid.Table[Any]) -> None:
    assert served(lambda: {"on": datetime.date(2024, 5, 17)}) == {"on": "Fri, 17 May 2024 00:00:00 GMT"}
    app = flask.Flask("test")
    install(app)
    app.add_url_rule("/", "view", lambda: "text")
    assert app.test_client().get("/").text == "text"


def test_a_provider_of_the_app_is_called_for_all_else(table: pellucid.Table[Any]) -> None:
    class Own(flask.json.provider.DefaultJSONProvider):
        @staticmethod
        def default(value: Any) -> Any:
            return (
                "own"
                if isinstance(value, decimal.Decimal)
                else flask.json.provider.DefaultJSONProvider.default(value)
            )

    app = flask.Flask("test")
    app.json = Own(app)
    assert served(lambda: {"of": decimal.Decimal(1), "row": table["a"]}, app) == {
        "of": "own",
        "row": EXPECTED,
    }
