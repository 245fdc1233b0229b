"""Installs a wheel into a fresh environment, and does what a newcomer does: try_wheel.py [part].

The folder has README.md, and `wheels` with the wheel and what its extra `cli` needs. Nothing but that folder
and Python's standard library is used, so that it runs in a bare system, too. Each part is a process of the
environment's Python; without a part, all of them run.
"""

from __future__ import annotations

import doctest
import importlib.metadata
import re
import subprocess
import sys
import time
from pathlib import Path

PYTHON = "env/bin/python"
PUTS = 2_000
"""Puts that a process acknowledges before it is killed."""


def main() -> None:
    """Install the wheel, and try all parts of it."""
    run(sys.executable, "-m", "venv", "env")
    begin = time.monotonic()
    install("pellucid")
    part("readme")
    print(f"installed, and README's first block run, in {time.monotonic() - begin:.1f} s")
    for name in ("package", "kill", "query"):
        part(name)
    install("pellucid[cli]")
    part("command")


def run(*command: str) -> str:
    """Run a program and return what it prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}`{' '.join(command)}` failed")
    return done.stdout


def install(requirement: str) -> None:
    """Install from the folder alone."""
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    run(*pip, "--find-links", "wheels", requirement)


def part(name: str) -> None:
    """Run a part with the Python that has the wheel."""
    run(PYTHON, __file__, name)


def readme() -> None:
    """Run the first block of README.md."""
    [source, *_] = re.findall(r"^```python\n(.*?)^```$", Path("README.md").read_text("utf-8"), re.M | re.S)
    test = doctest.DocTestParser().get_doctest(source, {}, "README.md", "README.md", 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    expect("README.md", runner.run(test).failed, 0)


def package() -> None:
    """Look at what was installed: where it is, and the licenses of what is in it."""
    import pellucid

    expect("the package's folder", Path(pellucid.__file__).is_relative_to(Path("env").resolve()), True)
    names = {path.name for path in importlib.metadata.files("pellucid") or []}
    licenses = {"LICENSE-MIT", "LICENSE-APACHE", "LICENSE-CRATES", "py.typed"}
    expect("files that lack", licenses - names, set())


def kill() -> None:
    """Kill a process amid its writes: what it has acknowledged is there."""
    import pellucid

    with subprocess.Popen([PYTHON, __file__, "write"], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        told = [int(writer.stdout.readline()) for _ in range(PUTS)]
        writer.kill()
        told += [int(line) for line in writer.stdout if line.endswith("\n")]
    with pellucid.open("killed.pel") as db:
        expect("acknowledged puts that lack", [number for number in told if db[number] != {"n": number}], [])
        db["more"] = {"n": -1}
    with pellucid.open("killed.pel") as db:
        expect("a row after that", db["more"].n, -1)
        expect("the check", db.check(), [])


def write() -> None:
    """Put row after row, and say so of each."""
    import pellucid

    db = pellucid.open("killed.pel")
    number = 0
    while True:
        db[number] = {"n": number}
        print(number, flush=True)
        number += 1


def query() -> None:
    """Import rows, query them, and read them again after the file was closed."""
    import pellucid
    from pellucid import F

    Path("people.jsonl").write_text('{"name": "Ann", "age": 41}\n{"name": "Bob", "age": 19}\n')
    with pellucid.open("people.pel") as db:
        db.table("people").create_index("by_age", F.age)
        pellucid.import_from("people.jsonl", db, table="people", key="name")
    with pellucid.open("people.pel") as db:
        expect("a query", db.table("people").where(F.age > 40).column("name"), ["Ann"])


def command() -> None:
    """Query with the command."""
    shown = run("env/bin/pellucid", "query", "people.pel", "people", "--where", "age >= 21")
    expect("the command's rows", re.findall(r"Ann|Bob", shown), ["Ann", "Ann"])


def expect(what: str, found: object, expected: object) -> None:
    """Fail unless both are equal."""
    if found != expected:
        raise SystemExit(f"{what}: {found!r}, and {expected!r} is expected")


if __name__ == "__main__":
    parts = [readme, package, kill, write, query, command]
    {function.__name__: function for function in parts}.get(" ".join(sys.argv[1:]), main)()
