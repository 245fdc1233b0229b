"""Do we keep house? The rules of the house that no linter knows.

Each rule is a function from a file's name and text to what it finds wrong. `PLANTED` holds one offence for
each, so that a rule that has gone blind fails as loudly as a file that broke it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
SOURCE_SUFFIXES = {".rs", ".py", ".pyi", ".sh", ".toml", ""}

FILE_LINES_MAX = 800
TEST_FILE_LINES_MAX = 1200
FUNCTION_LINES_MAX = 70
COMMENT_WIDTH = 100
# The report of our benchmarks is one page, with the script that draws its plots.
FILE_BYTES_MAX = {"bench/results/report.html": 3_000_000}

# The ratchet: functions that were too long when the rule came, and how long they may stay. An entry may
# shrink or go, and none is added: the next long function is split instead.
LONG_FUNCTIONS: dict[str, int] = {}

# Arrows point down: what each crate of the workspace may depend on, of the crates that matter here.
CRATE_MAY_USE = {
    "pellucid-lmdb-sys": set(),
    "pellucid-record": set(),
    "pellucid-store": {"pellucid-record", "pellucid-lmdb-sys"},
    "pellucid-query": {"pellucid-record", "pellucid-store"},
    "pellucid-python": {"pellucid-record", "pellucid-store", "pellucid-query", "pyo3", "pyo3-ffi"},
}
ROOMED_CRATES = set().union(*CRATE_MAY_USE.values()) | {"heed", "lmdb", "lmdb-master-sys", "libmdbx", "redb"}

# LMDB's own files, as its authors wrote them.
VENDORED = "crates/lmdb-sys/lmdb/"

UNSAFE_ROOMS = re.compile(
    r"crates/lmdb-sys/src/lib\.rs|crates/store/src/(engine/lmdb/(free_pages/)?\w+|txn/pin|sys/\w+)\.rs"
    r"|crates/store/tests/support/(lmdb|pin|os)\w*\.rs|crates/python/src/(hot/\w+|table/(rows|slots))\.rs"
    r"|crates/python/src/values/(ahead|alloc|buffer|decode|dicts|encode(/dict|/sharing)?|field|functions|lent|names|reading|row)\.rs"
)
ENGINE_ROOMS = re.compile(r"crates/store/src/engine/lmdb/(free_pages/)?\w+\.rs")

Finding = tuple[int, str]
Rule = Callable[[str, str], Iterator[Finding]]
PLANTED: dict[Rule, tuple[str, str]] = {}


def rule(planted_name: str, planted_text: str) -> Callable[[Rule], Rule]:
    """Register a rule with a file that breaks it. A `~` in it is dropped, lest this file offend."""

    def register(function: Rule) -> Rule:
        PLANTED[function] = (planted_name, planted_text.replace("~", ""))
        return function

    return register


def files() -> list[str]:
    """Every file that is in the repository or about to be."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    names = [name for name in out.split("\0") if name and (ROOT / name).is_file()]
    return [name for name in names if not name.startswith(VENDORED)]


def is_source(name: str) -> bool:
    return Path(name).suffix in SOURCE_SUFFIXES and not name.startswith(
        ("LICENSE", "fuzz/corpus/", "fixtures/")
    )


def is_test(name: str) -> bool:
    return name.startswith("tests/") or "/tests/" in name


def is_rust_library(name: str) -> bool:
    return name.startswith("crates/") and "/src/" in name and name.endswith(".rs")


