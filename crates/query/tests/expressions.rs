//! Is what is shown what was parsed, and is each text that is no expression told so?
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may do what tests may")]

use pellucid_query::Evaluator;
use pellucid_query::expression::{
    Comparison, DEPTH_MAX, Expression, Function, Kind, Node, Operation, Part, Source, Step, parse,
};
use pellucid_record::key::KeyEncoder;
use pellucid_record::layout::tag;
use pellucid_record::payload::{self, Overflow, Timedelta};
use pellucid_record::value::{Double, NoShapes, OwnedZone, Value, encode_value};
use pellucid_record::{Corrupt, Damage, Shape, Shapes};
use pellucid_store::Row;
use proptest::collection::vec;
use proptest::prelude::*;

// Numbers where a sign, a point or an exponent has been lost before: both zeros, the edges of i64, NaNs with signs and bits of
// their own, floats that are whole, ints of more digits than may be read.
fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-20..20i64).prop_map(Value::Int),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()].prop_map(Value::Int),
        2 => prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            Just(0.0),
            Just(-0.0),
            Just(1e16),
            Just(1.5),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(f64::NAN),
            Just(-f64::NAN),
        ]
        .prop_map(|value| Value::Float(Double(value))),
        1 => vec(any::<u8>(), 9..40).prop_filter_map("as short as it goes", |bytes| {
            payload::is_bigint(&bytes).then_some(Value::BigInt(bytes))
        }),
        1 => (any::<u8>(), 2000..3000usize).prop_map(|(byte, size)| Value::BigInt([vec![byte; size], vec![1]].concat())),
    ]
}

// Quotes, backslashes, what cannot be seen, keywords, names that need backticks and such that do not.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{0,3}",
        "[a-c'\"`\\\\\\n\\t\u{0}\u{7f}\u{e4}\u{2028}\u{202e}\u{1f600}]{0,8}",
        "\\PC{0,6}",
        proptest::sample::select(vec![
            "and", "NOT", "in", "None", "date", "key", "b", "r", "value", "record", "1a", "a.b", ""
        ])
        .prop_map(str::to_owned),
    ]
}

fn zones() -> impl Strategy<Value = OwnedZone> {
    prop_oneof![
        (-86_399_999_999..86_400_000_000i64, "[A-Z()\\[\\] ]{0,4}")
            .prop_map(|(offset, name)| OwnedZone::Fixed(offset, name)),
        (-23..24i64, Just(String::new()))
            .prop_map(|(hours, name)| OwnedZone::Fixed(hours * 3_600_000_000, name)),
        "[A-Z][a-z]{2,6}/[A-Z][a-z]{2,6}".prop_map(OwnedZone::Key),
        Just(OwnedZone::Key("[x] fold=1".into())),
    ]
}

const DATETIME_END: i64 = 3_652_059 * 86_400_000_000;

fn times() -> impl Strategy<Value = Value> {
    // Whole seconds and minutes are written without what is 0.
    let micros = || {
        prop_oneof![0..DATETIME_END, (0..DATETIME_END / 60_000_000).prop_map(|minutes| minutes * 60_000_000)]
    };
    prop_oneof![
        (1..=3_652_059u32).prop_map(Value::Date),
        (micros(), any::<bool>()).prop_map(|(micros, fold)| Value::Datetime(micros, fold)),
        (micros(), any::<bool>(), zones(), -86_399_999_999..86_400_000_000i64).prop_map(
            |(local, fold, zone, offset)| {
                let offset = if let OwnedZone::Fixed(own, _) = zone { own } else { offset };
                Value::Aware { local, fold, offset, zone }
            }
        ),
        (micros(), any::<bool>(), proptest::option::of(zones()))
            .prop_map(|(micros, fold, zone)| Value::Time(micros % 86_400_000_000, fold, zone)),
        (-3..3i32, 0..86_400u32, 0..1_000_000u32)
            .prop_map(|(days, seconds, micros)| Value::Timedelta(Timedelta { days, seconds, micros })),
        Just(Value::Timedelta(Timedelta { days: -999_999_999, seconds: 0, micros: 0 })),
    ]
}

