"""This module builds HTML. Every text is escaped, unless it is markup that this module made."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable

VOID = frozenset({"br", "input", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Iterable["str | Markup"]


def element(name: str, /, *content: Content, **attributes: str | bool | None) -> Markup:
    """Return an element; attributes that are None or False are left out, and `class_` is `class`.

    >>> element("p", "a < b ", element("em", "c"), class_='"')
    '<p class="&quot;">a &lt; b <em>c</em></p>'
    """
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif isinstance(value, str):
            words.append(f'{key}="{_escaped_text(value)}"')
    opening = Markup(f"<{' '.join(words)}>")
    return opening if name in VOID else Markup(f"{opening}{inline(*content)}</{name}>")


def inline(*content: Content) -> Markup:
    """Join texts and elements."""
    return Markup("".join(map(_escaped, content)))


def verbatim(text: str) -> Markup:
    """Mark a text of this package as HTML."""
    return Markup(text)


def data(value: object) -> Markup:
    """Return JSON that no parser of HTML can leave: neither a script's end nor a comment is in it.

    >>> data({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _escaped(content: Content) -> str:
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return _escaped_text(content)
    return "".join(map(_escaped, content))


def _escaped_text(text: str) -> str:
    # JSON can hold half of a pair of surrogates, and a file in UTF-8 cannot.
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))
