"""Does `matches` find what `re.search` finds?"""

from __future__ import annotations

import itertools
import random
import re
import unicodedata
import warnings

import pellucid
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pellucid import F

#: Texts with what the two syntaxes take for different things.
TEXTS = [
    *("", "\n", "a", "b", "abc", "abc\n", "abc\n\n", "a\nb", "a\nb\n", "\na", "ABC", "a b", "a-b", "foo bar"),
    *("[a", "a]", "&&", "a&&b", "~", "--", ":alpha:", "{", "}", "a{,3}", "a{", "{1}", "x{2}y", "a{1,2", "^$"),
    *(
        "\x00",
        "\x01",
        "\x07",
        "\x08",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2003",
        "\t\v\f\r",
        "#",
        "a#b",
        "\\",
        "1",
        "12",
    ),
    *(
        "\u0663",
        "\u00b2",
        "\u00bd",
        "\u2167",
        "\u2460",
        "\u24b6",
        "e\u0301",
        "\u0301",
        "a\u203fb",
        "\u200d",
        "\u5345",
    ),
    *(
        "K",
        "k",
        "\u212a",
        "s",
        "\u017f",
        "S",
        "i",
        "I",
        "\u0130",
        "\u0131",
        "\u00df",
        "\u1e9e",
        "\u03c3\u03c2",
    ),
    *(
        "\u00b5",
        "\u03bc",
        "\u01c4\u01c5",
        "\u0345",
        "\u0390",
        "\u1fd3",
        "\ufb05",
        "\ufb06",
        "\U00010400\U00010428",
    ),
    *(
        "stra\u00dfe",
        "\u00e9t\u00e9 ici",
        "na\u00efve",
        "x\u00e9",
        "\u00e9x",
        "_",
        "a_b",
        "aaaa",
        "abab",
        "tel. 12\n",
    ),
]

PATTERNS = [
    *(r"(?a)\B", r"(?a)A\B.", r"(?a)\BK", r"(?a)\B\w", r"(?a)A\b.\bK", r"(?a).\B.\B.", r"(?a)\B$"),
    *(
        r"x\Z",
        r"c\Z",
        r"\Aa",
        "abc$",
        "^abc$",
        "b$",
        "$",
        "^",
        "(?m)b$",
        "(?m)^b",
        "(?m)^\\Z",
        "a$\\n",
        "$\\n\\Z",
        "a$b",
    ),
    *(
        "(a$|b)",
        "(?:a$)?b",
        "(?:c$)+",
        "(?:c$){2}",
        "(?:$c)*a",
        "c$\\n?",
        "$$",
        "c$\\b",
        "(?:c$\\n)$",
        "$(?:\\n|b)",
    ),
    *(
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        r"\bx",
        r"x\b",
        r"\B",
        r"e\b",
        r"\b\w\b",
        r"\ba\B",
        r"a\Bb",
        r"\Bx",
    ),
    *(
        r"(?a)\d",
        r"(?a)\w+\Z",
        r"(?a)\W",
        r"(?a)\s",
        r"(?a)\bx\b",
        r"(?a:\w)\w",
        r"(?a)(?u:q1|\w)\Z",
        r"(?a)x\B",
    ),
    *(
        "(?i)k",
        "(?i)K",
        "(?i)s",
        "(?i)i",
        "(?i)\u0130",
        "(?i)\u0131",
        "(?i)\u00df",
        "(?i)[a-k]\\Z",
        "(?i)[^a-k]",
    ),
    *(
        "(?ai)k\\Z",
        "(?ai)[^k]",
        "(?i)\u03bc",
        "(?i)\u03c3{2}",
        "(?i)\u0399",
        "(?i)[\u0390]",
        "(?i)\ufb05\\Z",
        "(?i:A)b",
    ),
    *(
        "(?i)\U00010428{2}",
        "(?i)[\U00010400-\U00010427]{2}",
        "(?-i:a)B",
        "(?i)a(?-i:b)",
        "(?i)[\u01c4]{2}",
        "(?i)abc",
    ),
    *(
        "[[a]",
        "[[a]]",
        "[a&&b]",
        "[a&&b]{2}",
        "[&&]",
        "[+--b]",
        "[~~]",
        "[a||b]",
        "[[:alpha:]]",
        "[]a]",
        "[^]a]",
    ),
    *(
        "[a-]",
        "[-a]",
        "[a\\-z]",
        "[\\]]",
        "[\\w-]",
        "[^\\w]",
        "[^\\W\\d]",
        "[\\d\\s]",
        "[\\b]",
        "[^\\S]",
        "[{}]",
        "[.]",
    ),
    *(
        "a{,3}b",
        "a{,}b",
        "a{2}",
        "a{2,}",
        "a{1,2}\\Z",
        "a{",
        "a{,",
        "{",
        "x{2}y",
        "a{1,2",
        "{}",
        "a{}",
        "a{ 2}",
        "a{2 }",
    ),
    *(
        "\\0",
        "\\01",
        "\\07",
        "\\010",
        "\\101",
        "[\\0]",
        "[\\07]",
        "[\\101]",
        "\\x61",
        "\\u0061",
        "\\U00000061",
        "\\a",
    ),
    *(
        "\\n",
        "\\t",
        "\\v",
        "\\f",
        "\\r",
        "\\\\",
        "\\.",
        "\\-",
        "\\#",
        "\\ ",
        "\\&",
        "\\~",
        "\\<",
        "\\>",
        "\\\u00e9",
        "\\_",
    ),
    *(
        "(?x) a b c # all\n",
        "(?x)a\\ b",
        "(?x)[ #]",
        "(?x)a #b\n b",
        "(?x: a )b",
        "(?x)(?-x: )b",
        "(?x)a {2}",
        "(?x)a +",
    ),
    *(
        "(?s)a.b",
        "a.b",
        ".",
        "(?s).",
        "(?s:.)\\Z",
        "(?is)A.B",
        "(?m)(?i)^B",
        "(?P<n>a)b",
        "(?P<\u00e9>a)",
        "(?#c)a",
        "a(?#c)*",
    ),
    *(
        "",
        "a|",
        "|a",
        "()",
        "(|a)b",
        "(?:)*",
        "(?:a*)*b",
        "(?:^)*a",
        "(a)(b)?",
        "a*?b",
        "a+?",
        "a??b",
        "a{1,2}?",
        "(?:a|b)+",
    ),
    *(
        "\ud7ff-\ue000",
        "[\u0000-\uffff]\\Z",
        "[^a]",
        "[\\ud800-\\udfff]",
        "[^\\ud800]",
        "a\\Zb",
        "c\\z",
        "a\nb",
        "\u00e9",
        "#",
    ),
]

