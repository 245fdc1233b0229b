//! Constants in expressions: their one form, and which of them are equal.

use pellucid_record::keyed::CanonicalKey;
use pellucid_record::value::{NoShapes, encode_value};
use pellucid_record::{Container, Value};

use crate::fault::Fault;
use crate::in_list::InList;
use crate::stoppable::{Many, Pace};

/// Whether a dict can have this value as a key: nothing in it is mutable.
pub(super) fn is_key(value: &Value) -> bool {
    match value {
        Value::List(_) | Value::Set(_) | Value::Dict(_) | Value::Bytearray(_) => false,
        Value::Tuple(elements) | Value::FrozenSet(elements) => elements.iter().all(is_key),
        _ => true,
    }
}

/// A list of values for `IsIn`, which may have millions of values.
///
/// # Errors
/// `pace` was stopped.
pub fn many(mut values: Many<Value>, pace: &mut Pace<impl Fn() -> bool>) -> Result<InList, Fault> {
    for value in values.iter_mut() {
        put_in_order(value);
        pace.step()?;
    }
    InList::new_while(values, pace)
}

/// The value with the elements of its sets sorted and without duplicates, so that equal sets are
/// equal literals.
pub(super) fn in_order(mut value: Value) -> Value {
    put_in_order(&mut value);
    value
}

fn put_in_order(value: &mut Value) {
    match value {
        Value::List(elements) | Value::Tuple(elements) => elements.iter_mut().for_each(put_in_order),
        Value::Dict(entries) => entries.iter_mut().for_each(|(key, value)| {
            put_in_order(key);
            put_in_order(value);
        }),
        Value::Registered(_, value) => put_in_order(value),
        Value::Set(elements) | Value::FrozenSet(elements) => {
            elements.iter_mut().for_each(put_in_order);
            let mut seen = std::collections::HashSet::new();
            elements.retain(|element| seen.insert(canonical(element)));
            elements.sort_by_cached_key(|element| encode_value(element, &mut NoShapes).unwrap_or_default());
        }
        _ => {}
    }
}

/// Bytes that are equal for values that a set or a dict treats as one. Empty if no record can hold
/// the value.
pub(super) fn canonical(value: &Value) -> Vec<u8> {
    let bytes = || {
        let list = encode_value(&Value::Tuple(vec![value.clone()]), &mut NoShapes).ok()?;
        let slot = Container::root(&list, &NoShapes).ok()?.slot(&list, &NoShapes, 0).ok()?;
        CanonicalKey::new().of(&list, &NoShapes, &slot).ok().map(<[u8]>::to_vec)
    };
    bytes().unwrap_or_default()
}
