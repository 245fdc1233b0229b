//! Are any bytes one key or none, and sorted as the key is?

use pellucid_record::key::{KeyEncoder, KeyValue, PlainKey, plain_key, prefix_range};

use super::input::Input;

pub fn keys(data: &[u8]) {
    let mut input = Input(data);
    let mut found = Vec::new();
    for _ in 0..2 {
        let (key_size, spelling_size) = (usize::from(input.byte()), usize::from(input.byte()));
        let (key, spelling) = (input.take(key_size), input.take(spelling_size));
        if let Some(value) = read(key, spelling) {
            found.push((key, value));
        }
    }
    let [(a_bytes, a), (b_bytes, b)] = found.as_slice() else { return };
    assert_eq!(a_bytes.cmp(b_bytes), a.cmp(b), "{a} and {b}");
    if let Some(range) = prefix_range(a_bytes) {
        let is_within = range.contains(&b_bytes.to_vec());
        let begins_so = match (a, b) {
            (KeyValue::Tuple(a), KeyValue::Tuple(b)) => b.get(..a.len()).is_some_and(|head| head == a),
            (KeyValue::Str(a), KeyValue::Str(b)) | (KeyValue::Bytes(a), KeyValue::Bytes(b)) => {
                b.starts_with(a)
            }
            _ => false,
        };
        assert_eq!(is_within, begins_so, "{b} within {a}");
    }
}

fn read(key: &[u8], spelling: &[u8]) -> Option<KeyValue> {
    let decoded = KeyValue::decode(key, spelling);
    match (plain_key(key, spelling), &decoded) {
        (Some(PlainKey::Int(plain)), decoded) => {
            assert!(matches!(decoded, Ok(KeyValue::Int(int)) if *int == plain));
        }
        (Some(PlainKey::Str(plain)), Ok(decoded)) => {
            assert!(matches!(decoded, KeyValue::Str(text) if text == plain));
        }
        (Some(PlainKey::Str(plain)), Err(_)) => assert!(std::str::from_utf8(plain).is_err()),
        (None, _) => {}
    }
    let value = decoded.ok()?;
    let mut encoder = KeyEncoder::new();
    value.encode(&mut encoder).expect("what was a key can be one again");
    assert_eq!((encoder.as_bytes(), encoder.spelling()), (key, spelling), "{value}");
    Some(value)
}
