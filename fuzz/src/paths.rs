//! Does a path lead in the record where it leads in the value?

use pellucid_record::patch::{Change, apply};
use pellucid_record::path::{Step, resolve};
use pellucid_record::validate::validate_record;
use pellucid_record::value::{NoShapes, Value, encode_value};
use pellucid_record::{Kind, Root, Slot};

use super::input::Book;

pub fn path_expressions(data: &[u8]) {
    // A line of text, then a record.
    let size = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (text, record) = data.split_at_checked(size).unwrap_or((data, &[]));
    let text = String::from_utf8_lossy(text);
    let record = record.get(1..).unwrap_or(&[]);
    let mut book = Book::new(20);

    let names: Vec<Step<'_>> = text.split('.').map(Step::Field).collect();
    let found = resolve(record, &book, &names);

    // The same with indexes, which only a list of steps has.
    let index = |name: &str| name.parse::<i64>().ok();
    let steps: Vec<Step<'_>> =
        text.split('.').map(|name| index(name).map_or(Step::Field(name), Step::Index)).collect();
    let indexed = resolve(record, &book, &steps);

    let seven = encode_value(&Value::Int(7), &mut NoShapes).expect("an int can be encoded");
    let set = apply(record, &steps, Change::Set(&seven), &mut book);
    let deleted = apply(record, &steps, Change::Delete, &mut book);
    if validate_record(record, &book).is_err() {
        return;
    }
    let value = pellucid_record::decode(record, &book).expect("a valid record can be decoded");
    check(found.expect("a path in a valid record can be resolved"), lookup(&value, &names));
    check(indexed.expect("a path in a valid record can be resolved"), lookup(&value, &steps));
    if let Ok(set) = set {
        validate_record(&set.record, &book).expect("a changed record is valid");
        assert_eq!(resolve(&set.record, &book, &steps), Ok(Some(Root::Scalar(Slot::Int(7)))));
    }
    if let Ok(deleted) = deleted {
        validate_record(&deleted.record, &book).expect("a changed record is valid");
        assert!(lookup(&value, &steps).is_some(), "nothing was there to be deleted");
    }
}

/// Where the steps lead in a value.
fn lookup<'a>(value: &'a Value, steps: &[Step<'_>]) -> Option<&'a Value> {
    let Some((first, rest)) = steps.split_first() else { return Some(value) };
    let inner = match (value, first) {
        (Value::Dict(entries), Step::Field(name)) => {
            &entries.iter().find(|(key, _)| matches!(key, Value::Str(text) if text == name))?.1
        }
        // 1, 1.0 and True are one key.
        (Value::Dict(entries), Step::Index(index)) => {
            let is_it = |key: &Value| match key {
                Value::Int(int) => int == index,
                Value::Bool(bool) => i64::from(*bool) == *index,
                Value::Float(float) => float.0 as i128 == i128::from(*index) && float.0.fract() == 0.0,
                _ => false,
            };
            &entries.iter().find(|(key, _)| is_it(key))?.1
        }
        (Value::List(elements) | Value::Tuple(elements), Step::Index(index)) => {
            let place = if *index < 0 { index.checked_add(elements.len() as i64)? } else { *index };
            elements.get(usize::try_from(place).ok()?)?
        }
        _ => return None,
    };
    lookup(inner, rest)
}

/// Whether what was found is the value, as far as one level shows.
fn check(found: Option<Root<'_>>, value: Option<&Value>) {
    match (found, value) {
        (None, None) => {}
        (Some(Root::Scalar(Slot::Int(found))), Some(Value::Int(value))) => assert_eq!(found, *value),
        (Some(Root::Scalar(Slot::Str(found))), Some(Value::Str(value))) => {
            assert_eq!(found, value.as_bytes());
        }
        (Some(Root::Scalar(_)), Some(value)) => {
            assert!(kind(value).is_none(), "a scalar is found for {value:?}");
        }
        (Some(Root::Container(found)), Some(value)) => {
            let is_list = found.kind.is_packed() && kind(value) == Some(Kind::List);
            let is_dict = found.kind.is_dict() && kind(value) == Some(Kind::Keyed);
            assert!(
                is_list || is_dict || kind(value) == Some(found.kind),
                "{found:?} is found for {value:?}"
            );
        }
        (found, value) => panic!("{found:?} is found for {value:?}"),
    }
}

fn kind(value: &Value) -> Option<Kind> {
    match value {
        Value::List(_) => Some(Kind::List),
        Value::Tuple(_) => Some(Kind::Tuple),
        Value::Set(_) => Some(Kind::Set),
        Value::FrozenSet(_) => Some(Kind::FrozenSet),
        Value::Dict(_) => Some(Kind::Keyed),
        _ => None,
    }
}