fn hashable_scalars() -> impl Strategy<Value = Value> {
    let double = || any::<u64>().prop_map(|bits| Double(f64::from_bits(bits)));
    prop_oneof![
        2 => Just(Value::None),
        2 => any::<bool>().prop_map(Value::Bool),
        8 => numbers(),
        8 => texts().prop_map(Value::Str),
        1 => (texts(), 0xA0..0xC0u8, 0x80..0xC0u8).prop_map(|(text, second, third)| {
            Value::Surrogates([text.as_bytes(), &[0xED, second, third], text.as_bytes()].concat())
        }),
        2 => vec(any::<u8>(), 0..12).prop_map(Value::Bytes),
        1 => (double(), double()).prop_map(|(real, imaginary)| Value::Complex(real, imaginary)),
        1 => (-3..3i32, -3..3i32).prop_map(|(real, imaginary)| Value::Complex(Double(real.into()), Double(imaginary.into()))),
        1 => "-?[0-9]{1,30}(\\.[0-9]{1,5})?(E[+-][0-9]{1,4})?|-?Infinity|NaN|-sNaN12".prop_map(Value::Decimal),
        1 => any::<[u8; 16]>().prop_map(Value::Uuid),
        4 => times(),
    ]
}

fn hashables() -> impl Strategy<Value = Value> {
    hashable_scalars().prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::Tuple),
            vec(inner, 0..3).prop_map(Value::FrozenSet)
        ]
    })
}

fn values() -> impl Strategy<Value = Value> {
    let others = prop_oneof![
        vec(any::<u8>(), 0..12).prop_map(Value::Bytearray),
        vec(any::<u8>(), 0..12).prop_map(Value::Pickle),
        any::<u64>().prop_map(|blob| Value::Overflow(Overflow { tag: tag::BYTES, blob, size: 9 })),
        (1..4i64).prop_map(|count| Value::Ndarray {
            dtype: Box::new(Value::Str("<i2".into())),
            shape: vec![count],
            flags: 0,
            data: vec![7; 2 * usize::try_from(count).unwrap()],
        }),
    ];
    let scalars = prop_oneof![8 => hashable_scalars(), 1 => others];
    scalars.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::List),
            vec(inner.clone(), 0..4).prop_map(Value::Tuple),
            vec(hashables(), 0..4).prop_map(Value::Set),
            ("[a-z.]{1,9}", inner.clone()).prop_map(|(name, value)| Value::Registered(name, Box::new(value))),
            vec((hashables(), inner), 0..4).prop_map(|entries| {
                // 1, 1.0 and True are one key, and each stands once in a dict.
                let is_new = |(index, (key, _)): &(usize, (Value, Value))| {
                    let same = |(other, _): &(Value, Value)| {
                        pellucid_query::order::equal(other, key) || other == key
                    };
                    !entries[..*index].iter().any(same)
                };
                Value::Dict(
                    entries.clone().into_iter().enumerate().filter(is_new).map(|(_, entry)| entry).collect(),
                )
            }),
        ]
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => texts().prop_map(|name| Step::Field(name.into())),
        2 => any::<i64>().prop_map(Step::Index),
        2 => Just(Step::Each),
        2 => hashables().prop_filter_map("small enough", Step::to),
        // A key that `Step::to` would not make: the bytes tell it from the field.
        1 => texts().prop_map(|name| Step::Key(encode_value(&Value::Str(name), &mut NoShapes).unwrap().into())),
    ]
}

