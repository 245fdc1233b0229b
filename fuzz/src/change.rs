//! Does a change in place leave the record of the changed value, or of any bytes at least no harm?

use pellucid_record::patch::{Change, Patched, apply, overwrite};
use pellucid_record::path::Step;
use pellucid_record::validate::validate_record;
use pellucid_record::value::{Value, encode_value};
use pellucid_record::{Root, Slot, view};

use super::input::{Book, Input, is_same_key, with_sorted_sets};

/// A step of a path, owned.
#[derive(Debug, Clone)]
enum OwnedStep {
    Field(String),
    Index(i64),
    Key(Value, Vec<u8>),
}

/// A change, with values and their records.
#[derive(Debug)]
enum Edit {
    Set(Value),
    Delete,
    Insert(i64, Value),
    Append(Vec<Value>),
    Splice(i64, i64, Vec<Value>),
    Clear,
}

pub fn change_in_place(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let mut book = Book::new(if mode & 2 == 0 { 0 } else { 20 });
    let mut record = if mode & 1 == 0 {
        let size = usize::from(input.byte());
        input.take(size).to_vec()
    } else {
        encode_value(&input.value(4), &mut book).expect("a small value can be encoded")
    };
    let mut model = match validate_record(&record, &book) {
        Ok(()) => Some(pellucid_record::decode(&record, &book).expect("a valid record can be decoded")),
        Err(_) => None,
    };
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        let path = path(&mut input, model.as_ref(), &mut book);
        let edit = edit(&mut input);
        change(&mut record, &path, &edit, model.as_mut(), &mut book);
    }
}

fn change(record: &mut Vec<u8>, path: &[OwnedStep], edit: &Edit, model: Option<&mut Value>, book: &mut Book) {
    let steps: Vec<Step<'_>> = path.iter().map(OwnedStep::borrow).collect();
    let mut in_place = record.clone();
    let value = match edit {
        Edit::Set(value) => encode(value, book),
        _ => Vec::new(),
    };
    let was_overwritten = match (edit, view::root(&value, book)) {
        (Edit::Set(_), Ok(Root::Scalar(slot))) => overwrite(&mut in_place, book, &steps, &slot) == Ok(true),
        (Edit::Delete, _) => overwrite(&mut in_place, book, &steps, &Slot::Absent) == Ok(true),
        _ => false,
    };
    if !was_overwritten {
        assert!(*record == in_place, "nothing was overwritten and yet it changed");
    }
    let patched = patch(record, &steps, edit, book);
    let Some(model) = model else {
        *record = patched.map_or(in_place, |patched| patched.record);
        return;
    };
    let was_possible = change_model(model, path, edit).is_some();
    assert_eq!(patched.is_some(), was_possible, "{edit:?} at {path:?} makes {model:?}");
    if was_overwritten {
        assert!(was_possible);
        check(&in_place, model, book);
    }
    if let Some(patched) = patched {
        check(&patched.record, model, book);
        *record = if was_overwritten { in_place } else { patched.record };
    }
}

fn check(record: &[u8], model: &Value, book: &Book) {
    validate_record(record, book).expect("a changed record is valid");
    let value = pellucid_record::decode(record, book).expect("a valid record can be decoded");
    assert_eq!(with_sorted_sets(value), with_sorted_sets(model.clone()));
}

fn encode(value: &Value, book: &mut Book) -> Vec<u8> {
    encode_value(value, book).expect("a small value can be encoded")
}

fn patch(record: &[u8], path: &[Step<'_>], edit: &Edit, book: &mut Book) -> Option<Patched> {
    let (one, many) = match edit {
        Edit::Set(value) | Edit::Insert(_, value) => (encode(value, book), vec![]),
        Edit::Append(values) | Edit::Splice(_, _, values) => {
            (vec![], values.iter().map(|value| encode(value, book)).collect())
        }
        _ => (vec![], vec![]),
    };
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let change = match edit {
        Edit::Set(_) => Change::Set(&one),
        Edit::Delete => Change::Delete,
        Edit::Insert(index, _) => Change::Insert(*index, &one),
        Edit::Append(_) => Change::Append(&many),
        Edit::Splice(start, stop, _) => Change::Splice { start: *start, stop: *stop, values: &many },
        Edit::Clear => Change::Clear,
    };
    apply(record, path, change, book).ok()
}

// ---- What the input says -------------------------------------------------------------------------------------------

impl OwnedStep {
    fn borrow(&self) -> Step<'_> {
        match self {
            OwnedStep::Field(name) => Step::Field(name),
            OwnedStep::Index(index) => Step::Index(*index),
            OwnedStep::Key(_, record) => Step::Key(record),
        }
    }

    /// As a key of a dict.
    fn key(&self) -> Value {
        match self {
            OwnedStep::Field(name) => Value::Str(name.clone()),
            OwnedStep::Index(index) => Value::Int(*index),
            OwnedStep::Key(key, _) => key.clone(),
        }
    }

    fn of(key: Value, book: &mut Book) -> OwnedStep {
        match key {
            Value::Str(name) => OwnedStep::Field(name),
            Value::Int(int) => OwnedStep::Index(int),
            key => {
                let record = encode(&key, book);
                OwnedStep::Key(key, record)
            }
        }
    }
}

