//! Tests that the bytes of keys sort as the keys do, decode to the same keys, and never change.

use std::cmp::Ordering;
use std::fmt::Write;

use pellucid_record::key::{
    DATETIME_END, KeyEncoder, KeyError, KeyReader, KeyValue, PlainKey, plain_key, prefix_range,
};
use proptest::prelude::*;

fn encode(key: &KeyValue) -> (Vec<u8>, Vec<u8>) {
    let mut encoder = KeyEncoder::new();
    key.encode(&mut encoder).unwrap_or_else(|error| panic!("{key} has no key: {error}"));
    encoder.take()
}

fn bytes(key: &KeyValue) -> Vec<u8> {
    encode(key).0
}

/// Equality that tells 1 from 1.0 and 0.0 from -0.0.
fn assert_same(a: &KeyValue, b: &KeyValue) {
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
}

fn text(text: &str) -> KeyValue {
    KeyValue::Str(text.into())
}

fn decimal(text: &str) -> KeyValue {
    KeyValue::Decimal(text.into())
}

fn big(negative: bool, high: u8, size: usize) -> KeyValue {
    let mut magnitude = vec![high];
    magnitude.resize(size, 0);
    KeyValue::BigInt { negative, magnitude }
}

fn utc(utc: i64) -> KeyValue {
    KeyValue::Aware { utc, offset: 0, fold: false, zone: b"\x02UTC".to_vec() }
}

fn fixed(utc: i64, offset: i64, fold: bool) -> KeyValue {
    let zone = [&[1], offset.to_le_bytes().as_slice(), b"CET"].concat();
    KeyValue::Aware { utc, offset, fold, zone }
}

use KeyValue::{Bool, Bytes, Date, Datetime, Float, Int, None as Nothing, Tuple, Uuid};

// ---- The order
// -----------------------------------------------------------------------------------

