"""The inputs that are kept of a fuzz target, as the files that libFuzzer wants, and back.

    python3 tools/corpus.py unpack decode fuzz/target/corpus/decode
    python3 tools/corpus.py keep decode fuzz/artifacts/decode/crash-1

`fuzz/corpus/` has a text file for each kind of input, a line of hex for each input, shortest first. Targets
that take the same kind of input share one.
"""

from __future__ import annotations

import sys
from pathlib import Path

CORPUS = Path(__file__).parent.parent / "fuzz" / "corpus"
KINDS = {
    "decode": "records",
    "path_expressions": "records",
    "validate_against_accessors": "records",
    "keys": "keys",
    "envelope_import": "envelopes",
    "change_in_place": "changes",
    "expressions": "expressions",
}


def inputs(kind: Path) -> set[bytes]:
    """Return the inputs of one kind."""
    return {bytes.fromhex(line) for line in kind.read_text().splitlines()} if kind.exists() else set()


def main(verb: str, target: str, *paths: str) -> None:
    """Write a target's inputs into a folder, or add files to them."""
    kind = CORPUS / f"{KINDS[target]}.txt"
    kept = inputs(kind)
    if verb == "unpack":
        folder = Path(paths[0])
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(sorted(kept)):
            (folder / f"{number:04}").write_bytes(data)
    elif verb == "keep":
        kept.update(Path(path).read_bytes() for path in paths)
        shortest_first = sorted(kept, key=lambda data: (len(data), data))
        kind.write_text("".join(f"{data.hex()}\n" for data in shortest_first))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
