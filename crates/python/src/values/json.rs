//! Writes values as JSON: stored ones from their bytes, all others as `to_builtin` says.
//!
//! A record is written without making an object of any of its fields. Values that JSON lacks and
//! that are stored as they are (dates, `Decimal`, bytes) are written from their bytes, too. For any
//! other value, `pellucid.builtin_values` has what stands for it in JSON.

use pellucid_record::encode::Simple;
use pellucid_record::error::{Corrupt, Damage};
use pellucid_record::json;
use pellucid_record::layout::{DEPTH_MAX, Kind, tag};
use pellucid_record::payload;
use pellucid_record::view::{Container, Slot, Walker};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors;
use crate::hot::gil::GilCell;
use crate::hot::{callbacks, text};
use crate::values::handles::{Record, RecordList};
use crate::values::names::ShapeNames;
use crate::values::node::Node;
use crate::values::reading::Reading;
use crate::values::{row_errors, scalars};

/// How deep containers may nest. A level takes up to 800 bytes, so a thread of 256 KiB has room for
/// this many. Other native encoders stop at about the same depth.
const NESTED_MAX: u32 = 250;
/// How many elements of a list are written between two checks for signals.
const WRITTEN_BETWEEN_SIGNALS: usize = 1024;
/// The largest buffer that is kept for the next call.
const SPARE_SIZE_MAX: usize = 1 << 16;

/// The buffer of the last call.
static SPARE: GilCell<Vec<u8>> = GilCell::new(Vec::new());

/// Write a value as JSON, in UTF-8.
///
/// `value` is a record, a list, a query, or any other value that a record can hold, also with
/// records in it. A query or a table is read as a whole: a query is a list of its rows, a table is
/// an object of its keys and rows. A record is written from its stored bytes, without making
/// objects of its fields.
///
/// What JSON lacks is text: dates and times in ISO 8601, bytes in base64, a Decimal and a UUID as
/// they are written. Tuples, sets and arrays are lists, and NaN and infinities are null. Raises
/// `UnsupportedValue`, a `TypeError`, with the place of a value that has no JSON: a complex number,
/// or a dict with a key that is no text, number, bool or None.
///
/// >>> import datetime, pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["ann"] = {"name": "Ann", "born": datetime.date(1990, 5, 17), "tags": {"a"}}
/// >>> pellucid.json_bytes(db["ann"])
/// b'{"name":"Ann","born":"1990-05-17","tags":["a"]}'
#[pyfunction]
#[pyo3(signature = (value, /))]
pub fn json_bytes<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    written(value, |py, out| text::bytes(py, out))
}

/// Write a value as JSON, as a str; see `json_bytes`.
///
/// >>> import pellucid
/// >>> pellucid.json_dumps([1, "two", None])
/// '[1,"two",null]'
#[pyfunction]
#[pyo3(signature = (value, /))]
pub fn json_dumps<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    written(value, text::utf8)
}

fn written<'py, R>(
    value: &Bound<'py, PyAny>,
    finish: impl FnOnce(Python<'py>, &[u8]) -> PyResult<R>,
) -> PyResult<R> {
    let py = value.py();
    let mut out = SPARE.with(py, std::mem::take);
    out.clear();
    let mut writer = Writer { py, out };
    let made = match writer.object(value, 1) {
        Ok(()) => finish(py, &writer.out),
        Err(failure) => Err(failure.raised(py)),
    };
    if writer.out.capacity() <= SPARE_SIZE_MAX {
        drop(SPARE.with(py, |spare| std::mem::replace(spare, writer.out)));
    }
    made
}

/// Why a value cannot be written.
enum Failure {
    /// Reading it raised.
    Raised(PyErr),
    /// It has no JSON; the steps lead to it, innermost first.
    Refused { why: String, steps: Vec<String> },
}

impl Failure {
    #[cold]
    fn within(self: Box<Self>, step: impl FnOnce() -> String) -> Box<Self> {
        match *self {
            Self::Refused { why, mut steps } => {
                steps.push(step());
                Box::new(Self::Refused { why, steps })
            }
            Self::Raised(_) => self,
        }
    }

    #[cold]
    fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Raised(error) => error,
            Self::Refused { why, steps } => {
                let steps: Vec<&str> = steps.iter().rev().map(String::as_str).collect();
                let at =
                    if steps.is_empty() { String::new() } else { format!(": at [{}]", steps.join("][")) };
                errors::raise(py, "UnsupportedValue", format!("{why}{at}"))
            }
        }
    }
}

impl From<PyErr> for Box<Failure> {
    #[cold]
    fn from(error: PyErr) -> Self {
        Box::new(Failure::Raised(error))
    }
}