/// A path along the model, with a last step that may lead beside it; any path where there is no model.
fn path(input: &mut Input<'_>, model: Option<&Value>, book: &mut Book) -> Vec<OwnedStep> {
    let head = input.byte();
    let mut steps = Vec::new();
    let mut at = model;
    for _ in 0..head % 6 {
        let pick = usize::from(input.byte());
        let (step, next) = match at {
            Some(Value::Dict(entries)) if !entries.is_empty() => match entries.get(pick % entries.len()) {
                Some((key, value)) => (OwnedStep::of(key.clone(), book), Some(value)),
                None => break,
            },
            Some(Value::List(elements) | Value::Tuple(elements)) if !elements.is_empty() => {
                let place = pick % elements.len();
                (OwnedStep::Index(place as i64), elements.get(place))
            }
            Some(_) => break,
            None => (OwnedStep::of(input.key(1), book), None),
        };
        steps.push(step);
        at = next;
    }
    if head >= 0xC0 {
        steps.push(OwnedStep::of(input.key(1), book));
    }
    steps
}

fn edit(input: &mut Input<'_>) -> Edit {
    let kind = input.byte() % 8;
    let index = input.int();
    match kind {
        0..=2 => Edit::Set(input.value(3)),
        3 => Edit::Delete,
        4 => Edit::Insert(index, input.value(3)),
        5 => {
            let count = input.byte() % 3;
            Edit::Append((0..count).map(|_| input.value(3)).collect())
        }
        6 => {
            let (stop, count) = (input.int(), input.byte() % 3);
            Edit::Splice(index, stop, (0..count).map(|_| input.value(3)).collect())
        }
        _ => Edit::Clear,
    }
}

// ---- The change of the value ---------------------------------------------------------------------------------------

/// Makes the change; None where it cannot be made.
fn change_model(model: &mut Value, path: &[OwnedStep], edit: &Edit) -> Option<()> {
    match (path, edit) {
        ([], Edit::Set(value)) => *model = value.clone(),
        ([], Edit::Delete) => return None,
        ([], _) => return change_whole(model, edit),
        ([last], Edit::Set(value)) => match model {
            Value::Dict(entries) => match entries.iter_mut().find(|(key, _)| is_same_key(key, &last.key())) {
                Some(entry) => entry.1 = value.clone(),
                None => entries.push((last.key(), value.clone())),
            },
            Value::List(elements) => *element(elements, last)? = value.clone(),
            _ => return None,
        },
        ([last], Edit::Delete) => match model {
            Value::Dict(entries) => {
                let place = entries.iter().position(|(key, _)| is_same_key(key, &last.key()))?;
                entries.remove(place);
            }
            Value::List(elements) => {
                let place = place(elements.len(), last)?;
                elements.remove(place);
            }
            _ => return None,
        },
        ([first, rest @ ..], _) => {
            let inner = match model {
                Value::Dict(entries) => {
                    &mut entries.iter_mut().find(|(key, _)| is_same_key(key, &first.key()))?.1
                }
                Value::List(elements) | Value::Tuple(elements) => element(elements, first)?,
                _ => return None,
            };
            return change_model(inner, rest, edit);
        }
    }
    Some(())
}

fn change_whole(model: &mut Value, edit: &Edit) -> Option<()> {
    let elements = match (model, edit) {
        (Value::Dict(entries), Edit::Clear) => {
            entries.clear();
            return Some(());
        }
        (Value::List(elements), _) => elements,
        _ => return None,
    };
    let count = elements.len();
    match edit {
        Edit::Insert(index, value) => elements.insert(clamp(count, *index), value.clone()),
        Edit::Append(values) => elements.extend_from_slice(values),
        Edit::Splice(start, stop, values) => {
            let start = clamp(count, *start);
            elements.splice(start..clamp(count, *stop).max(start), values.iter().cloned());
        }
        _ => elements.clear(),
    }
    Some(())
}

fn clamp(count: usize, index: i64) -> usize {
    if index < 0 {
        count.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX))
    } else {
        usize::try_from(index).unwrap_or(usize::MAX).min(count)
    }
}

fn place(count: usize, step: &OwnedStep) -> Option<usize> {
    let OwnedStep::Index(index) = step else { return None };
    let place = if *index < 0 {
        count.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?
    } else {
        usize::try_from(*index).ok()?
    };
    (place < count).then_some(place)
}

fn element<'a>(elements: &'a mut [Value], step: &OwnedStep) -> Option<&'a mut Value> {
    let place = place(elements.len(), step)?;
    elements.get_mut(place)
}