/// Keys of every family in their order, each greater than the one before.
#[rustfmt::skip]
fn ascending() -> Vec<KeyValue> {
    let nines = "9".repeat(400);
    vec![
        Nothing,
        Bytes(vec![]), Bytes(vec![0]), Bytes(vec![0, 0]), Bytes(vec![0, 0xFF]), Bytes(vec![1]), Bytes(vec![0xFE]),
        Bytes(vec![0xFF]), Bytes(vec![0xFF, 0]), Bytes(vec![0xFF, 0xFF]),
        text(""), text("\0"), text("\0a"), text("a"), text("a\0"), text("a\0b"), text("a\u{1}"), text("ab"), text("b"),
        text("\u{D7FF}"), KeyValue::Str(b"\xED\xA0\x80".to_vec()), KeyValue::Str(b"\xED\xBF\xBF".to_vec()),
        text("\u{E000}"), text("\u{10FFFF}"),
        Tuple(vec![]), Tuple(vec![Nothing]), Tuple(vec![Nothing, Nothing]), Tuple(vec![Bytes(vec![])]),
        Tuple(vec![text("a")]), Tuple(vec![text("a"), Nothing]), Tuple(vec![text("a"), text("")]),
        Tuple(vec![text("a"), Int(-1)]), Tuple(vec![text("a\0")]), Tuple(vec![text("b")]),
        Tuple(vec![Tuple(vec![])]), Tuple(vec![Tuple(vec![]), Nothing]), Tuple(vec![Tuple(vec![]), Int(1)]),
        Tuple(vec![Tuple(vec![Nothing])]), Tuple(vec![Tuple(vec![Tuple(vec![])])]), Tuple(vec![Tuple(vec![Int(0)])]),
        Tuple(vec![Float(-0.5)]), Tuple(vec![Int(2)]), Tuple(vec![Float(2.0), Nothing]), Tuple(vec![Int(2), Tuple(vec![])]),
        Tuple(vec![Int(2), Int(9)]),
        Tuple(vec![Int(2), Uuid([0; 16])]), Tuple(vec![Float(2.5)]), Tuple(vec![Float(2.5), Nothing]), Tuple(vec![Int(3)]),
        Float(f64::NEG_INFINITY), big(true, 1, 70_000), big(true, 1, 256), big(true, 1, 255), big(true, 1, 254),
        Float(f64::MIN), big(true, 2, 9), big(true, 1, 9), Int(i64::MIN), Int(i64::MIN + 1),
        Int(-(1 << 53) - 1), Int(-(1 << 53)), Float(-4_503_599_627_370_495.5), Int(-65_536), Int(-65_535),
        Int(-257), Int(-256), Float(-255.5), Int(-255), Int(-2), Float(-1.5), Int(-1), Float(-0.999), Float(-0.25),
        Float(-f64::MIN_POSITIVE), Float(-5e-324), Int(0), Float(5e-324), Float(f64::MIN_POSITIVE), Float(0.25),
        Float(0.999), Bool(true), Float(1.0 + f64::EPSILON), Int(2), Int(255), Float(255.5), Int(256), Int(65_535),
        Float(4_503_599_627_370_495.5), Int((1 << 53) - 1), Float(9_007_199_254_740_992.0), Int((1 << 53) + 1),
        Int(i64::MAX), Float(9_223_372_036_854_775_808.0), big(false, 1, 9), big(false, 2, 9), Float(1e300),
        Float(f64::MAX), big(false, 1, 129), big(false, 1, 254), big(false, 1, 255), big(false, 1, 256), big(false, 1, 70_000),
        Float(f64::INFINITY),
        decimal("-Infinity"), decimal("-1E+999999999999999999"), decimal(&format!("-{nines}")), decimal("-10.1"), decimal("-10"),
        decimal("-9.99"), decimal("-1.11"), decimal("-1.1"), decimal("-1"), decimal("-0.99"), decimal("-1E-999999999999999999"),
        decimal("0"), decimal("1E-1999999999999999997"), decimal("0.00099"), decimal("0.001"), decimal("0.1"),
        decimal("0.11"), decimal("0.111"), decimal("0.12"), decimal("1"), decimal("1.01"), decimal("9"), decimal("10"),
        decimal("10.5"), decimal("99.999"), decimal("1E+2"), decimal("101"), decimal(&nines), decimal("1E+400"),
        decimal("Infinity"),
        Date(1), Date(255), Date(256), Date(3_652_059),
        Datetime { local: 0, fold: false }, Datetime { local: 1, fold: true }, Datetime { local: DATETIME_END - 1, fold: false },
        fixed(-3_600_000_000, 3_600_000_000, false), utc(0), fixed(1, 3_600_000_000, true), utc(DATETIME_END - 1),
        fixed(DATETIME_END + 3_599_999_999, -3_600_000_000, false),
        Uuid([0; 16]), Uuid([0xFF; 16]),
    ]
}

#[test]
fn keys_of_every_family_sort_as_listed_and_so_do_their_bytes() {
    let keys = ascending();
    for (index, pair) in keys.windows(2).enumerate() {
        let (a, b) = (&pair[0], &pair[1]);
        assert_eq!(a.cmp(b), Ordering::Less, "model: {index}: {a} and {b}");
        assert!(bytes(a) < bytes(b), "bytes: {index}: {a} and {b}");
    }
}

#[test]
fn every_listed_key_comes_back_as_it_was_spelled() {
    for key in ascending() {
        let (bytes, spelling) = encode(&key);
        assert_same(&KeyValue::decode(&bytes, &spelling).unwrap(), &key);
    }
}

#[test]
fn equal_keys_have_the_same_bytes_and_keep_their_spelling() {
    let families: &[&[KeyValue]] = &[
        &[Int(1), Float(1.0), Bool(true)],
        &[Int(0), Float(0.0), Float(-0.0), Bool(false)],
        &[Int(1 << 53), Float(9_007_199_254_740_992.0)],
        &[big(false, 1, 9), Float(2f64.powi(64))],
        &[big(true, 16, 100), Float(-2f64.powi(796))],
        &[decimal("0"), decimal("-0"), decimal("0E+5"), decimal("0.000"), decimal("-0E-7")],
        &[decimal("1.1"), decimal("1.10"), decimal("1.100E+0"), decimal("11E-1")],
        &[decimal("100"), decimal("1E+2"), decimal("1.00e+2")],
        &[Datetime { local: 7, fold: false }, Datetime { local: 7, fold: true }],
        &[utc(7), fixed(7, 3_600_000_000, false), fixed(7, 3_600_000_000, true)],
        &[
            Tuple(vec![Int(1), Tuple(vec![Float(1.0), text("x")]), decimal("2")]),
            Tuple(vec![Bool(true), Tuple(vec![Int(1), text("x")]), decimal("2.0")]),
        ],
    ];
    for family in families {
        for key in *family {
            assert_eq!(bytes(key), bytes(&family[0]), "{key}");
            assert_eq!(key.cmp(&family[0]), Ordering::Equal, "{key}");
            let (bytes, spelling) = encode(key);
            assert_same(&KeyValue::decode(&bytes, &spelling).unwrap(), key);
        }
    }
}