#[cold]
fn refused<T>(why: impl Into<String>) -> Outcome<T> {
    Err(Box::new(Failure::Refused { why: why.into(), steps: Vec::new() }))
}

type Outcome<T> = Result<T, Box<Failure>>;

struct Writer<'py> {
    py: Python<'py>,
    out: Vec<u8>,
}

/// The names of a shape as JSON.
fn names_of(shape: &ShapeNames) -> &[json::Name] {
    shape.json.get_or_init(|| shape.shape.names().iter().map(|name| json::Name::new(name)).collect())
}

impl<'py> Writer<'py> {
    /// Any object.
    fn object(&mut self, object: &Bound<'py, PyAny>, depth: u32) -> Outcome<()> {
        if let Ok(text) = object.cast_exact::<PyString>() {
            return self.str(text);
        }
        if let Ok(record) = object.cast::<Record>() {
            return self.node(&record.get().node, depth);
        }
        if let Ok(list) = object.cast::<RecordList>() {
            return self.node(&list.get().node, depth);
        }
        if object.is_none() {
            self.out.extend_from_slice(b"null");
        } else if let Ok(value) = object.cast_exact::<PyBool>() {
            self.bool(value.is_true());
        } else if let Ok(value) = object.cast_exact::<PyInt>() {
            self.int(value)?;
        } else if let Ok(value) = object.cast_exact::<PyFloat>() {
            json::push_float(value.value(), &mut self.out);
        } else {
            return self.container_object(object, depth);
        }
        Ok(())
    }