fn leaves() -> impl Strategy<Value = Node> {
    let path = vec(steps(), 0..4).prop_map(|path| Kind::Field(Source::Record, path));
    let key = vec((-3..3i64).prop_map(Step::Index), 0..3).prop_map(|path| Kind::Field(Source::Key, path));
    prop_oneof![4 => path, 1 => key, 4 => values().prop_map(Kind::Literal)]
        .prop_map(|kind| Expression::new(kind).unwrap())
}

/// That one begins or ends with the other, in whose place there is text where it is a literal without a begin and an end.
fn has(part: Part, one: Node, other: Node) -> Kind {
    let is_refused = matches!(other.kind(), Kind::Literal(value) if !part.may_be(value));
    Kind::Has(part, one, if is_refused { Expression::literal(Value::Str("a'".to_owned())) } else { other })
}

fn expressions() -> impl Strategy<Value = Node> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    use Operation::{Add, Divide, Multiply, Remainder, Subtract};
    leaves().prop_recursive(6, 40, 3, |inner| {
        let one = || inner.clone();
        let comparisons = vec![Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
        let two_kinds = prop_oneof![
            proptest::sample::select(comparisons).prop_map(|comparison| -> fn(Node, Node) -> Kind {
                match comparison {
                    Equal => |one, other| Kind::Compare(Equal, one, other),
                    NotEqual => |one, other| Kind::Compare(NotEqual, one, other),
                    Less => |one, other| Kind::Compare(Less, one, other),
                    LessOrEqual => |one, other| Kind::Compare(LessOrEqual, one, other),
                    Greater => |one, other| Kind::Compare(Greater, one, other),
                    GreaterOrEqual => |one, other| Kind::Compare(GreaterOrEqual, one, other),
                }
            }),
            proptest::sample::select(vec![Add, Subtract, Multiply, Divide, Remainder]).prop_map(
                |operation| -> fn(Node, Node) -> Kind {
                    match operation {
                        Add => |one, other| Kind::Arithmetic(Add, one, other),
                        Subtract => |one, other| Kind::Arithmetic(Subtract, one, other),
                        Multiply => |one, other| Kind::Arithmetic(Multiply, one, other),
                        Divide => |one, other| Kind::Arithmetic(Divide, one, other),
                        Remainder => |one, other| Kind::Arithmetic(Remainder, one, other),
                    }
                }
            ),
            Just((|one, other| has(Part::Start, one, other)) as fn(Node, Node) -> Kind),
            Just((|one, other| has(Part::End, one, other)) as fn(Node, Node) -> Kind),
            Just((|one, other| Kind::Has(Part::Anywhere, one, other)) as fn(Node, Node) -> Kind),
        ];
        prop_oneof![
            4 => (two_kinds, one(), one()).prop_map(|(kind, one, other)| kind(one, other)),
            2 => vec(one(), 2..4).prop_map(Kind::all),
            2 => vec(one(), 2..4).prop_map(Kind::any),
            3 => one().prop_map(Kind::Not),
            2 => one().prop_map(Kind::Negative),
            1 => (one(), one(), one()).prop_map(|(value, least, greatest)| Kind::Between(value, least, greatest)),
            1 => (one(), vec(values(), 0..4)).prop_map(|(part, values)| Kind::is_in(part, values)),
            1 => (one(), "[a-z'\\\\$^]{0,2}").prop_map(|(part, pattern)| Kind::Matches(part, pattern.replace('\\', "\\\\"))),
            1 => one().prop_map(Kind::Exists),
            1 => one().prop_map(Kind::IsNone),
            1 => (proptest::sample::select(Function::ALL.to_vec()), one())
                .prop_map(|(function, part)| Kind::Call(function, part)),
        ]
        .prop_map(|kind| Expression::new(kind).unwrap())
    })
}