#[test]
fn plain_keys_have_no_spelling() {
    let plain = Tuple(vec![
        Int(-7),
        text("a"),
        Bytes(vec![1]),
        Nothing,
        Uuid([1; 16]),
        Date(7),
        Datetime { local: 7, fold: false },
        big(true, 1, 9),
    ]);
    assert_eq!(encode(&plain).1, b"");
    assert_eq!(encode(&Tuple(vec![Int(1), text("a"), Int(2), Float(3.0)])).1, [0, 0, 1]);
}

#[test]
fn what_has_no_order_is_refused() {
    let mut key = KeyEncoder::new();
    assert_eq!(key.float(f64::NAN), Err(KeyError::NotANumber));
    for text in ["NaN", "-NaN", "sNaN", "NaN123", "-sNaN7"] {
        assert_eq!(key.decimal(text), Err(KeyError::NotANumber), "{text}");
    }
    let no_decimals = [
        "",
        "-",
        "+1",
        "1.",
        ".5",
        "1E5",
        "1E+",
        "E+1",
        "1_0",
        " 1",
        "0x1",
        "inf",
        "nan",
        "1E+9999999999999999999",
    ];
    for text in no_decimals {
        assert_eq!(key.decimal(text), Err(KeyError::BadDecimal), "{text}");
    }
    assert_eq!(key.date(0), Err(KeyError::BadTime));
    assert_eq!(key.datetime(-1, false), Err(KeyError::BadTime));
    assert_eq!(key.datetime(DATETIME_END, false), Err(KeyError::BadTime));
    assert_eq!(key.aware(-1, 0, false, b"\x02UTC"), Err(KeyError::BadTime));
    assert_eq!(key.aware(0, 0, false, b"\x03UTC"), Err(KeyError::BadTime));
    for _ in 0..64 {
        key.begin_tuple().unwrap();
    }
    assert_eq!(key.begin_tuple(), Err(KeyError::TooDeep));
}

// ---- Prefixes
// ------------------------------------------------------------------------------------

fn begins_with(key: &KeyValue, prefix: &KeyValue) -> bool {
    match (key, prefix) {
        (Tuple(key), Tuple(prefix)) => key.get(..prefix.len()).is_some_and(|head| head == prefix),
        (KeyValue::Str(key), KeyValue::Str(prefix)) | (Bytes(key), Bytes(prefix)) => key.starts_with(prefix),
        _ => false,
    }
}

fn check_prefix(key: &KeyValue, prefix: &KeyValue) {
    let Some(range) = prefix_range(&bytes(prefix)) else {
        assert!(!matches!(prefix, KeyValue::Str(_) | Bytes(_) | Tuple(_)), "{prefix} has beginnings");
        return;
    };
    assert_eq!(range.contains(&bytes(key)), begins_with(key, prefix), "{key} within {prefix}");
}

#[test]
fn a_prefix_selects_what_begins_with_it_and_nothing_else() {
    let keys = ascending();
    for prefix in &keys {
        for key in &keys {
            check_prefix(key, prefix);
        }
    }
}

#[test]
fn keys_of_most_tables_are_read_the_short_way() {
    for int in [0, 1, -1, 255, -256, i64::MAX, i64::MIN] {
        assert_eq!(plain_key(&bytes(&Int(int)), &[]), Some(PlainKey::Int(int)));
    }
    assert_eq!(plain_key(&bytes(&text("ann")), &[]), Some(PlainKey::Str(b"ann")));
    assert_eq!(plain_key(&bytes(&text("a\0")), &[]), None);
    assert_eq!(plain_key(&bytes(&Int(1)), &[1]), None);
}