    fn container_object(&mut self, object: &Bound<'py, PyAny>, depth: u32) -> Outcome<()> {
        if depth > NESTED_MAX {
            return refused("a value is nested more than 250 deep, or contains itself");
        }
        if let Ok(dict) = object.cast_exact::<PyDict>() {
            return self.dict(dict, depth);
        }
        if let Ok(list) = object.cast_exact::<PyList>() {
            // By index, since the code of an element may change the list.
            return self.elements(depth, |index| list.get_item(index).ok());
        }
        if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            return self.elements(depth, |index| tuple.get_item(index).ok());
        }
        callbacks::code_may_run(self.py);
        let plain = self.py.import("pellucid.builtin_values")?.call_method1("to_builtin", (object,));
        match plain {
            Ok(plain) => self.object(&plain, depth + 1),
            Err(error) if errors::is_of(self.py, &error, "UnsupportedValue") => {
                refused(error.value(self.py).to_string())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn elements(&mut self, depth: u32, element: impl Fn(usize) -> Option<Bound<'py, PyAny>>) -> Outcome<()> {
        self.out.push(b'[');
        let mut index = 0;
        while let Some(element) = element(index) {
            if index > 0 {
                self.out.push(b',');
                if index.is_multiple_of(WRITTEN_BETWEEN_SIGNALS) {
                    callbacks::check_signals(self.py)?;
                }
            }
            self.object(&element, depth + 1).map_err(|failure| failure.within(|| index.to_string()))?;
            index += 1;
        }
        self.out.push(b']');
        Ok(())
    }

    fn dict(&mut self, dict: &Bound<'py, PyDict>, depth: u32) -> Outcome<()> {
        self.out.push(b'{');
        let mut names = Names::default();
        // A copy, since the code of a value may change the dict.
        for (index, pair) in dict.items().iter().enumerate() {
            let pair = pair.cast_into::<PyTuple>().map_err(PyErr::from)?;
            let (key, value) = (pair.get_item(0)?, pair.get_item(1)?);
            if index > 0 {
                self.out.push(b',');
            }
            let start = self.out.len();
            if let Ok(name) = key.cast_exact::<PyString>() {
                self.str(name)?;
            } else {
                names.has_others = true;
                self.other_name(&key)?;
            }
            names.places.push((start, self.out.len()));
            self.out.push(b':');
            self.object(&value, depth + 1).map_err(|failure| {
                failure.within(|| key.repr().map_or_else(|_| "?".into(), |t| t.to_string()))
            })?;
        }
        self.out.push(b'}');
        names.check(&self.out)
    }

    /// The name in JSON of a key that is no text: that of Python's own encoder.
    fn other_name(&mut self, key: &Bound<'py, PyAny>) -> Outcome<()> {
        let is_name = key.is_none()
            || key.is_exact_instance_of::<PyBool>()
            || key.is_exact_instance_of::<PyInt>()
            || key.cast_exact::<PyFloat>().is_ok_and(|number| number.value().is_finite());
        if let Ok(name) = key.cast::<PyString>() {
            // An instance of a subclass, as a member of a StrEnum is.
            return self.str(name);
        }
        if !is_name {
            return refused(format!(
                "a dict has the key {}, and names in JSON are texts; make a text of it first",
                errors::shorten(key.repr()?.to_string())
            ));
        }
        self.out.push(b'"');
        self.object(key, 1)?;
        self.out.push(b'"');
        Ok(())
    }

    fn bool(&mut self, value: bool) {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn str(&mut self, value: &Bound<'py, PyString>) -> Outcome<()> {
        let characters = text::characters(value)?;
        match json::push_str(characters.bytes(), &mut self.out) {
            Ok(()) => Ok(()),
            Err(json::NotText) => Err(errors::internal("a str that is no text").into()),
        }
    }

    fn int(&mut self, value: &Bound<'py, PyInt>) -> Outcome<()> {
        if let Some(value) = text::small_int(value) {
            json::push_int(value, &mut self.out);
        } else {
            // `str` refuses an int of very many digits.
            let digits = self.py.import("pellucid.transfer.digits")?.call_method1("write_int", (value,))?;
            self.out.extend_from_slice(digits.extract::<&str>()?.as_bytes());
        }
        Ok(())
    }

    /// The dict or list at the place of a handle.
    fn node(&mut self, node: &Node, depth: u32) -> Outcome<()> {
        let place = node.container(self.py)?;
        let reading = Reading::new(&node.row);
        self.container(&reading, &place, depth, 1).map(|_| ())
    }

    /// A stored container; returns the offset where it ends. `depth` is that of the objects around
    /// the record, `nested` that of the containers in it.
    fn container(
        &mut self,
        reading: &Reading<'_>,
        place: &Container,
        depth: u32,
        nested: u32,
    ) -> Outcome<u32> {
        if nested > DEPTH_MAX {
            return Err(damaged(reading, Damage::Depth, place.start));
        }
        let mut walker = Walker::new(*place);
        match place.kind {
            Kind::Shaped => self.shaped(reading, &mut walker, (depth, nested))?,
            Kind::Keyed => self.keyed(reading, &mut walker, (depth, nested))?,
            Kind::List
            | Kind::Tuple
            | Kind::Set
            | Kind::FrozenSet
            | Kind::PackedInts
            | Kind::PackedFloats => {
                self.list(reading, &mut walker, (depth, nested))?;
            }
        }
        Ok(walker.end())
    }

    fn shaped(&mut self, reading: &Reading<'_>, walker: &mut Walker, at: (u32, u32)) -> Outcome<()> {
        let place = *walker.container();
        match reading.row().names.named(self.py, place.shape) {
            Some(shape) => self.fields(reading, walker, shape, at),
            None => Err(damaged(reading, Damage::UnknownShape, place.start)),
        }
    }

    /// The next value if it is a dict with a shape; else the walker stays where it is. In the loops
    /// over fields and elements, the place of such a dict is never written to memory and read back,
    /// which would be waited for (`walk.rs`).
    #[inline]
    fn next_dict(
        &mut self,
        reading: &Reading<'_>,
        walker: &mut Walker,
        (depth, nested): (u32, u32),
    ) -> Option<Outcome<()>> {
        if nested >= DEPTH_MAX {
            return None;
        }
        let mut shape = None;
        let mut inner = walker.next_shaped(reading.bytes(), |id| {
            shape = reading.row().names.met_as(self.py, id);
            shape.map(|shape| shape.keys.len() as u32)
        })?;
        let written = self.fields(reading, &mut inner, shape?, (depth, nested + 1));
        Some(written.and_then(|()| consumed(reading, walker, inner.end())))
    }

    fn fields(
        &mut self,
        reading: &Reading<'_>,
        walker: &mut Walker,
        shape: &ShapeNames,
        at: (u32, u32),
    ) -> Outcome<()> {
        let names = names_of(shape);
        let opened = self.out.len();
        for (index, name) in names.iter().enumerate() {
            if let Some(simple) = walker.next_simple(reading.bytes()) {
                name.push(&mut self.out);
                self.simple(reading, walker, simple)?;
                continue;
            }
            let before = self.out.len();
            name.push(&mut self.out);
            let written = match self.next_dict(reading, walker, at) {
                Some(written) => written,
                None => match next(reading, walker)? {
                    None | Some(Slot::Absent) => {
                        self.out.truncate(before);
                        continue;
                    }
                    Some(slot) => self.slot(reading, walker, &slot, at),
                },
            };
            written.map_err(|failure| {
                failure.within(|| format!("{:?}", shape.shape.name(index as u32).unwrap_or_default()))
            })?;
        }
        // The comma before the first name makes room for the brace.
        match self.out.get_mut(opened) {
            Some(first) => *first = b'{',
            None => self.out.push(b'{'),
        }
        self.out.push(b'}');
        Ok(())
    }

    fn keyed(&mut self, reading: &Reading<'_>, walker: &mut Walker, at: (u32, u32)) -> Outcome<()> {
        let place = *walker.container();
        let mut names = Names::default();
        self.out.push(b'{');
        let opened = self.out.len();
        while let Some(key) = next(reading, walker)? {
            let before = self.out.len();
            if before > opened {
                self.out.push(b',');
            }
            let start = self.out.len();
            if let Slot::Str(name) = key {
                self.text(reading, walker, name)?;
            } else {
                names.has_others = true;
                self.stored_name(reading, walker, &key)?;
            }
            let end = self.out.len();
            let Some(value) = next(reading, walker)? else {
                return Err(damaged(reading, Damage::Truncated, place.start));
            };
            if value == Slot::Absent {
                self.out.truncate(before);
                continue;
            }
            names.places.push((start, end));
            self.out.push(b':');
            let outcome = self.slot(reading, walker, &value, at);
            if let Err(failure) = outcome {
                let name = self.out.get(start..end).unwrap_or_default();
                let name = String::from_utf8_lossy(name).into_owned();
                return Err(failure.within(|| name));
            }
        }
        self.out.push(b'}');
        names.check(&self.out)
    }

    /// The name of a stored key that is no text.
    fn stored_name(&mut self, reading: &Reading<'_>, walker: &mut Walker, key: &Slot<'_>) -> Outcome<()> {
        let name = match *key {
            Slot::Container(place) => {
                let key = crate::values::decode::plain(self.py, reading, key)?;
                let end = self.container_end(reading, &place)?;
                consumed(reading, walker, end)?;
                key
            }
            Slot::Absent => return Err(damaged(reading, Damage::Absent, walker.end())),
            _ => crate::values::decode::plain(self.py, reading, key)?,
        };
        match name.cast_exact::<PyString>() {
            Ok(name) => self.str(name),
            Err(_) => self.other_name(&name),
        }
    }

    /// Where a container ends that is a key, which is refused in any case.
    fn container_end(&mut self, reading: &Reading<'_>, place: &Container) -> Outcome<u32> {
        let start = self.out.len();
        let end = self.container(reading, place, 1, 1);
        self.out.truncate(start);
        end
    }

    fn list(&mut self, reading: &Reading<'_>, walker: &mut Walker, at: (u32, u32)) -> Outcome<()> {
        self.out.push(b'[');
        let opened = self.out.len();
        loop {
            if self.out.len() > opened {
                self.out.push(b',');
            }
            let index = walker.index();
            if let Some(simple) = walker.next_simple(reading.bytes()) {
                self.simple(reading, walker, simple)?;
                continue;
            }
            if index >= walker.container().count {
                break;
            }
            if let Some(written) = self.next_dict(reading, walker, at) {
                written.map_err(|failure| failure.within(|| index.to_string()))?;
                continue;
            }
            match next(reading, walker)? {
                None => break,
                Some(Slot::Absent) => return Err(damaged(reading, Damage::Absent, walker.end())),
                Some(slot) => self
                    .slot(reading, walker, &slot, at)
                    .map_err(|failure| failure.within(|| index.to_string()))?,
            }
        }
        // The comma after the last element, if there is one, makes room for the bracket.
        if self.out.len() > opened {
            self.out.pop();
        }
        self.out.push(b']');
        Ok(())
    }

    #[inline]
    fn simple(&mut self, reading: &Reading<'_>, walker: &Walker, simple: Simple<'_>) -> Outcome<()> {
        match simple {
            Simple::Str(characters) => return self.text(reading, walker, characters),
            Simple::Int(value) => json::push_int(value, &mut self.out),
            Simple::Float(value) => json::push_float(value, &mut self.out),
            Simple::Bool(value) => self.bool(value),
            Simple::None => self.out.extend_from_slice(b"null"),
        }
        Ok(())
    }

    #[inline]
    fn text(&mut self, reading: &Reading<'_>, walker: &Walker, characters: &[u8]) -> Outcome<()> {
        json::push_str(characters, &mut self.out)
            .map_err(|json::NotText| damaged(reading, Damage::Payload, walker.end()))
    }

    /// The value of a slot, which `walker` has returned last.
    fn slot(
        &mut self,
        reading: &Reading<'_>,
        walker: &mut Walker,
        slot: &Slot<'_>,
        (depth, nested): (u32, u32),
    ) -> Outcome<()> {
        let out = &mut self.out;
        match *slot {
            Slot::Container(place) => {
                let end = self.container(reading, &place, depth, nested + 1)?;
                return consumed(reading, walker, end);
            }
            Slot::Str(characters) => return self.text(reading, walker, characters),
            Slot::Int(value) => json::push_int(value, out),
            Slot::Float(value) => json::push_float(value, out),
            Slot::Bool(value) => self.bool(value),
            Slot::None | Slot::Absent => out.extend_from_slice(b"null"),
            Slot::Date(ordinal) if payload::is_date(ordinal) => {
                out.push(b'"');
                json::push_date(ordinal, out);
                out.push(b'"');
            }
            Slot::Datetime(bits) if payload::datetime(bits).is_some() => {
                out.push(b'"');
                json::push_datetime(bits >> 1, out);
                out.push(b'"');
            }
            Slot::Heap { tag, payload, .. } => {
                if !heap(tag, payload, out) {
                    return self.decoded(reading, slot, depth);
                }
            }
            Slot::Date(_) | Slot::Datetime(_) => return self.decoded(reading, slot, depth),
        }
        Ok(())
    }

    /// What has no form of its own here: the object that it is read as.
    fn decoded(&mut self, reading: &Reading<'_>, slot: &Slot<'_>, depth: u32) -> Outcome<()> {
        let object = scalars::decode(self.py, reading, slot, 1)?;
        self.object(&object, depth + 1)
    }
}

/// Writes a value on the heap; false if it has to be decoded, or is damaged.
fn heap(tag: u8, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let is_written = match tag {
        tag::BYTES | tag::BYTEARRAY => {
            json::push_base64(bytes, out);
            true
        }
        tag::STR_SURROGATES => json::push_str(bytes, out).is_ok(),
        tag::DECIMAL => {
            payload::decimal(bytes).is_some_and(|written| json::push_str(written.as_bytes(), out).is_ok())
        }
        tag::UUID => payload::uuid(bytes).map(|uuid| json::push_uuid(&uuid, out)).is_some(),
        tag::TIMEDELTA => payload::timedelta(bytes).map(|delta| json::push_timedelta(&delta, out)).is_some(),
        tag::AWARE => payload::aware(bytes)
            .map(|aware| {
                out.push(b'"');
                json::push_datetime(aware.local, out);
                json::push_offset(aware.offset, out);
                out.push(b'"');
            })
            .is_some(),
        tag::TIME => payload::time(bytes)
            .map(|time| {
                out.push(b'"');
                json::push_clock(time.micros, out);
                if let Some(payload::Zone::Fixed { offset, .. }) = time.zone {
                    json::push_offset(offset, out);
                }
                out.push(b'"');
            })
            .is_some(),
        _ => false,
    };
    if !is_written {
        out.truncate(start);
    }
    is_written
}

#[inline]
fn next<'a>(reading: &'a Reading<'_>, walker: &mut Walker) -> Outcome<Option<Slot<'a>>> {
    let slot = walker.next(reading.bytes(), &*reading.row().names);
    slot.map_err(|error| corrupt(reading, &error))
}

fn consumed(reading: &Reading<'_>, walker: &mut Walker, end: u32) -> Outcome<()> {
    walker.consumed(end).map_err(|error| corrupt(reading, &error))
}

#[cold]
fn damaged(reading: &Reading<'_>, damage: Damage, offset: u32) -> Box<Failure> {
    corrupt(reading, &Corrupt::new(damage, offset as usize))
}

#[cold]
fn corrupt(reading: &Reading<'_>, error: &Corrupt) -> Box<Failure> {
    Python::attach(|py| row_errors::corrupt_row(py, reading.row(), error)).into()
}

/// The places of the names of one object in the text.
#[derive(Default)]
struct Names {
    places: Vec<(usize, usize)>,
    /// Whether a key was no text, so that two keys may be one name.
    has_others: bool,
}

impl Names {
    fn check(mut self, out: &[u8]) -> Outcome<()> {
        if !self.has_others {
            return Ok(());
        }
        let name = |place: &(usize, usize)| out.get(place.0..place.1).unwrap_or_default();
        self.places.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        for pair in self.places.windows(2) {
            if let [one, other] = pair
                && name(one) == name(other)
            {
                return refused(format!(
                    "a dict has two keys that are the name {} in JSON; give one of them another name",
                    String::from_utf8_lossy(name(one))
                ));
            }
        }
        Ok(())
    }
}
