"""Does the command do on a server what it does on a file?"""

from __future__ import annotations

import json
from pathlib import Path

import pellucid
import pytest
from commands import Run, prepared
from pellucid.transfer.copying import shown


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in a folder with `people.jsonl`."""
    return prepared(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "@"),
        ("ls", "@", "--json"),
        ("ls", "@", "people"),
        ("ls", "@", "people", "--start", "Bob", "--reverse", "--json"),
        ("ls", "@", "people", "--prefix", "A"),
        ("get", "@", "people", "Ann"),
        ("get", "@", "people", "Ann", "--path", "address.zip"),
        ("get", "@", "people", "Zoe"),
        ("query", "@", "--where", "age >= 30", "--order", "age desc"),
        ("query", "@", "people", "--where", "city == 'Bath'", "--count"),
        ("query", "@", "people", "--select", "name, age * 2 as twice", "--json"),
        (
            "query",
            "@",
            "people",
            "--group",
            "city",
            "--select",
            "count() as n, mean(age)",
            "--order",
            "n desc",
        ),
        ("query", "@", "people", "--where", "age > 20", "--csv", "--key", "k"),
        ("fields", "@", "people"),
        ("index", "@", "people"),
        ("index", "@", "people", "--json"),
        ("index", "@", "people", "by_city", "city", "age desc", "--where", "age >= 20"),
        ("index", "@", "people", "by_age", "--rebuild"),
        ("index", "@", "people", "by_age", "--drop"),
        ("index", "@", "people", "gone", "--drop"),
        ("export", "@", "people", "-", "--format", "csv"),
        ("export", "@", "people", "-", "--where", "age < 30"),
        ("put", "@", "people", "Dan", '{"age": 5}'),
        ("del", "@", "people", "Ann", "Bob"),
        ("del", "@", "people", "--where", "age < 30", "--yes"),
        ("del", "@", "people", "Zoe"),
        ("rename", "@", "people", "persons"),
        ("rename", "@", "persons", "people"),
        ("rename", "@", "people", "other"),
        ("drop", "@", "people", "--yes"),
        ("drop", "@", "people"),
        ("drop", "@", "persons", "--yes"),
        ("watch", "@", "people", "--prefix", "A", "--timeout", "0"),
        ("watch", "@", "--prefix", "A"),
    ],
    ids=" ".join,
)
def test_a_server_gives_what_a_file_gives(run: Run, url: str, words: tuple[str, ...]) -> None:
    told = []
    for place in (url, "p.pel"):
        assert run("import", place, "people.jsonl", "--table", "people", "--key", "name").exit_code == 0
        assert run("index", place, "people", "by_age", "age").exit_code == 0
        with pellucid.open(place) as db:
            db.table("other")["k"] = 1
            if words == ("query", "@", "--where", "age >= 30", "--order", "age desc"):
                db.drop_table("other")
        result = run(*[place if word == "@" else word for word in words])
        with pellucid.open(place) as db:
            left = {name: len(db.table(name)) for name in db.tables()}
        name = shown(place)
        told.append((result.exit_code, result.stdout, result.stderr.replace(name, "@"), left))
    assert told[0] == told[1]


def test_what_is_shown_of_a_server(run: Run, url: str) -> None:
    assert run("import", url, "people.jsonl", "--table", "people", "--key", "name").exit_code == 0
    assert run("index", url, "people", "by_age", "age").exit_code == 0
    text = run("info", url).stdout
    assert text.startswith("server ")
    assert "people" in text
    assert "by_age" in text
    told = json.loads(run("info", url, "--json").stdout)
    assert told["tables"] == {"people": {"rows": 3, "indexes": ["by_age"]}}
    assert told["stats"]["rows"] == 3
    assert run("query", url, "people", "--where", "age == 30", "--explain").exit_code == 0
    assert run("check", url).stdout.endswith("is sound: 3 rows\n")
    assert run("compact", url).exit_code == 0
    assert run("shell", url, text="print(len(people))").stdout == "3\n"


def test_changes_on_a_server_are_lines_of_json(run: Run, url: str) -> None:
    assert run("import", url, "people.jsonl", "--table", "people", "--key", "name").exit_code == 0
    with pellucid.open(url) as db:
        watch = db.watch(timeout=0)
        list(watch)
        db.table("people")["Ann"].age += 1
        del db.table("people")["Bob"]
    lines = run("watch", url, "people", "--since", str(watch.version), "--timeout", "0").stdout.splitlines()
    changes = [json.loads(line) for line in lines]
    assert [(change["kind"], change["key"]) for change in changes] == [("put", "Ann"), ("delete", "Bob")]
    assert changes[0]["value"]["age"] == 31


def test_commands_for_files_say_what_to_do_on_a_server(run: Run, url: str) -> None:
    for words, wanted in (
        (("backup", url, "b.pel"), "pg_dump"),
        (("restore", "b.pel", url), "pellucid copy BACKUP URL --existing replace"),
        (("restore", url, "b.pel"), "pellucid copy URL FILE"),
    ):
        result = run(*words)
        assert result.exit_code == 1
        assert wanted in result.stderr
    assert not Path("b.pel").exists()