/// Where the text of an expression has parentheses that group: pairs that hold something, and no comma of a tuple.
fn without_one_pair(text: &str) -> Vec<String> {
    let mut open = Vec::new();
    let mut shorter = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            '(' => open.push(at),
            ')' => {
                if let Some(start) = open.pop() {
                    shorter.push(format!("{}{}{}", &text[..start], &text[start + 1..at], &text[at + 1..]));
                }
            }
            _ => {}
        }
    }
    shorter
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_is_parsed_again(expression in expressions()) {
        let text = expression.to_string();
        let parsed = parse(&text);
        prop_assert_eq!(parsed.as_ref().map_err(ToString::to_string), Ok(&expression), "{}", text);
    }

    #[test]
    fn each_pair_of_parentheses_is_needed(expression in expressions()) {
        let text = expression.to_string();
        for shorter in without_one_pair(&text) {
            prop_assert!(parse(&shorter).as_ref() != Ok(&expression), "{} is as good as {}", shorter, text);
        }
    }

    #[test]
    fn no_text_does_harm(text in "\\PC{0,40}|([a-z]{1,3}|[0-9'\"`({\\[\\]})=<>*/%,:.+-]| and | or | not | in | is | between |none){0,20}") {
        if let Ok(expression) = parse(&text) {
            prop_assert_eq!(parse(&expression.to_string()), Ok(expression));
        }
    }
}

#[test]
fn all_forms_have_a_canonical_text() {
    for (text, canonical) in [
        ("AGE >= 21 AND name.last STARTSWITH \"B\"", "AGE >= 21 and name.last startswith 'B'"),
        ("not (a or b)", "not (a or b)"),
        ("not a == b", "not a == b"),
        ("x between 1 and 5 and y", "x between 1 and 5 and y"),
        ("x not between -1 and +5", ""),
        ("x not between -1 and 5", "not x between -1 and 5"),
        ("city in ['Bath', 'York']", "city in ['Bath', 'York']"),
        ("city in ('Bath',)", "city in ['Bath']"),
        ("not city in {'Bath'}", "city not in ['Bath']"),
        ("'a' in tags", "tags contains 'a'"),
        ("'a' not in tags", "not tags contains 'a'"),
        (
            "email EXISTS or email is null or email is not none",
            "email exists or email is none or email is not none",
        ),
        ("name matches r'^\\d+'", "name matches '^\\\\d+'"),
        ("1 < x", "1 < x"),
        ("x = 1", "x == 1"),
        ("x <> 1", "x != 1"),
        ("a - (b - c) * -d % 2", "a - (b - c) * -d % 2"),
        ("(a + b) + (c + d)", "a + b + (c + d)"),
        ("(a and b) and (c or d)", "a and b and (c or d)"),
        ("LENGTH(tags) + year(born)", "length(tags) + year(born)"),
        ("people[*].name == 'Ann'", "people[*].name == 'Ann'"),
        ("parts[-1].`two words`.and.`a\\`b`", "parts[-1].`two words`.and.`a\\`b`"),
        ("`and`['x']", "`and`.x"),
        ("d[(1, 2)][2.5][true][none]", "d[(1, 2)][2.5][1][none]"),
        ("key()[0] == record()[1]", "key()[0] == record()[1]"),
        ("record().a", "a"),
        ("date == date '2000-01-31'", "date == date '2000-01-31'"),
        ("x == datetime '2000-01-31 12:30'", "x == datetime '2000-01-31T12:30:00'"),
        (
            "x == datetime '2000-01-31T12:30:00.5Z fold=1'",
            "x == datetime '2000-01-31T12:30:00.500000+00:00 fold=1'",
        ),
        ("x == time '12:30+01:00(MEZ)'", "x == time '12:30:00+01:00(MEZ)'"),
        ("x == timedelta '-1 day, 23:59:59'", "x == timedelta '-1 day, 23:59:59'"),
        ("x == timedelta '3 days'", "x == timedelta '3 days, 0:00:00'"),
        ("x == decimal '1.10'", "x == decimal '1.10'"),
        ("x == complex '1-2.5j'", "x == complex '1.0-2.5j'"),
        ("x == uuid '12345678123456781234567812345678'", "x == uuid '12345678-1234-5678-1234-567812345678'"),
        ("x == {2, 1, 1.0}", "x == {1, 2}"),
        ("x == set {}", "x == set {}"),
        ("x == frozenset {}", "x == frozenset {}"),
        ("x == {'a': [1, ()]}", "x == {'a': [1, ()]}"),
        ("x == bytearray b'\\xff'", "x == bytearray b'\\xff'"),
        ("x in [nan, -inf, -0.0, 1_000, 0x1F, .5, 1e3]", "x in [nan, -inf, -0.0, 1000, 31, 0.5, 1000.0]"),
        ("- -5", "--5"),
        ("-(5)", "-(5)"),
        ("True and False or None", "true and false or none"),
        ("x == '\\ud800\\u00e4'", "x == '\\ud800\u{e4}'"),
    ] {
        let shown = parse(text).map(|expression| expression.to_string());
        if canonical.is_empty() {
            assert!(shown.is_err(), "{text}");
        } else {
            assert_eq!(shown.as_deref(), Ok(canonical), "{text}");
        }
    }
}