BAD = [
    *(
        "(",
        ")",
        "a)",
        "[",
        "[]",
        "[^]",
        "[z-a]",
        "[\\w-z]",
        "[a-\\d]",
        "*",
        "+a",
        "a|*",
        "(*)",
        "a**",
        "a+*",
        "a{2}{3}",
    ),
    *("^*", "$+", "\\b*", "\\A?", "\\B{2}", "a{3,2}", "\\", "[\\", "[a\\", "\\q", "\\h", "\\R", "\\e", "\\y"),
    *(
        "[\\q]",
        "[\\A]",
        "[\\B]",
        "[\\Z]",
        "\\x",
        "\\x6",
        "\\xg0",
        "\\u006",
        "\\U0000006",
        "\\U00110000",
        "\\400",
        "[\\400]",
    ),
    *(
        "[\\8]",
        "(?",
        "(?:",
        "(?P",
        "(?P<",
        "(?P<>a)",
        "(?P<1>a)",
        "(?P<a>a)(?P<a>b)",
        "(?P<a b>a)",
        "(?Pa)",
        "(?<n>a)",
        "(?#a",
    ),
    *(
        "(?i",
        "(?z)",
        "(?i-)",
        "(?-i)",
        "(?-a:b)",
        "(?i-i:a)",
        "(?L)a",
        "(?au)a",
        "(?R)",
        "(?U)a",
        "(?'n'a)",
        "\\N{nothing such}",
    ),
    *("(?x)a*\n *", "(?x) *", "(?x)("),
]