def lines_matching(pattern: str | re.Pattern[str], text: str, finding: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(pattern, line):
            yield number, finding


def without_comments(rust: str) -> str:
    """The text with `//` comments blanked. String literals stay: none of ours holds what a rule looks for."""
    return re.sub(r"//.*", "", rust)


@rule("crates/record/src/view.rs", "//! What?\n" * 801)
def size_of_file(name: str, text: str) -> Iterator[Finding]:
    limit = TEST_FILE_LINES_MAX if is_test(name) else FILE_LINES_MAX
    count = text.count("\n")
    if is_source(name) and Path(name).suffix in {".rs", ".py", ".pyi"} and count > limit:
        yield limit, f"{count} lines, and {limit} is the limit; which second question does the file answer?"


@rule("crates/record/src/view.rs", "// " + "word " * 20 + "\n")
def width_of_comment(name: str, text: str) -> Iterator[Finding]:
    """Prose ends at column 100. Examples and grammars may be wider, as the code is."""
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.fullmatch(r" *//[/!]?(.*)", line)
        if comment is None or not is_rust_library(name):
            is_fenced = False
            continue
        if comment[1].lstrip().startswith("```"):
            is_fenced = not is_fenced
        is_code = is_fenced or re.match(r" (    |>>> |\.\.\. )", comment[1])
        if len(line) > COMMENT_WIDTH and not is_code:
            yield number, f"a comment of {len(line)} columns, and {COMMENT_WIDTH} is the limit"


def functions(name: str, text: str) -> Iterator[tuple[str, int, int]]:
    """Each function's name, first line and count of lines."""
    if name.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1
    elif name.endswith(".rs"):
        lines = text.splitlines()
        for index, line in enumerate(lines):
            head = re.match(r'( *)(?:pub(?:\([^)]*\))? |const |unsafe |extern "C" |default )*fn (\w+)', line)
            if head is None:
                continue
            # rustfmt puts the closing brace in the column where the function began.
            for final in range(index, len(lines)):
                if lines[final] in (head[1] + "}", head[1] + ");") or re.search(r"[;}]$", line):
                    yield head[2], index + 1, final - index + 1
                    break


@rule("crates/record/src/view.rs", "fn long() {\n" + "    step();\n" * 80 + "}\n")
def size_of_function(name: str, text: str) -> Iterator[Finding]:
    for function, first, count in functions(name, text):
        limit = LONG_FUNCTIONS.get(f"{name}:{function}", FUNCTION_LINES_MAX)
        if count > limit:
            yield first, f"`{function}` has {count} lines, and {limit} is the limit"


@rule("crates/store/src/engine/memory.rs", "fn f() { unsafe { g() } }\n")
def unsafe_has_rooms(name: str, text: str) -> Iterator[Finding]:
    if name.endswith(".rs") and not UNSAFE_ROOMS.fullmatch(name):
        yield from lines_matching(r"\bunsafe\b", without_comments(text), "unsafe outside its rooms")


CALLBACK_ROOM = "crates/python/src/hot/callbacks.rs"


@rule("crates/python/src/put/write.rs", "fn f(py: Python<'_>) { py.detach(|| ()); }\n")
def python_code_runs_where_it_is_told(name: str, text: str) -> Iterator[Finding]:
    # Native code that borrows objects asks there whether Python code may have run meanwhile.
    if name.startswith("crates/python/src/") and name != CALLBACK_ROOM:
        yield from lines_matching(
            r"\bpy(\(\))?\.(detach|check_signals)\(|\bPyErr_CheckSignals\b|\bPyEval_SaveThread\b",
            without_comments(text),
            f"looks at signals or releases the GIL outside of {CALLBACK_ROOM}",
        )


@rule("crates/store/src/txn/scan.rs", "use pellucid_lmdb_sys as ffi;\n")
def engine_has_rooms(name: str, text: str) -> Iterator[Finding]:
    if name.endswith(".rs") and not ENGINE_ROOMS.fullmatch(name):
        yield from lines_matching(
            r"\bpellucid_lmdb_sys\b", without_comments(text), "the engine's crate outside its rooms"
        )


@rule("crates/record/src/view.rs", "use std::fs::File;\n")
def records_do_no_io(name: str, text: str) -> Iterator[Finding]:
    if name.startswith("crates/record/src/"):
        yield from lines_matching(
            r"\bstd::(fs|net|io|thread|time|env|process)\b", text, "record does no I/O and knows no clock"
        )


@rule("python/pellucid/a.py", "x = 1  # TO~DO: more\n")
def nothing_is_left_for_later(name: str, text: str) -> Iterator[Finding]:
    yield from lines_matching(
        r"\b([T]ODO|[F]IXME|[X]XX)\b|\b([t]odo|[u]nimplemented)!",
        text,
        "left for later; finish it or open an issue",
    )


@rule("crates/store/tests/a.rs", "fn t() {\n    matches!(\n        f(),\n        Err(_)\n    );\n}\n")
def a_bare_match_checks_nothing(name: str, text: str) -> Iterator[Finding]:
    if not name.endswith(".rs"):
        return
    text = without_comments(text)
    for found in re.finditer(r"(?:^|[{};])\s*(matches!\()", text):
        depth = 0
        for offset in range(found.end(1) - 1, len(text)):
            depth += {"(": 1, ")": -1}.get(text[offset], 0)
            if depth == 0:
                if text[offset + 1 : offset + 2] == ";":
                    yield (
                        text.count("\n", 0, found.start(1)) + 1,
                        "matches!(..); checks nothing; assert!(matches!(..))",
                    )
                break


# Not every machine has a PostgreSQL server: the one reason for which a test may be passed over.
SKIP_ROOM = "tests/servers.py"


@rule("tests/test_a.py", "@pytest.mark.s~kip\ndef test_a(): ...\n")
def no_test_is_passed_over(name: str, text: str) -> Iterator[Finding]:
    rust = r"#\[[i]gnore\b|#\[should[_]panic|assert!\([t]rue\b"
    python = r"\bpytest\.(mark\.)?([s]kip|[x]fail)|\b[i]mportorskip\b|\bunittest\.[s]kip|\bassert [T]rue\b"
    if name.endswith((".rs", ".py")) and name != SKIP_ROOM:
        yield from lines_matching(f"{rust}|{python}", text, "a test that is passed over, or cannot fail")


# Each had several meanings, or one that the field calls otherwise: what is settled may be flushed, synced,
# checkpointed, resolved or implied.
PRIVATE_WORDS = r"(?i:settl)|\b(AtOnce|Fate|GrownBytes|Said|Saying|newborn)\b|\bat_once\("


@rule("crates/store/src/a.rs", "fn set~tle() {}\n")
def names_say_what_is_done(name: str, text: str) -> Iterator[Finding]:
    if name.startswith(("crates/", "python/")) and "/tests/" not in name:
        yield from lines_matching(PRIVATE_WORDS, text, "a word of our own; name what is done")


@rule("crates/record/src/a.rs", "// na\u00efve\n")
def source_is_ascii(name: str, text: str) -> Iterator[Finding]:
    if is_source(name):
        yield from lines_matching(r"[^\x00-\x7f]", text, "not ASCII; write an escape")


@rule("docs/a.md", "run /ro~ot/bin/x\n")
def no_machine_is_named(name: str, text: str) -> Iterator[Finding]:
    folders = r"(?<![\w.])/([r]oot|[w]ork|[f]arm|Users/\w+|home/\w+)/"
    hosts = r"https?://[\w.-]*([p]ypi|[p]ythonhosted|[c]rates\.|[n]pmjs|[d]ebian|[m]aven)"
    if not name.endswith("Cargo.lock"):  # cargo's own words for its default registry
        yield from lines_matching(f"{folders}|{hosts}", text, "names a machine's folder or a registry's host")


@rule("crates/record/src/a.rs", "//! What does this do?\n")
def a_module_says_what_it_does(name: str, text: str) -> Iterator[Finding]:
    if is_rust_library(name):
        head = text.split("\n\n")[0] if text.startswith("//!") else ""
    elif name.startswith(("python/", "bench/")) and name.endswith(".py"):
        head = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
    else:
        return
    if not head or head.splitlines()[0].endswith("?"):
        yield 1, "a module begins with a sentence that says what it does"


# The wall clock jumps. Nothing waits by it, and nothing is old or new by it; it only makes numbers and
# names unlike others: an identity, a salt, the name of a copy. Only a time for which changes are kept goes by
# it, and the use of a cached entry, since these outlive every process.
WALL_CLOCK_ROOMS = re.compile(
    r"crates/(store/src/(open|admin/copy|wal/segments|wal/history)|python/src/uses)\.rs"
)


@rule("crates/store/src/db/writer_queue.rs", "let now = SystemTime::now();\n")
def nothing_waits_by_the_wall_clock(name: str, text: str) -> Iterator[Finding]:
    if is_rust_library(name) and not WALL_CLOCK_ROOMS.fullmatch(name):
        yield from lines_matching(r"\b(SystemTime|UNIX_EPOCH)\b", text, "a clock that jumps; use Instant")


def comments(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Each comment or docstring of a source file as one line, with the number of its first line."""
    sign = {".py": r'#|"""', ".c": r"/\*| \*"}.get(Path(name).suffix, r"//[/!]?")
    found, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = re.search(rf"(?:^|\s)(?:{sign})(?!\S*\")\s?(.*)", line) if "://" not in line else None
        if comment is None:
            if found:
                yield first, found
            found = ""
            continue
        first = first if found else number
        found = f"{found} {comment[1].strip()}".strip()


@rule(
    "crates/store/src/wal/a.rs",
    "/// A checkpoint takes its time from\n/// so ~many bytes on.\nconst LARGE: u64 = 1;\n",
)
def numbers_are_named_by_their_unit(name: str, text: str) -> Iterator[Finding]:
    # "so many rows that they fill memory" compares; "after so many rows" talks around a number.
    if is_test(name) or Path(name).suffix not in {".rs", ".py", ".c"} or Path(name).stem == "tests":
        return
    around = re.compile(r"(?<!, )\bso (many|much|few|long|often)\b(?!( \w+){0,2} (that|as)\b)", re.I)
    for number, comment in comments(name, text):
        if around.search(comment):
            yield number, "talks around a number; name its unit, and what it limits or causes"


@rule("CHANGELOG.md", "## 0.1.0, not released yet\n\n- `sum` no longer wraps around.\n")
def a_first_release_is_described_and_not_compared(name: str, text: str) -> Iterator[Finding]:
    # It has no user who knows how an earlier state behaved.
    if name == "CHANGELOG.md" and re.findall(r"(?m)^## .*", text) == ["## 0.1.0, not released yet"]:
        yield from lines_matching(
            r"(?i)\b(no longer|any more|earlier (development )?versions?|formerly|used to|replaces)\b"
            r"|[.;,] (before|now),|\bbefore\.$|\b(was|were|did|had|could) (not )?\w+ before\b",
            text,
            "compares with a state that nobody has; describe what the release does",
        )


@pytest.mark.parametrize("check", PLANTED, ids=lambda check: check.__name__)
def test_the_rule_holds_everywhere(check: Rule) -> None:
    findings = []
    for name in files():
        try:
            text = (ROOT / name).read_text("utf-8")
        except UnicodeDecodeError:
            continue  # a corpus or a fixture
        findings += [f"{name}:{line}: {finding}" for line, finding in check(name, text)]
    assert not findings, "\n".join(["", *findings])


@pytest.mark.parametrize("check", PLANTED, ids=lambda check: check.__name__)
def test_the_rule_finds_what_it_forbids(check: Rule) -> None:
    assert list(check(*PLANTED[check]))


def test_rust_functions_are_measured() -> None:
    text = (
        "impl A {\n    pub(crate) fn one(\n        a: u8,\n    ) {\n        b();\n    }\n    fn two() {}\n}\n"
    )
    assert list(functions("a.rs", text)) == [("one", 2, 5), ("two", 7, 1)]


def test_the_ratchet_only_turns_one_way() -> None:
    measured = {
        f"{n}:{f}": c for n in files() for f, _, c in functions(n, (ROOT / n).read_text("utf-8", "ignore"))
    }
    slack = {key: limit for key, limit in LONG_FUNCTIONS.items() if measured.get(key, 0) < limit}
    assert not slack, f"shorter than LONG_FUNCTIONS allows; lower or remove the entries: {slack}"


def manifests() -> dict[str, dict[str, Any]]:
    found = [tomllib.loads(path.read_text()) for path in sorted(ROOT.glob("crates/*/Cargo.toml"))]
    return {manifest["package"]["name"]: manifest for manifest in found}


def dependencies(manifest: dict[str, Any]) -> set[str]:
    targets = [manifest, *manifest.get("target", {}).values()]
    return {
        name
        for target in targets
        for name in {**target.get("dependencies", {}), **target.get("build-dependencies", {})}
    }


def test_every_crate_has_a_room() -> None:
    assert set(manifests()) <= set(CRATE_MAY_USE), "give the new crate a line in CRATE_MAY_USE"


@pytest.mark.parametrize("crate", manifests())
def test_arrows_between_crates_point_down(crate: str) -> None:
    upward = (dependencies(manifests()[crate]) & ROOMED_CRATES) - CRATE_MAY_USE[crate]
    assert not upward, f"{crate} must not know {sorted(upward)}"


# The largest group of files that import each other, of each crate and of the Python package. A module's
# declaration of another one counts as an import, and what a file only exports again as an import of the
# file that defines it. The numbers may fall. None grows but for a reason that is worth a newcomer's time.
CYCLE_FILES_MAX = {"store": 21, "record": 10, "query": 5, "python": 19, "python/pellucid": 0}

Module = tuple[str, ...]


def modules_of(crate: str) -> dict[Module, Path]:
    """The files of a crate by the path of their module."""
    source = ROOT / "crates" / crate / "src"
    found = {}
    for path in source.rglob("*.rs"):
        parts = path.relative_to(source).with_suffix("").parts
        found[parts[:-1] if parts[-1] in ("mod", "lib") else parts] = path
    return found


def paths_in(tree: str) -> Iterator[str]:
    """The paths that a `use` names: `a::{b, c::d}` has `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield re.sub(r"\s+as\s+\w+|\s", "", tree)
        return
    depth, part = 0, ""
    for sign in rest[: rest.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "," and not depth:
            yield from (paths_in(head + part) if part.strip() else ())
            part = ""
        else:
            part += sign


class Source:
    """The modules that a file names, its tests left out: by path, as far as `use` and paths in code say."""

    def __init__(self, module: Module, text: str) -> None:
        text = without_comments(text)
        text = re.sub(r"#\[cfg\(test\)\]\s*(pub\S* )?(mod \w+|use [^;]*);", "", text)
        text = re.sub(r"(?ms)^#\[cfg\(test\)\]\n(pub\S* )?mod \w+ \{\n.*?^\}$", "", text)
        uses = re.findall(r"\buse\s+((?:crate|super|self)\b[^;]*);", text)
        exported = re.findall(r"\bpub(?:\([^)]*\))? use\s+([^;<]*);", text)
        rest = re.sub(r"\buse\s+[^;]*;", "", text)
        self.children = set(re.findall(r"^\s*(?:pub\S* )?mod (\w+);", rest, re.M))
        self.paths = {self.whole(module, path) for use in uses for path in paths_in(use)}
        self.paths |= {self.whole(module, p) for p in re.findall(r"\b(?:crate|super)(?:::\w+)+", rest)}
        # The names that others may import from here, and where they are defined.
        self.exports: dict[str, Module] = {}
        for path, name in (pair for use in exported for pair in names_in(use)):
            self.exports[name] = self.whole(module, path)

    def whole(self, module: Module, path: str) -> Module:
        """The path from the crate's root."""
        parts = path.split("::")
        here = () if parts[0] == "crate" else module
        if parts[0] == "crate":
            parts = parts[1:]
        while parts and parts[0] in ("self", "super"):
            here, parts = (here[:-1] if parts[0] == "super" else here), parts[1:]
        return (*here, *parts)


def names_in(use: str) -> Iterator[tuple[str, str]]:
    """Each path of a `use` with the name that it gets: `a::{b, c as D}` has `b` and `D`."""
    for path in paths_in(re.sub(r"\s+as\s+(\w+)", r"=\1", use)):
        path, _, alias = path.partition("=")
        yield path, alias or path.rpartition("::")[2]


def defining(path: Module, sources: dict[Module, Source]) -> Module:
    """The file that defines what is at a path, through files that only export it again."""
    for _ in range(10):
        file = next(path[:size] for size in range(len(path), -1, -1) if path[:size] in sources)
        rest = path[len(file) :]
        if not rest or rest[0] not in sources[file].exports:
            return file
        path, last = (*sources[file].exports[rest[0]], *rest[1:]), path
        if path == last:  # a macro, by its name alone
            return file
    raise AssertionError(f"exported in a circle: {path}")


def imports_of(module: Module, sources: dict[Module, Source]) -> set[Module]:
    """The files of the same crate that a file names. A parent names those whose modules it declares."""
    source = sources[module]
    found = {defining(path, sources) for path in source.paths}
    found |= {(*module, name) for name in source.children if module}
    return (found & set(sources)) - {module, ()}


def cycles(imports: dict[Module, set[Module]]) -> list[set[Module]]:
    """The groups of modules that reach each other."""

    def reached(start: Module) -> set[Module]:
        seen, waiting = {start}, [start]
        while waiting:
            fresh = imports[waiting.pop()] - seen
            seen |= fresh
            waiting += fresh
        return seen

    reach = {module: reached(module) for module in imports}
    return [{other for other in reach[module] if module in reach[other]} for module in imports]


def imports_within(crate: str) -> dict[Module, set[Module]]:
    sources = {module: Source(module, path.read_text()) for module, path in modules_of(crate).items()}
    return {module: imports_of(module, sources) for module in sources}


def imports_of_python(module: Module, path: Path, modules: dict[Module, Path]) -> set[Module]:
    """The modules of the package that must be imported before this one: not in functions, nor for types."""
    package = module if path.name == "__init__.py" else module[:-1]
    found: set[Module] = set()
    waiting: list[ast.AST] = list(ast.parse(path.read_text()).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        names: list[Module] = []
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            here = package[: len(package) - node.level + 1] if node.level else ()
            here += tuple((node.module or "").split(".")) if node.module else ()
            names = [(*here, alias.name) for alias in node.names]
        for name in names:
            found.add(
                next((name[:size] for size in range(len(name), 0, -1) if name[:size] in modules), module)
            )
    return found - {module}


def imports_within_python() -> dict[Module, set[Module]]:
    root = ROOT / "python"
    modules = {}
    for path in (root / "pellucid").rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        modules[parts[:-1] if path.name == "__init__.py" else parts] = path
    return {module: imports_of_python(module, path, modules) for module, path in modules.items()}


@pytest.mark.parametrize("room", CYCLE_FILES_MAX)
def test_few_files_import_each_other(room: str) -> None:
    imports = imports_within_python() if room == "python/pellucid" else imports_within(room)
    largest = max(cycles(imports), key=len)
    names = ", ".join(sorted("::".join(module) for module in largest))
    count = len(largest) if len(largest) > 1 else 0
    assert count <= CYCLE_FILES_MAX[room], f"{count} files import each other: {names}"


def test_cycles_are_found() -> None:
    imports: dict[Module, set[Module]] = {
        ("a",): {("b",)},
        ("b",): {("c",)},
        ("c",): {("a",)},
        ("d",): {("a",)},
    }
    assert max(map(len, cycles(imports))) == 3
    found = set(paths_in("crate::{a::B, c::{self, d::E as F}}"))
    assert found == {"crate::a::B", "crate::c::self", "crate::c::d::E"}


def test_exported_names_are_imports_of_the_file_that_defines_them() -> None:
    sources = {
        (): Source((), "mod a;\nmod b;\npub use a::Outer as Other;\n"),
        ("a",): Source(("a",), "mod inner;\npub(crate) use inner::{Inner as Outer};\n"),
        ("a", "inner"): Source(("a", "inner"), "pub struct Inner;\n#[cfg(test)]\nuse crate::b::In;\n"),
        ("b",): Source(("b",), "use crate::Other;\n#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n"),
    }
    assert imports_of(("b",), sources) == {("a", "inner")}
    assert imports_of(("a",), sources) == {("a", "inner")}
    assert imports_of(("a", "inner"), sources) == set()


def layers_of_store() -> list[set[str]]:
    """The layers that ARCHITECTURE.md lists, the lowest first."""
    table = (
        (ROOT / "ARCHITECTURE.md").read_text().partition("| Layer | What it does |")[2].partition("\n\n")[0]
    )
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [set(re.findall(r"`(\w+)(?:/|\.rs)`", row)) for row in rows]


def test_no_import_of_the_store_goes_up() -> None:
    layers = layers_of_store()
    height = {name: number for number, names in enumerate(layers) for name in names}
    imports = {module: found for module, found in imports_within("store").items() if module}
    assert {module[0] for module in imports} == set(height), "ARCHITECTURE.md has a line for each layer"
    upward = {
        f"{'::'.join(module)} imports {'::'.join(other)}"
        for module, found in imports.items()
        for other in found
        if height[other[0]] > height[module[0]]
    }
    assert not upward, "\n".join(["", *sorted(upward)])


# Lines of Rust of the crates: code alone, without comments, blank lines and tests. The number may fall.
RUST_CODE_LINES_MAX = 77_731


def code_lines(rust: str) -> int:
    """The lines of a file that have code of the library."""
    text = re.sub(
        r"(?ms)^( *)#\[cfg\(test\)\]\n\1(pub\S* )?mod \w+ \{\n.*?^\1\}$", "", without_comments(rust)
    )
    return sum(1 for line in text.splitlines() if line.strip())


def rust_code_lines() -> int:
    names = [name for name in files() if is_rust_library(name) and not name.endswith("/tests.rs")]
    return sum(code_lines((ROOT / name).read_text()) for name in names)


def test_the_code_does_not_grow_by_itself() -> None:
    count = rust_code_lines()
    assert count <= RUST_CODE_LINES_MAX, f"{count} lines of code, and {RUST_CODE_LINES_MAX} is the limit"


def test_lines_of_code_are_counted_without_comments_and_tests() -> None:
    text = "//! Head.\n\nfn f() {\n    // why\n    g();\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n"
    assert code_lines(text) == 3


# What each room of the binding may import besides itself: raw CPython knows nothing of pellucid, and stored
# values know no database.
ROOMS_BELOW: dict[str, set[str]] = {"hot": set(), "values": {"hot", "errors", "counters"}}


@pytest.mark.parametrize("room", ROOMS_BELOW)
def test_rooms_of_the_binding_import_what_is_below(room: str) -> None:
    imports = {module: found for module, found in imports_within("python").items() if module[:1] == (room,)}
    upward = {
        ("::".join(module), "::".join(other))
        for module, found in imports.items()
        for other in found
        if other[0] not in {room, *ROOMS_BELOW[room]}
    }
    assert not upward


def test_no_file_is_a_blob() -> None:
    sizes = {name: (ROOT / name).stat().st_size for name in files()}
    assert not {name: size for name, size in sizes.items() if size > FILE_BYTES_MAX.get(name, 1_000_000)}


def is_text(name: str) -> bool:
    try:
        (ROOT / name).read_text("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def test_what_is_no_text_lies_where_it_belongs() -> None:
    # A database that a test has left behind is soon committed.
    assert not [name for name in files() if not name.startswith(("fuzz/", "fixtures/")) and not is_text(name)]