// ---- The bytes, forever
// --------------------------------------------------------------------------

#[test]
fn the_bytes_of_keys_never_change() {
    let mut found = String::new();
    for key in ascending() {
        let (bytes, spelling) = encode(&key);
        // The longest keys say nothing more than their neighbours.
        if bytes.len() <= 80 {
            let spelled =
                if spelling.is_empty() { String::new() } else { format!(" spelled {}", hex(&spelling)) };
            writeln!(found, "{key} -> {}{spelled}", hex(&bytes)).unwrap();
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/keys.txt");
    if std::env::var_os("PELLUCID_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

// ---- Any key, any bytes
// --------------------------------------------------------------------------

/// Numbers that have broken key codecs before: the limits of every byte count, of 2**53 and of
/// doubles, and their neighbours of the other type. A plain `any::<i64>()` finds none of these.
fn numbers() -> impl Strategy<Value = KeyValue> {
    let near_power = (0u32..64, -2i128..=2, any::<bool>()).prop_map(|(shift, by, negative)| {
        let int = (1i128 << shift) + by;
        Int(i64::try_from(if negative { -int } else { int }).unwrap_or(i64::MAX))
    });
    let near_float = (0i32..1023, -1i8..=1, any::<bool>()).prop_map(|(exponent, by, negative)| {
        let float = 2f64.powi(exponent);
        let float = match by {
            -1 => float.next_down(),
            0 => float,
            _ => float.next_up(),
        };
        Float(if negative { -float } else { float })
    });
    let small =
        (-4i32..=4, 0u32..=8).prop_map(|(whole, eighths)| Float(f64::from(whole) + f64::from(eighths) / 8.0));
    let bits = any::<u64>()
        .prop_map(f64::from_bits)
        .prop_filter("NaN is no key", |float| !float.is_nan())
        .prop_map(Float);
    let bigint =
        (any::<bool>(), 1u8.., prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x7F, 0xFF]), 8..140))
            .prop_map(|(negative, high, mut magnitude)| {
                magnitude.insert(0, high);
                KeyValue::BigInt { negative, magnitude }
            });
    let longer =
        (any::<bool>(), 1u8.., 250usize..260).prop_map(|(negative, high, size)| big(negative, high, size));
    prop_oneof![
        any::<i64>().prop_map(Int),
        (-3i64..4).prop_map(Int),
        any::<bool>().prop_map(Bool),
        near_power,
        near_float,
        small,
        bits,
        bigint,
        longer,
        Just(Float(-0.0)),
        Just(Float(f64::INFINITY)),
        Just(Float(f64::NEG_INFINITY)),
    ]
}

fn strings() -> impl Strategy<Value = Vec<u8>> {
    let characters = prop::sample::select(vec!["\0", "\u{1}", "a", "b", "\u{FF}", "\u{10FFFF}"]);
    prop::collection::vec(characters, 0..5).prop_map(|parts| parts.concat().into_bytes())
}

fn decimals() -> impl Strategy<Value = KeyValue> {
    let whole = prop::sample::select(vec!["0", "1", "9", "10", "12", "99", "100", "1234567890"]);
    let fraction = prop::sample::select(vec!["", ".0", ".1", ".10", ".01", ".009", ".5"]);
    let exponent = prop::sample::select(vec!["", "E+1", "E-1", "E+2", "E-3", "E+300"]);
    (any::<bool>(), whole, fraction, exponent).prop_map(|(negative, whole, fraction, exponent)| {
        decimal(&format!("{}{whole}{fraction}{exponent}", if negative { "-" } else { "" }))
    })
}

fn scalars() -> impl Strategy<Value = KeyValue> {
    let offsets = prop::sample::select(vec![0, 3_600_000_000i64, -86_399_999_999]);
    prop_oneof![
        8 => numbers(),
        1 => Just(Nothing),
        3 => strings().prop_map(KeyValue::Str),
        1 => Just(KeyValue::Str(b"a\xED\xA0\x80".to_vec())),
        2 => prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xFE, 0xFF]), 0..5).prop_map(Bytes),
        3 => decimals(),
        1 => (1u32..=3).prop_map(Date),
        1 => (0i64..3, any::<bool>()).prop_map(|(local, fold)| Datetime { local, fold }),
        1 => (86_400_000_000i64..86_400_000_003, offsets, any::<bool>()).prop_map(|(utc, offset, fold)| fixed(utc, offset, fold)),
        1 => any::<[u8; 16]>().prop_map(Uuid),
    ]
}