#: Python has them, and they take more than linear time, or its tables.
UNSUPPORTED = [
    (r"(a)\1", "backreferences are not supported"),
    (r"(?P<n>a)(?P=n)", "backreferences are not supported"),
    ("a(?=b)", "look-around, including look-ahead and look-behind, is not supported"),
    ("a(?!b)", "look-around"),
    ("(?<=a)b", "look-around"),
    ("(?<!a)b", "look-around"),
    ("(a)?(?(1)b|c)", "conditional groups are not supported"),
    (
        r"\N{EM DASH}",
        r"characters by their names are not supported \(write the character, or \\u and its code\)",
    ),
    (r"\ud800", "a lone surrogate is not supported"),
    ("(?>a)", "atomic groups are not supported"),
    ("a++", "possessive repetitions are not supported"),
    ("(" * 101 + ")" * 101, "groups nest deeper than 100"),
    (r"\w{9999}", "size limit"),
    ("a{99999999999}", "the repetition number is too large"),
]


def found(pattern: str, texts: list[str]) -> list[bool]:
    """Which of the texts `matches` finds the pattern in."""
    table = pellucid.open(":memory:").table("t")
    table.extend({"x": text} for text in texts)
    return [row["is"] for row in table.select(**{"is": F.x.matches(pattern)})]


def expected(pattern: str, texts: list[str]) -> list[bool]:
    with warnings.catch_warnings():
        # Of sets that may mean another thing one day.
        warnings.simplefilter("ignore", FutureWarning)
        compiled = re.compile(pattern)
    # Python before 3.14 finds no \B in an empty text.
    return [
        compiled.search(text) is not None or (text == "" and pattern in (r"\B", r"(?a)\B", r"(?a)\B$"))
        for text in texts
    ]


@pytest.mark.parametrize("text", ["A\u00e9K", "A\u20acK", "A\U0001f600K", "\u00e9", "\u00e9\u00e9", "\u20ac"])
@pytest.mark.parametrize("pattern", [r"(?a)\B", r"(?a)A\B.", r"(?a)\BK", r"(?a).\B.\B.", r"(?a)\B$"])
def test_no_place_within_a_character_is_a_place(pattern: str, text: str) -> None:
    assert found(pattern, [text]) == expected(pattern, [text])


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (r"'\bcat\b'", r"\bcat\b"),
        (r"'\\bcat\\b'", r"\bcat\b"),
        (r"r'\bcat\b'", r"\bcat\b"),
        (r"'\d+ [\w.]\.'", r"\d+ [\w.]\."),
        (r"'it\'s \"'", "it's \""),
        (r"'\\\\'", r"\\"),
        (r"'\x2e\x20\u005b\x41\n'", "\\.\\ \\[A\n"),
        (r"'[\b]'", r"[\b]"),
        (r"'\012'", r"\012"),
    ],
)
def test_a_backslash_in_the_text_of_a_pattern_is_the_patterns_own(text: str, pattern: str) -> None:
    parsed = pellucid.parse(f"x MATCHES {text}")
    assert str(parsed) == str(F.x.matches(pattern))
    assert str(pellucid.parse(str(parsed))) == str(parsed)
    assert str(pellucid.parse(f"x not matches {text}")) == str(~F.x.matches(pattern))
    with pytest.raises(ValueError, match="no such escape"):
        pellucid.parse(r"x == '\d'")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_found_where_python_finds_it(pattern: str) -> None:
    python = pattern.replace("\\z", "\\Z")
    assert dict(zip(TEXTS, found(pattern, TEXTS), strict=True)) == dict(
        zip(TEXTS, expected(python, TEXTS), strict=True)
    )


@pytest.mark.parametrize("pattern", BAD)
def test_what_is_none_of_pythons_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        re.compile(pattern)
    with pytest.raises(ValueError, match="is no regular expression"):
        F.x.matches(pattern)
    with pytest.raises(ValueError, match="this is no regular expression"):
        pellucid.parse(f"x matches {pattern!r}" if "'" not in pattern else f'x matches r"{pattern}"')


