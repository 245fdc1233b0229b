"""Is what we say true? Snippets run, commands and links exist, names and errors are documented."""

from __future__ import annotations

import doctest
import inspect
import itertools
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pellucid
import pellucid.errors
import pellucid.typing
import pytest
import servers
from pellucid import _native, claims, handles
from pellucid.claims import Claim

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(document: str, language: str) -> Iterator[tuple[int, str]]:
    """The fenced blocks in a language, each with the line before its first."""
    text = (ROOT / document).read_text("utf-8")
    for found in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, found.start(1)), found[1]


def run_snippet(source: str, names: dict[str, Any], filename: str, line: int) -> None:
    """Run a snippet: a dialogue with Python where it has prompts, else a program."""
    if not re.search(r"^>>> ", source, re.MULTILINE):
        exec(compile("\n" * line + source, filename, "exec"), names)  # noqa: S102 - our own documents
        return
    report: list[str] = []
    test = doctest.DocTest(
        doctest.DocTestParser().get_examples(source), names, filename, filename, line, source
    )
    # A DocTest copies the names, and its runner empties them unless told not to: the next snippet goes on
    # with what this one made.
    test.globs = names
    doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)


def run_snippets(document: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for line, source in blocks(document, "python"):
        run_snippet(source, names, document, line)


WITH_SNIPPETS = [name for name in DOCUMENTS if any(blocks(name, "python"))]
OF_SERVER = re.compile(r"psycopg|postgresql://")
WITH_SERVER = [
    name for name in WITH_SNIPPETS if any(OF_SERVER.search(text) for _, text in blocks(name, "python"))
]


@pytest.mark.parametrize("document", [name for name in WITH_SNIPPETS if name not in WITH_SERVER])
def test_the_snippets_of_a_document_run(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_snippets(document)


@pytest.mark.parametrize("document", WITH_SERVER)
def test_the_snippets_of_a_document_run_with_a_postgresql_server(
    document: str, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for driver in servers.DRIVERS:
        servers.driver(driver)
    # The snippets call `connect()` without arguments.
    for name, value in servers.environment(dsn).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with servers.without_schema(dsn, "pellucid"):
        run_snippets(document)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_shows_no_path_of_one_machine(document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    assert re.findall(r"/(?:tmp|home|root|work)/[^`\s]*", text) == []


CODE_WIDTH = 99
"""Columns of a line of code: the page of a repository shows no more without a bar to scroll."""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_code_of_a_document_fits_into_a_page(document: str) -> None:
    lines = [
        (line + place, len(text))
        for line, block in blocks(document, r"[^\n]*")
        for place, text in enumerate(block.splitlines(), 1)
    ]
    assert [(line, width) for line, width in lines if width > CODE_WIDTH] == []


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name.startswith("docs/benchmarks/")])
def test_the_page_of_an_experiment_begins_with_five_sentences_and_a_plot(document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    start, _, _ = text.partition(
        f"![Plot of the experiment {Path(document).stem}]({Path(document).stem}.svg)"
    )
    assert start != text
    assert "\n## " not in start
    assert "|" not in start
    words = re.sub(r"^#.*$|<!--.*?-->|\*\*Question:\*\*", "", start, flags=re.MULTILINE).split()
    assert sum(word.endswith((".", "?")) for word in words) == 5


def test_the_readme_stores_an_object_by_line_15() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert any(re.match(r">>> db\[.*\] = ", line) for line in lines[:15])


def recipes() -> set[str]:
    """The commands behind ./dev."""
    return set(re.findall(r"^([a-z]+)(?: \*\w+)?:", (ROOT / "justfile").read_text(), re.MULTILINE))


def test_every_dev_command_in_the_documents_exists() -> None:
    named = {
        name: set(re.findall(r"\./dev ([a-z]+)", (ROOT / name).read_text("utf-8"))) for name in DOCUMENTS
    }
    unknown = {name: commands - recipes() for name, commands in named.items() if commands - recipes()}
    assert "test" in named["README.md"]
    assert not unknown


def test_every_dev_command_says_what_it_does() -> None:
    # A line in brackets says how just runs a command, not what the command does.
    lines = re.sub(r"^\[.*\]\n", "", (ROOT / "justfile").read_text(), flags=re.MULTILINE).splitlines()
    undocumented = [
        line
        for before, line in itertools.pairwise(lines)
        if re.match(r"[a-z]+( \*\w+)?:(?!=)", line) and not before.startswith("# ")
    ]
    assert not undocumented


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """What a link may have behind the `#`: each heading, in lower case, with dashes for spaces."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    words = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in words}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_links_of_a_document_lead_somewhere(document: str) -> None:
    page = ROOT / document
    links = [link for link in re.findall(r"\]\(([^)\s]+)[^)]*\)", prose(page)) if "://" not in link]
    assert not [link for link in links if not page.parent.joinpath(link.partition("#")[0]).exists()]
    headed = [link.partition("#")[::2] for link in links if "#" in link]
    assert not [
        f"{path}#{anchor}"
        for path, anchor in headed
        if anchor not in anchors(page.parent / path if path else page)
    ]


@pytest.mark.parametrize("document", ["README.md", "docs/index.md"])
def test_every_guide_is_listed(document: str) -> None:
    page = ROOT / document
    linked = {(page.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)", prose(page))}
    assert not set((ROOT / "docs/guides").glob("*.md")) - linked


def test_each_invariant_of_the_write_path_is_guarded_by_tests_that_are_there() -> None:
    text = (ROOT / "docs/internals/write-path.md").read_text("utf-8")
    stated = re.findall(r"^\d+\. \[([A-Z]\d)\]", text, re.MULTILINE)
    assert len(stated) == len(set(stated)) > 30
    _, _, table = text.partition("| invariant | model |")
    rows = [line.split("|")[1:4] for line in table.partition("\n\n")[0].splitlines()[2:]]
    guarded = set()
    for what, _, _ in rows:
        for kind, first, last in re.findall(r"\b([A-Z])(\d)(?:-[A-Z](\d))?\b", what):
            guarded |= {f"{kind}{number}" for number in range(int(first), int(last or first) + 1)}
    assert guarded == set(stated)
    model = "".join(path.read_text() for path in ROOT.glob("crates/store/tests/write_path_model*/**/*.rs"))
    model += (ROOT / "crates/store/tests/write_path_model.rs").read_text()
    named = [name for _, models, _ in rows for name in re.findall(r"`(\w+)`", models)]
    assert [name for name in named if f"fn {name}(" not in model] == []
    folders = [".", "tests", "tests/contract", "crates/store/tests", "crates/store/src"]
    files = [name for _, _, files in rows for name in re.findall(r"`([\w/]+\.\w+)`", files)]
    gone = [name for name in files if not any((ROOT / folder / name).exists() for folder in folders)]
    assert (gone, len(files) > 30) == ([], True)


def test_the_build_server_runs_the_test_command_of_the_readme() -> None:
    assert any("./dev test" in source for _, source in blocks("README.md", "sh"))
    assert "\n./dev test\n./dev lint\n" in (ROOT / ".ci/run").read_text()


def test_all_is_what_is_public() -> None:
    public = {
        name
        for name, value in vars(pellucid).items()
        if name[0] != "_" and not isinstance(value, types.ModuleType)
    } - {"annotations"}
    # Some are imported when they are used.
    assert sorted(pellucid.__all__) == sorted(public | {"Cache", "digest"})
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        pellucid.missing  # type: ignore[attr-defined]


# What `open` and its kin hand out, whether or not a user can name the class; not what pellucid.postgres uses.
# Those that only `pellucid.postgres` and `pellucid.cache` use are no part of the reference.
CLASSES = {
    name: thing
    for name, thing in vars(_native).items()
    if inspect.isclass(thing) and not name.startswith("Server") and name not in ("UseSlots", "NotedTable")
}


def members(thing: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class."""
    # What only says that there is no such name is no member.
    names = (name for name, value in vars(thing).items() if type(value).__name__ != "WrongName")
    return ((name, getattr(thing, name)) for name in names if name[0] != "_")


def public_things() -> Iterator[tuple[str, Any]]:
    """Every public class and function, and every public method and property of the classes."""
    public = {name: getattr(pellucid, name) for name in pellucid.__all__}
    for name, thing in {**CLASSES, **public}.items():
        yield f"pellucid.{name}", thing
        if inspect.isclass(thing):
            yield from ((f"pellucid.{name}.{member}", value) for member, value in members(thing))


PUBLIC_THINGS = dict(public_things())


def test_everything_public_has_a_docstring() -> None:
    assert PUBLIC_THINGS
    assert not [
        name for name, thing in PUBLIC_THINGS.items() if not (getattr(thing, "__doc__", None) or "").strip()
    ]


def test_every_class_and_function_has_an_example() -> None:
    functions = {name for name in pellucid.__all__ if not inspect.isclass(getattr(pellucid, name))}
    without = [
        name
        for name in [*CLASSES, *functions]
        if ">>> " not in (inspect.getdoc(PUBLIC_THINGS[f"pellucid.{name}"]) or "")
    ]
    assert not without


def test_the_examples_of_the_docstrings_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = {
        name: doc
        for name, thing in (PUBLIC_THINGS | {"Claim": claims.Claim, "Recent": handles.Recent}).items()
        if ">>> " in (doc := inspect.getdoc(thing) or "")
    }
    assert {"Claim", "Recent"} < examples.keys()
    for name, doc in examples.items():
        run_snippet(doc, {"pellucid": pellucid}, name, 0)


def headed(name: str, thing: Any) -> str:
    """A callable as the reference shows it: `pop(key, /, *default)`; a property as its name."""
    signature = getattr(thing, "__text_signature__", None)
    if signature is None and inspect.isfunction(thing):
        bare = [each.replace(annotation=each.empty) for each in inspect.signature(thing).parameters.values()]
        signature = str(inspect.Signature(bare)).replace("'", '"')
    if signature is None:
        return name
    return name + re.sub(r"^\(\$?self(, (/, )?)?", "(", signature)


def reference() -> dict[str, set[str]]:
    """What the pages of the reference list, by the class in the heading above, or by "pellucid"."""
    listed: dict[str, set[str]] = {}
    for page in (ROOT / "docs/reference").glob("*.md"):
        heading = ""
        for line in page.read_text("utf-8").splitlines():
            if found := re.match(r"#+ `([\w.]+)`", line):
                heading = found[1]
            elif heading and (found := re.match(r"\| `([^`]+)`", line)):
                listed.setdefault(heading, set()).add(found[1])
    return listed


def headings(name: str) -> set[str]:
    """The methods and properties of a class, as the reference shows them."""
    return {headed(member, value) for member, value in members(CLASSES[name])}


def shared(name: str) -> set[str]:
    """The methods of a table that the reference gives a database or snapshot in one sentence."""
    page = (ROOT / "docs/reference/database.md").read_text("utf-8")
    sentence = re.search(r"These are missing: ((?:`\w+`[,\s]*)+)\.", page)
    assert sentence
    without = {
        "Database": {"name", "watch", "stats", "conform"},
        "Snapshot": set(re.findall(r"\w+", sentence[1])),
    }
    if name not in without:
        return set()
    return {heading for heading in headings("Table") if heading.partition("(")[0] not in without[name]}


@pytest.mark.parametrize("name", [name for name, thing in CLASSES.items() if any(members(thing))])
def test_the_reference_lists_every_method_with_its_signature(name: str) -> None:
    assert shared(name) <= headings(name)
    assert reference().get(name, set()) == headings(name) - shared(name)


def test_the_reference_lists_every_method_of_a_cache_with_its_signature() -> None:
    listed = reference()["pellucid.Cache"]
    assert {each for each in listed if "(" in each or each in vars(pellucid.Cache)} == {
        headed(name, value)
        for cls in (pellucid.Cache, pellucid.Cache.__base__)
        for name, value in members(cls)
    }


def test_the_reference_lists_every_method_of_a_claim_with_its_signature() -> None:
    listed = reference()["pellucid.claims.Claim"]
    assert listed == {headed(name, value) for name, value in members(Claim)}
    run_snippet(inspect.getdoc(Claim) or "", {"pellucid": pellucid}, "pellucid.claims.Claim", 0)


def test_the_reference_lists_every_function_with_its_signature() -> None:
    functions = {
        headed(name, thing)
        for name in pellucid.__all__
        if not inspect.isclass(thing := getattr(pellucid, name))
    }
    assert reference()["pellucid"] == functions


def test_the_reference_lists_every_name_for_annotations() -> None:
    assert reference()["pellucid.typing"] == set(pellucid.typing.__all__)


def test_the_figures_of_stats_are_each_explained(db: pellucid.Database) -> None:
    db["a"] = 1
    figures = db.stats(pickles=True)
    assert list(db.stats()) == [name for name in figures if name != "pickles"]
    assert reference()["Database.stats"] == set(figures)
    doc = inspect.getdoc(pellucid.Database.stats) or ""
    assert re.findall(r"^    (\w+)  ", doc, re.MULTILINE) == list(figures)
    assert all(type(figure) is int for figure in figures.values())


ERRORS = {
    name: value
    for name, value in vars(pellucid.errors).items()
    if inspect.isclass(value) and issubclass(value, pellucid.Error)
}
WARNINGS = {
    name: value
    for name, value in vars(pellucid.errors).items()
    if inspect.isclass(value) and issubclass(value, Warning)
}


def test_there_is_one_base_of_all_errors() -> None:
    assert pellucid.errors.Error is pellucid.Error
    raised = [
        thing
        for thing in vars(pellucid.errors).values()
        if inspect.isclass(thing) and issubclass(thing, Exception)
    ]
    strangers = [
        thing
        for thing in raised
        if thing.__module__ != "builtins" and not issubclass(thing, pellucid.Error | Warning)
    ]
    assert not strangers


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_public_and_also_the_built_in_a_caller_would_catch(name: str) -> None:
    error = ERRORS[name]
    assert name in pellucid.__all__
    assert getattr(pellucid, name) is error
    built_in = [base for base in error.__mro__ if base.__module__ == "builtins"]
    assert error is pellucid.Error or built_in[0] not in (Exception, BaseException, object)


@pytest.mark.parametrize("name", [*ERRORS, *WARNINGS])
def test_an_error_is_documented(name: str) -> None:
    page = (ROOT / "docs/reference/errors.md").read_text("utf-8")
    assert f"`{name}`" in page
    assert (ERRORS | WARNINGS)[name].__doc__


def test_the_page_of_errors_names_no_other() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    assert listed == set(ERRORS | WARNINGS)


def fresh_python(program: str) -> list[str]:
    """The words a program prints in an interpreter that has imported nothing of ours."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()


def test_import_brings_no_heavy_module() -> None:
    imported = set(fresh_python("import sys, pellucid; print(*sys.modules)"))
    assert "pellucid._native" in imported
    assert not imported & {
        "asyncio",
        "dataclasses",
        "decimal",
        "inspect",
        "logging",
        "numpy",
        "pickle",
        "rich",
        "uuid",
    }


def test_import_takes_less_than_half_of_the_time_of_asyncio() -> None:
    # The processor time of a Python process that imports pellucid, and of one that imports asyncio, in turns.
    # Other processes do not count, and a slow machine slows both. Where asyncio takes 40 ms, the limit is 20.
    program = "from time import process_time as now; begun = now(); import {}; print(now() - begun)"
    times = [
        [float(fresh_python(program.format(name))[0]) for name in ("pellucid", "asyncio")] for _ in range(10)
    ]
    ours, theirs = map(min, zip(*times, strict=True))
    assert ours < theirs / 2