#[test]
fn an_error_says_where_and_what_was_expected() {
    for (text, line, column, message) in [
        ("", 1, 1, "expected a value, found the end"),
        ("a ==\n  and", 2, 3, "expected a value, found \"and\"; a field of that name is written `and`"),
        ("a b", 1, 3, "expected an operator, or the end, found \"b\""),
        ("(a or b", 1, 8, "expected \")\" for the \"(\" in column 1, or an operator, found the end"),
        ("1 < x < 5", 1, 7, "comparisons do not chain; write `x between 1 and 5`, or `1 < x and x < 5`"),
        ("x exists + 1", 1, 10, "a condition is no operand of this; put it in parentheses if that is meant"),
        ("a & b", 1, 3, "expected an operator; `and` is written out"),
        ("x == 'abc", 1, 6, "the ' that is opened here is never closed"),
        ("x == '\\d'", 1, 7, "no such escape; "),
        ("x matches '('", 1, 11, "this is no regular expression: unclosed group"),
        ("x == date '2000-02-30'", 1, 6, "expected date '2000-01-31'"),
        ("x == datum '2000-02-30'", 1, 6, "no type of literal is called \"datum\""),
        ("foo(x)", 1, 1, "no function is called \"foo\""),
        ("x in [a]", 1, 7, "expected a literal, found the field \"a\""),
        ("d[[1]]", 1, 3, "expected a key that a dict can have"),
        ("d[{1: 2, true: 3}]", 1, 3, "a key stands twice in this dict"),
        ("x == {[1]}", 1, 7, "no list, set, dict or bytearray is an element of a set"),
        ("key().a", 1, 6, "a row's key has elements, by their index: key()[0]"),
        ("x == value '00'", 1, 6, "expected value and after it the hexadecimal digits, in quotes"),
        ("x not == 1", 1, 7, "expected in, between, startswith"),
        ("12abc", 1, 1, "expected a number like"),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert!(error.message.starts_with(message), "{text}: {error}");
    }
    let long = format!("{}x y\nz", "\t\u{e4} + ".repeat(40));
    let shown = parse(&long).unwrap_err().to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1].chars().nth(lines[2].len() - 1), Some('y'));
}