fn keys() -> impl Strategy<Value = KeyValue> {
    scalars().prop_recursive(3, 24, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Tuple))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn bytes_sort_as_keys_do(a in keys(), b in keys()) {
        prop_assert_eq!(bytes(&a).cmp(&bytes(&b)), a.cmp(&b), "{} and {}", a, b);
    }

    #[test]
    fn bytes_of_numbers_sort_as_numbers_do(a in numbers(), b in numbers()) {
        prop_assert_eq!(bytes(&a).cmp(&bytes(&b)), a.cmp(&b), "{} and {}", a, b);
    }

    #[test]
    fn floats_sort_as_the_processor_says(a in any::<f64>(), b in any::<f64>()) {
        if let Some(order) = a.partial_cmp(&b) {
            prop_assert_eq!(bytes(&Float(a)).cmp(&bytes(&Float(b))), order);
        }
    }

    #[test]
    #[allow(clippy::cast_precision_loss)]
    fn floats_sort_among_ints_exactly(int in any::<i64>(), ulps in -3i64..=3) {
        // An i128 holds every int below 2**63 and every float near it exactly, if the float has no
        // fraction.
        let float = f64::from_bits((int as f64).to_bits().wrapping_add_signed(ulps));
        prop_assume!(float.is_finite() && float.abs() >= 4_503_599_627_370_496.0);
        prop_assert_eq!(bytes(&Int(int)).cmp(&bytes(&Float(float))), i128::from(int).cmp(&(float as i128)));
    }

    #[test]
    fn keys_come_back_as_they_were_spelled(key in keys()) {
        let (bytes, spelling) = encode(&key);
        assert_same(&KeyValue::decode(&bytes, &spelling).unwrap(), &key);
        check_canonical(&bytes, &spelling);
    }

    #[test]
    fn prefixes_select_what_begins_with_them(key in keys(), other in keys(), count in 0usize..3) {
        check_prefix(&key, &other);
        match &key {
            Tuple(elements) => check_prefix(&key, &Tuple(elements.iter().take(count).cloned().collect())),
            Bytes(bytes) => check_prefix(&key, &Bytes(bytes.iter().take(count).copied().collect())),
            _ => {}
        }
    }

    #[test]
    fn one_changed_byte_is_another_key_or_none(key in keys(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (mut bytes, spelling) = encode(&key);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_canonical(&bytes, &spelling);
    }

    #[test]
    fn a_changed_spelling_is_another_one_or_none(key in keys(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (bytes, mut spelling) = encode(&key);
        if !spelling.is_empty() {
            let at = at.index(spelling.len());
            spelling[at] = byte;
        }
        check_canonical(&bytes, &spelling);
    }

    #[test]
    fn any_bytes_are_one_key_or_none(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        spelling in prop::collection::vec(0u8..5, 0..4),
    ) {
        check_canonical(&bytes, &spelling);
        check_canonical(&[&[0x05], bytes.as_slice(), &[0]].concat(), &spelling);
    }
}

/// Only what the encoder writes is accepted, and the quick path gives the same key as the general
/// one.
fn check_canonical(bytes: &[u8], spelling: &[u8]) {
    match plain_key(bytes, spelling) {
        Some(PlainKey::Str(text)) => match KeyValue::decode(bytes, spelling) {
            Ok(key) => assert_same(&key, &KeyValue::Str(text.to_vec())),
            Err(error) => assert_eq!(error.what, "str that is not UTF-8"),
        },
        Some(PlainKey::Int(int)) => {
            let key = KeyValue::decode(bytes, spelling);
            assert_same(&key.unwrap_or_else(|error| panic!("{int} is no key: {error}")), &Int(int));
        }
        None => {}
    }
    if let Ok(key) = KeyValue::decode(bytes, spelling) {
        assert_eq!(encode(&key), (bytes.to_vec(), spelling.to_vec()), "{key}");
    }
    // Whatever is wrong, the reader ends.
    assert!(KeyReader::new(bytes, spelling).count() <= bytes.len() + 1);
}
