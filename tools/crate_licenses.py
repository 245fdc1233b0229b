"""Collects the licenses of the crates that are compiled into the module, which a wheel must carry."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
HEAD = """\
The compiled module has code of the crates below, whose sources crates.io has, and of Rust's standard library
(MIT OR Apache-2.0). The licenses of LMDB and Zstandard are in files of their own.
"""


def licenses(folder: Path) -> str:
    """Return a list of the crates in the module of a clone, and each text of a license once."""
    target = f"{platform.machine()}-unknown-linux-gnu"
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    manifest = folder / "crates/python/Cargo.toml"
    done = subprocess.run([*command, "--manifest-path", str(manifest)], stdout=subprocess.PIPE, check=True)
    return text_of([crate for crate in compiled_in(json.loads(done.stdout)) if crate["source"]])


def compiled_in(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the crates whose code is in the root: without those that run while it is compiled."""
    crates = {crate["id"]: crate for crate in metadata["packages"]}
    uses = {
        node["id"]: [use["pkg"] for use in node["deps"] if any(not kind["kind"] for kind in use["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    found: set[str] = set()
    waiting = [metadata["resolve"]["root"]]
    while waiting:
        one = waiting.pop()
        is_macro = any("proc-macro" in target["kind"] for target in crates[one]["targets"])
        if one not in found and not is_macro:
            found.add(one)
            waiting += uses[one]
    return sorted((crates[one] for one in found), key=lambda crate: (crate["name"], crate["version"]))


def text_of(crates: list[dict[str, Any]]) -> str:
    """Return the list of the crates, and the texts in their folders."""
    users: dict[str, list[str]] = {}
    for crate in crates:
        files = sorted(Path(crate["manifest_path"]).parent.iterdir())
        texts = [path.read_text("utf-8").strip() for path in files if path.name.upper().startswith(NAMES)]
        if not texts:
            raise SystemExit(f"dev: the crate {crate['name']} has no file with its license")
        for text in dict.fromkeys(texts):
            users.setdefault(text, []).append(f"{crate['name']} {crate['version']}")
    names = [f"{crate['name']} {crate['version']}: {crate['license']}" for crate in crates]
    parts = [f"{'-' * 80}\nFor {', '.join(of)}:\n\n{text}" for text, of in users.items()]
    return "\n".join([HEAD, *names, "", *parts, ""])