@pytest.mark.parametrize(("pattern", "why"), UNSUPPORTED)
def test_what_takes_more_than_linear_time_is_refused_by_its_name(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        F.x.matches(pattern)


def test_where_a_pattern_is_wrong_is_said() -> None:
    for pattern, place in [
        (r"ab\q", "at character 3"),
        ("a\nb[z-a]", "at line 2, character 3"),
        ("a(b", "at character 2"),
    ]:
        with pytest.raises(ValueError, match=place):
            F.x.matches(pattern)
    with pytest.raises(ValueError, match="global flags not at the start of the expression"):
        F.x.matches("a(?i)b")


def test_properties_of_unicode_are_taken_beside_what_python_has() -> None:
    assert found(r"^[\p{Greek}\d]+\Z", ["\u03b1\u03b22", "\u03b1b"]) == [True, False]
    assert found(r"\PL", ["ab", "a1"]) == [False, True]
    with pytest.raises(ValueError, match=r"there is no property \\p\{Nothing\}"):
        F.x.matches(r"\p{Nothing}")


# What is assigned in all versions of Unicode that Python and the crate may have.
CHARACTERS = [
    chr(code)
    for code in range(0x30000)
    if unicodedata.ucd_3_2_0.category(chr(code)) not in {"Cn", "Cs"}
    and unicodedata.ucd_3_2_0.category(chr(code)) == unicodedata.category(chr(code))
]


@pytest.mark.parametrize(
    "pattern", [r"\d", r"\w", r"\s", r"[^\W_]", r"\b", "(?i)[a-z]", "(?i)[\u0390-\u03c9]", "."]
)
def test_each_character_is_of_the_classes_that_python_has(pattern: str) -> None:
    python = expected(pattern, CHARACTERS)
    differ = [
        (character, ours)
        for character, ours, theirs in zip(CHARACTERS, found(pattern, CHARACTERS), python, strict=True)
        if ours != theirs
    ]
    assert differ == []


def test_letters_are_alike_that_are_so_for_python() -> None:
    cased = [one for one in CHARACTERS if one.lower() != one or one.upper() != one]
    choose = random.Random(7)
    for letter in choose.sample(cased, 40):
        others = sorted({*choose.sample(cased, 200), *letter.upper(), *letter.lower(), letter.title()[0]})
        assert found(f"(?i){letter}", others) == expected(f"(?i){letter}", others), letter


PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            "A",
            ".",
            "$",
            "^",
            r"\b",
            r"\B",
            r"\w",
            r"\d",
            r"\s",
            r"\W",
            "\n",
            r"\n",
            " ",
            "-",
            "\u00e9",
        ),
        *(
            r"\Z",
            r"\A",
            "[ab]",
            "[^a]",
            "[a&&b]",
            "[[]",
            r"[\w-]",
            "{",
            "}",
            "{,2}",
            "{2}",
            "*",
            "+",
            "?",
            "|",
        ),
        *(
            "(",
            ")",
            "(?:",
            "(?i:",
            "(?m:",
            "(?s:",
            "(?a:",
            "(?x:",
            "#",
            r"\0",
            r"\x41",
            "\u0301",
            "\u212a",
            "k",
        ),
    ]
)


@settings(max_examples=1500)
@given(
    st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?a)", "(?x)"]),
    st.lists(PIECES, max_size=9).map("".join),
    st.lists(st.text("abAk \n-1\u00e9\u0301\u212a_#{", max_size=6), min_size=1, max_size=4),
)
def test_random_patterns_are_found_where_python_finds_them(flags: str, rest: str, texts: list[str]) -> None:
    pattern = flags + rest
    try:
        python = expected(pattern, texts)
    except re.error:
        python = None
    try:
        ours: list[bool] | None = found(pattern, texts)
        why = ""
    except ValueError as error:
        ours, why = None, str(error)
    if ours is None or python is None:
        # Python has possessive repetitions from 3.11 on.
        assert ours is python or "possessive" in why, (pattern, why)
        return
    # Before 3.14, \B is found in no empty text.
    for text, mine, theirs in zip(texts, ours, python, strict=True):
        assert mine == theirs or (text == "" and r"\B" in pattern), (pattern, text)


def test_a_text_of_megabytes_takes_no_more_than_linear_time() -> None:
    text = "a" * 300_000 + "\u00e9"
    assert found(r"(?:a|a)*\bb", [text]) == [False]
    assert found(r"(a*)*$b", [text]) == [False]
    assert found(r"\b\u00e9|a\u00e9\b", [text]) == [True]


def test_a_pattern_is_stored_with_an_index_and_says_the_same_there() -> None:
    table = pellucid.open(":memory:").table("t")
    table.extend({"x": text} for text in itertools.chain(TEXTS, ["abc$"]))
    before = {p: list(table.where(F.x.matches(p)).keys()) for p in ("c$", r"\bx", "(?i)k")}
    table.create_index("some", F.x, where=F.x.matches("c$"))
    for pattern, keys in before.items():
        assert list(table.where(F.x.matches(pattern)).keys()) == keys
    assert len(table.index("some")) == len(before["c$"])