#[test]
fn what_nests_is_limited_and_what_goes_on_is_not() {
    let long = vec!["a == 1"; 10_000].join(" and ");
    assert_eq!(parse(&long).unwrap().to_string(), long);
    let deepest = "not ".repeat(DEPTH_MAX as usize - 1) + "a";
    assert_eq!(parse(&deepest).unwrap().to_string(), deepest);
    let much = 100_000;
    for (text, message) in [
        ("not ".repeat(DEPTH_MAX as usize) + "a", "the expression nests more than 200 deep"),
        ("not ".repeat(much) + "a", "the expression nests more than 200 deep"),
        ("- ".repeat(much) + "a", "the expression nests more than 200 deep"),
        ("(".repeat(much), "parentheses nest more than"),
        ("[".repeat(much), "parentheses nest more than"),
        ("{1:".repeat(much), "parentheses nest more than"),
        ("abs(".repeat(much), "parentheses nest more than"),
        ("a + ".repeat(much) + "a", "the expression nests more than 200 deep"),
        (
            "[".repeat(65) + &"]".repeat(65),
            "no record can hold this value: containers nest more than 64 deep",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.message.starts_with(message), "{error}");
    }
    let list = "[".repeat(64) + &"]".repeat(64);
    let text = format!("{}{list}", "not ".repeat(DEPTH_MAX as usize - 1));
    assert_eq!(parse(&text).unwrap().to_string(), text);
}

#[test]
fn a_small_stack_is_enough_for_any_nesting() {
    let texts = [
        "(".repeat(5000),
        "(".repeat(199) + "a" + &")".repeat(199),
        "abs(".repeat(199) + "a" + &")".repeat(199),
        "not (".repeat(99) + "a or b" + &")".repeat(99),
        "(".repeat(190) + &"{1:".repeat(5000),
    ];
    // Frames are larger without optimization: half of this does there.
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        texts
            .iter()
            .filter(|text| parse(text).is_ok_and(|parsed| parse(&parsed.to_string()) == Ok(parsed)))
            .count()
    });
    assert_eq!(thread.unwrap().join().unwrap(), 3);
}

#[test]
fn contains_looks_into_keys_and_literals_as_into_records() {
    let mut key = KeyEncoder::new();
    key.begin_tuple().unwrap();
    key.str(b"bath");
    key.int(7);
    key.end_tuple();
    let (key, spelling) = key.take();
    let record = encode_value(
        &Value::Dict(vec![(Value::Str("city".into()), Value::Str("bath".into()))]),
        &mut NoShapes,
    );
    let row = Row { key: &key, spelling: &spelling, record: &record.unwrap() };
    for (text, is_true) in [
        ("key() contains city", true),
        ("key() contains 7.0", true),
        ("key() contains 'york'", false),
        ("['bath', 'york'] contains city", true),
        ("{'york'} contains city", false),
        ("{'bath': 1} contains city", true),
        ("{1: 'bath'} contains city", false),
        ("record() contains 'city'", true),
    ] {
        let found = Evaluator::new(&parse(text).unwrap()).unwrap().is_true(&row, &NoShapes);
        assert_eq!(found, Ok(is_true), "{text}");
    }
}

/// A reader to whom a large value is lost.
struct Lost;

impl Shapes for Lost {
    fn shape(&self, _id: u32) -> Option<&Shape> {
        None
    }

    fn overflow(&self, _overflow: &Overflow) -> Result<Option<&[u8]>, Corrupt> {
        Err(Corrupt::new(Damage::Overflow, 0))
    }
}

#[test]
fn a_large_value_is_read_only_where_its_bytes_matter() {
    let overflow = Value::Overflow(Overflow { tag: tag::STR, blob: 1, size: 7 });
    let record =
        Value::Dict(vec![(Value::Str("text".into()), overflow), (Value::Str("n".into()), Value::Int(1))]);
    let record = encode_value(&record, &mut NoShapes).unwrap();
    let row = Row { key: &[], spelling: &[], record: &record };
    let of = |text: &str| Evaluator::new(&parse(text).unwrap()).unwrap().is_true(&row, &Lost);
    for (text, is_true) in [("n == 1", true), ("text exists", true), ("text is none", false)] {
        assert_eq!(of(text), Ok(is_true), "{text}");
    }
    for text in ["text == 'a'", "text startswith 'a'", "length(text) > 1", "not (text > 'a')"] {
        assert_eq!(of(text), Err(Corrupt::new(Damage::Overflow, 0)), "{text}");
    }
}
