//! Encode values into self-contained bytes, and read them back.
//!
//! `dumps` makes an envelope: a record together with the shape tables that it needs. `view` reads
//! an envelope in place. It resolves equal tables only once, so viewing the next record of the same
//! shapes costs one comparison of about a hundred bytes. `loads` decodes the whole value.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pellucid_record::envelope::{self, Envelope};
use pellucid_record::error::{Corrupt, Damage, EncodeError};
use pellucid_record::layout::{ENVELOPE_BYTE, Kind};
use pellucid_record::shape::{Dictionary, Shape};
use pellucid_record::value::{NoShapes, Value};
use pellucid_record::view::{Root, Slot};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::counters;
use crate::errors;
use crate::hot::bytes::after_head;
use crate::hot::gil::{GilCell, GilRc, GilValue, Strong};
use crate::hot::text;
use crate::values::encode::{self, Encoded, Encoding, Manner, Reason, Target};
use crate::values::handles::{Record, RecordList};
use crate::values::hooks::PicklePolicy;
use crate::values::names::{Names, ShapeNames, Source};
use crate::values::node::Node;
use crate::values::reading::Reading;
use crate::values::row::{Holder, Row, ValidityFlag};
use crate::values::{alloc, decode, hooks, row_errors, scalars};

/// How many shapes `dumps` remembers before it starts over.
const REMEMBERED_SHAPE_COUNT_MAX: usize = 4096;
/// Values of this size or more are decoded with the garbage collector paused.
const PAUSE_SIZE_MIN: usize = 4096;
/// How many envelope tables `view` remembers, how large they may be, and how much memory their
/// names may take (a name takes one or two bytes in each shape after the first).
const REMEMBERED_TABLES_COUNT_MAX: usize = 1024;
const REMEMBERED_TABLES_SIZE_MAX: usize = 16 * 1024;
const REMEMBERED_MEMORY_MAX: usize = 32 << 20;
/// Estimates of the memory for the names of one envelope, for each of its shapes, and for each name
/// in a shape.
const NAMES_MEMORY: usize = 2048;
const SHAPE_MEMORY: usize = 256;
const NAME_MEMORY: usize = 128;

struct Written {
    names: Option<GilRc<Names>>,
    // The tables sealed last, and the shapes in them: the next envelope mostly has the same.
    used: Vec<usize>,
    tables: envelope::Tables,
}

impl Written {
    fn is_of(&self, names: &GilRc<Names>) -> bool {
        self.names.as_ref().is_some_and(|own| std::ptr::eq(&raw const **own, &raw const **names))
    }
}

static WRITTEN: GilCell<Option<Written>> = GilCell::new(None);
/// The tables that `view` remembers: the last ones, and all of them by their bytes.
struct Viewed {
    last: Option<(Box<[u8]>, GilRc<Names>)>,
    all: Option<HashMap<Box<[u8]>, GilRc<Names>>>,
    /// Estimated memory of `all`.
    memory: usize,
}

static VIEWED: GilCell<Viewed> = GilCell::new(Viewed { last: None, all: None, memory: 0 });
static OPEN: GilCell<Option<GilRc<ValidityFlag>>> = GilCell::new(None);
static LAST_ENVELOPE: GilValue<u64> = GilValue::new(0);

/// The flag of rows that nothing can close.
pub fn always_open(py: Python<'_>) -> GilRc<ValidityFlag> {
    OPEN.with(py, |open| open.get_or_insert_with(ValidityFlag::new).clone())
}

fn names_for_writing(py: Python<'_>) -> GilRc<Names> {
    let names = WRITTEN.with(py, |written| written.as_ref().and_then(|written| written.names.clone()));
    match names {
        Some(names) if names.count() < REMEMBERED_SHAPE_COUNT_MAX => names,
        _ => {
            let names = GilRc::new(Names::new(Source::Own(Dictionary::new())));
            let fresh =
                Written { names: Some(names.clone()), used: Vec::new(), tables: envelope::Tables::default() };
            // The old names are dropped outside of the cell: releasing them touches Python objects.
            drop(WRITTEN.with(py, |written| written.replace(fresh)));
            names
        }
    }
}

/// The envelope around a record, if its shapes are those of the envelope before: the tables are
/// used where they are.
fn sealed_as_last<'py>(
    py: Python<'py>,
    names: &GilRc<Names>,
    used: &[*const ShapeNames],
    record: &[u8],
) -> Option<PyResult<Bound<'py, PyBytes>>> {
    // To make a bytes object runs no Python code.
    WRITTEN.with(py, |written| {
        let written = written.as_ref().filter(|written| written.is_of(names))?;
        (written.used.len() == used.len()
            && written.used.iter().zip(used).all(|(old, new)| *old == *new as usize))
        .then(|| seal(py, &written.tables, record))
    })
}

fn seal<'py>(py: Python<'py>, tables: &envelope::Tables, record: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    after_head(py, &tables.body_parts(record), |body| tables.envelope_head(body))
}

/// Keeps the tables of an envelope, with the shapes in them, which `ShapeNames` own.
fn remember(py: Python<'_>, names: &GilRc<Names>, used: &[*const ShapeNames], tables: envelope::Tables) {
    WRITTEN.with(py, |written| {
        // User code may have replaced the names meanwhile; the addresses of old names mean nothing
        // then.
        if let Some(written) = written.as_mut().filter(|written| written.is_of(names)) {
            written.used.clear();
            written.used.extend(used.iter().map(|shape| *shape as usize));
            written.tables = tables;
        }
    });
}

fn tables_of(shapes: &[Shape]) -> envelope::Tables {
    let mut tables = envelope::Tables::new();
    for shape in shapes {
        // The shapes are distinct, and no more than fit an envelope, so each gets the next id.
        let id = tables.admit(shape.names());
        debug_assert!(id.is_some(), "an envelope has room for its shapes");
    }
    tables
}

/// Encode a value into self-contained bytes.
///
/// `pickle` says what to do with objects that only pickle can write: "deny" (the default), "allow",
/// or a list of the globals that may occur.
///
/// Raises `UnsupportedValue` with the path of the part that cannot be stored, and `RecordTooLarge`
/// beyond 4 GiB or 64 nested containers.
///
/// >>> import pellucid
/// >>> data = pellucid.dumps({"name": "Ann", "age": 30})
/// >>> pellucid.view(data).age
/// 30
#[pyfunction]
#[pyo3(signature = (obj, *, pickle=None))]
pub fn dumps<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    pickle: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let policy = PicklePolicy::new(pickle)?;
    seal_object(py, obj, &policy)
}

fn seal_object<'py>(
    py: Python<'py>,
    object: &Bound<'py, PyAny>,
    policy: &PicklePolicy,
) -> PyResult<Bound<'py, PyBytes>> {
    let names = names_for_writing(py);
    let number = LAST_ENVELOPE.get() + 1;
    LAST_ENVELOPE.set(number);
    let target = Target::Envelope { number, used: Vec::new() };
    let Encoded { encoder, used, .. } =
        encode_object(py, &names, target, policy, manner_of(policy), object, the_value)?;
    let sealed = sealed_as_last(py, &names, &used, encoder.bytes()).unwrap_or_else(|| {
        let tables = tables_of(&encode::shapes_of(&used));
        let sealed = seal(py, &tables, encoder.bytes());
        remember(py, &names, &used, tables);
        sealed
    });
    encode::recycle(py, encoder);
    sealed
}

fn the_value() -> String {
    "the value".to_owned()
}

/// The manner of a value that belongs to no class: its parts keep their identity if any pickle may
/// be made. A list of globals is about the classes in it: a date beside a shared part would need
/// one more.
pub fn manner_of(policy: &PicklePolicy) -> Manner {
    Manner { keeps_identity: policy.is_allow, ..Manner::COPIES }
}

/// Encodes one object; `place` names it in messages.
pub fn encode_object<'py>(
    py: Python<'py>,
    names: &Names,
    target: Target<'_>,
    policy: &PicklePolicy,
    manner: Manner,
    object: &Bound<'py, PyAny>,
    place: impl FnOnce() -> String,
) -> PyResult<Encoded> {
    counters::value_encoded();
    let mut encoding = Encoding::new(py, names, target, policy, manner);
    let mut outcome = written(&mut encoding, |encoding| encoding.bound_value(object, 0));
    if outcome.as_ref().is_err_and(|failure| is_for_pickle(&encoding, failure)) {
        encoding.start_over();
        outcome = written(&mut encoding, |encoding| hooks::encode_pickled(encoding, object));
    }
    match outcome {
        Ok(()) => Ok(encoding.finish()),
        Err(mut failure) => {
            find_cycle(object, &mut failure);
            Err(row_errors::of_failure(py, *failure, &place()))
        }
    }
}

/// Runs `work`, and turns the panic of an encoder whose memory could not grow into its error.
fn written<'a, 'py>(
    encoding: &mut Encoding<'a, 'py>,
    work: impl FnOnce(&mut Encoding<'a, 'py>) -> encode::Outcome,
) -> encode::Outcome {
    let written = catch_unwind(AssertUnwindSafe(|| work(encoding)));
    written.unwrap_or_else(|payload| match payload.downcast::<EncodeError>() {
        Ok(error) => Err((*error).into()),
        Err(payload) => resume_unwind(payload),
    })
}

/// Whether a pickle can hold the value that a record cannot, and may.
fn is_for_pickle(encoding: &Encoding<'_, '_>, failure: &encode::Failure) -> bool {
    match failure.reason {
        Reason::Shared => true,
        Reason::Encode(EncodeError::NoMemory | EncodeError::CountMismatch { .. })
        | Reason::Unsupported(_)
        | Reason::Python(_) => false,
        Reason::Cycle | Reason::TooDeep | Reason::Member(..) | Reason::Encode(_) => {
            encoding.manner.is_exact && !encoding.policy.is_deny()
        }
    }
}

/// If a value is nested too deep because it contains itself, changes the failure to say so, and
/// where.
fn find_cycle(object: &Bound<'_, PyAny>, failure: &mut encode::Failure) {
    if !matches!(failure.reason, encode::Reason::TooDeep) {
        return;
    }
    let mut seen = vec![object.clone()];
    for (index, step) in failure.path.iter().rev().enumerate() {
        let inner = seen.last().and_then(|container| container.get_item(step).ok());
        let Some(inner) = inner else { return };
        if seen.iter().any(|outer| outer.is(&inner)) {
            failure.reason = encode::Reason::Cycle;
            // The innermost step comes first.
            failure.path.drain(..failure.path.len() - index - 1);
            return;
        }
        seen.push(inner);
    }
}

/// The encoded values of a change.
pub struct Values {
    /// One entry for each value.
    pub encoded: Vec<Encoded>,
}

impl Values {
    /// Encodes the values with the shapes of a detached record's own tables.
    pub fn for_own_shapes(
        py: Python<'_>,
        names: &Names,
        policy: &PicklePolicy,
        values: &[Bound<'_, PyAny>],
    ) -> PyResult<Self> {
        let encoded = values
            .iter()
            .map(|value| encode_object(py, names, Target::Own, policy, manner_of(policy), value, the_value))
            .collect::<PyResult<_>>()?;
        Ok(Self { encoded })
    }

    /// The bytes of each value.
    pub fn bytes(&self) -> Vec<&[u8]> {
        self.encoded.iter().map(|encoded| encoded.encoder.bytes()).collect()
    }
}

/// The names for an envelope's tables.
fn names_of_tables(py: Python<'_>, envelope: &Envelope<'_>) -> PyResult<GilRc<Names>> {
    // In a stream of records with equal tables, the first comparison finds them.
    let last = VIEWED.with(py, |viewed| match &viewed.last {
        Some((tables, names)) if **tables == *envelope.tables => Some(names.clone()),
        _ => None,
    });
    if let Some(names) = last {
        return Ok(names);
    }
    // Copied before they are read: another process may write to a viewed `mmap`, and names must be
    // those that were found to be UTF-8, and be remembered by the bytes that they were read from.
    let tables = text::bytes(py, envelope.tables)?;
    let envelope = &Envelope { tables: tables.as_bytes(), ..*envelope };
    if envelope.tables.len() > REMEMBERED_TABLES_SIZE_MAX {
        return Ok(own_names(py, envelope)?.0);
    }
    let known = VIEWED.with(py, |viewed| viewed.all.as_ref()?.get(envelope.tables).cloned());
    let names = if let Some(names) = known {
        names
    } else {
        let (names, memory) = own_names(py, envelope)?;
        let forgotten = VIEWED.with(py, |viewed| {
            let all = viewed.all.get_or_insert_default();
            let is_full =
                all.len() >= REMEMBERED_TABLES_COUNT_MAX || viewed.memory + memory > REMEMBERED_MEMORY_MAX;
            let forgotten = is_full.then(|| std::mem::take(all));
            viewed.memory = if is_full { memory } else { viewed.memory + memory };
            all.insert(envelope.tables.into(), names.clone());
            forgotten
        });
        // Outside of the cell: releasing names touches Python objects.
        drop(forgotten);
        names
    };
    let old = VIEWED.with(py, |viewed| match &mut viewed.last {
        // Reuses the memory if the size is the same: a stream of two alternating kinds of records
        // allocates nothing.
        Some((tables, last)) if tables.len() == envelope.tables.len() => {
            tables.copy_from_slice(envelope.tables);
            (None, Some(std::mem::replace(last, names.clone())))
        }
        last => (last.replace((envelope.tables.into(), names.clone())), None),
    });
    drop(old);
    Ok(names)
}

/// New names for an envelope's tables, and an estimate of their memory.
fn own_names(py: Python<'_>, envelope: &Envelope<'_>) -> PyResult<(GilRc<Names>, usize)> {
    let dictionary = Dictionary::new();
    let mut memory = NAMES_MEMORY + envelope.tables.len();
    for shape in envelope.shapes().map_err(|error| damaged(py, &error))? {
        memory += SHAPE_MEMORY + shape.count() as usize * NAME_MEMORY;
        if dictionary.push(shape).is_err() {
            return Err(errors::corrupt_record(
                py,
                "the envelope has more shapes than there are ids".to_owned(),
            ));
        }
    }
    Ok((GilRc::new(Names::new(Source::Own(dictionary))), memory))
}

#[cold]
fn damaged(py: Python<'_>, error: &pellucid_record::Corrupt) -> PyErr {
    errors::corrupt_record(py, format!("these bytes are no pellucid value: {error}"))
}

/// The exception for a damaged envelope; it says so if the end of the envelope is missing.
#[cold]
fn damaged_envelope(py: Python<'_>, bytes: &[u8], error: &Corrupt) -> PyErr {
    match envelope::CutOff::of(bytes) {
        Some(cut_off) => {
            errors::corrupt_record(py, format!("these bytes are no pellucid value: they are {cut_off}"))
        }
        None => damaged(py, error),
    }
}

/// The error of bytes whose checksum is wrong. If there are a few bytes too many, it says how many:
/// a program that reads a file in the wrong parts gets such bytes.
#[cold]
fn unfit(py: Python<'_>, bytes: &[u8]) -> PyErr {
    const MORE_MAX: usize = 16;
    for more in 1..=MORE_MAX.min(bytes.len()) {
        let shorter = bytes.get(..bytes.len() - more).unwrap_or_default();
        if Envelope::parse(shorter).is_ok_and(|envelope| envelope.checksum_fits(shorter)) {
            let (count, value) = (errors::counted(more, "byte"), shorter.len());
            return errors::corrupt_record(
                py,
                format!(
                    "{count} too many: the value ends at byte {value} of {}; cut off what is after it",
                    bytes.len()
                ),
            );
        }
    }
    match envelope::CutOff::of(bytes) {
        Some(_) => damaged_envelope(py, bytes, &Corrupt::new(Damage::Checksum, 8)),
        None => errors::corrupt_record(
            py,
            "these bytes are no pellucid value: their checksum does not fit; some were changed, or there are more of \
             them than dumps() gave"
                .to_owned(),
        ),
    }
}

fn parse<'a>(py: Python<'_>, bytes: &'a [u8]) -> PyResult<Envelope<'a>> {
    if bytes.first() != Some(&ENVELOPE_BYTE) {
        return Err(errors::corrupt_record(
            py,
            "these bytes are no pellucid value: they do not begin as pellucid.dumps() begins; were they made by \
             something else?"
                .to_owned(),
        ));
    }
    Envelope::parse(bytes).map_err(|error| damaged_envelope(py, bytes, &error))
}

/// The bytes of a buffer object, and the reference that keeps them alive.
fn open_buffer(buffer: &Bound<'_, PyAny>) -> PyResult<(crate::values::row::Span, Holder)> {
    if let Ok(bytes) = buffer.cast_exact::<PyBytes>() {
        return Ok((crate::values::row::Span::of(bytes.as_bytes()), Holder::Bytes(Strong::new(bytes))));
    }
    let opened = PyBuffer::<u8>::get(buffer);
    let buffer = opened.map_err(|error| {
        let py = buffer.py();
        // The elements are not bytes, or the memoryview was released.
        if error.is_instance_of::<PyBufferError>(py) || error.is_instance_of::<PyValueError>(py) {
            let message =
                format!("the buffer cannot be read as bytes: {}; make bytes of it first", error.value(py));
            let wrapped = errors::type_error(message);
            wrapped.set_cause(py, Some(error));
            return wrapped;
        }
        error
    })?;
    if !buffer.is_c_contiguous() {
        return Err(errors::type_error("the buffer is not contiguous; make bytes of it first"));
    }
    Ok((crate::values::row::Span::of_buffer(&buffer), Holder::Buffer(buffer)))
}

const VIEW_WHY: &str = "a view of bytes cannot be changed; make a detached copy with rec.copy()";

/// Reads packed bytes in place; `values/functions.rs` makes the Python function from it.
///
/// # Errors
/// `CorruptRecord` if the buffer is not an envelope, `TypeError` if the object is not a buffer.
#[inline]
pub fn view<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match view_of_known(buffer) {
        Some(record) => Ok(record),
        None => view_of_any(buffer),
    }
}

/// A dict in a bytes object whose tables equal the last ones, as in a stream of records with equal
/// tables. It is one inlined function, since results that a call returns in memory cost a wait.
#[inline]
fn view_of_known<'py>(buffer: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let py = buffer.py();
    let bytes = buffer.cast_exact::<PyBytes>().ok()?;
    let data = bytes.as_bytes();
    let envelope = Envelope::parse(data).ok()?;
    let kind = envelope.record.first()? >> 4;
    if kind != Kind::Shaped as u8 && kind != Kind::Keyed as u8 {
        return None;
    }
    let names = VIEWED.with(py, |viewed| match &viewed.last {
        Some((tables, names)) if **tables == *envelope.tables => Some(names.clone()),
        _ => None,
    })?;
    let record = (envelope.record_offset(), envelope.record.len());
    let validity = always_open(py);
    let row = GilRc::make(|| {
        let holder = Holder::Bytes(Strong::new(bytes));
        crate::values::row::Span::of(data).into_row(record, holder, names, validity, Some(VIEW_WHY))
    });
    alloc::new_handle(py, Record { node: Node::root(row, true) }).ok().map(Bound::into_any)
}

#[cold]
#[inline(never)]
fn view_of_any<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    let (span, holder) = open_buffer(buffer)?;
    let envelope = parse(py, span.bytes(&holder))?;
    let names = names_of_tables(py, &envelope)?;
    let record = (envelope.record_offset(), envelope.record.len());
    let validity = always_open(py);
    handle_of_row(py, GilRc::make(|| span.into_row(record, holder, names, validity, Some(VIEW_WHY))))
}

/// Decode packed bytes completely into plain dicts, lists and scalars.
///
/// The checksum is checked. `pickle` is as in `open`: pickles in the value are denied unless
/// allowed.
///
/// >>> import pellucid
/// >>> pellucid.loads(pellucid.dumps([1, "two", None]))
/// [1, 'two', None]
#[pyfunction]
#[pyo3(signature = (buffer, /, *, pickle=None))]
pub fn loads<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    pickle: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let policy = PicklePolicy::new(pickle)?;
    let (span, holder) = open_buffer(buffer)?;
    let envelope = parse(py, span.bytes(&holder))?;
    if !envelope.checksum_fits(span.bytes(&holder)) {
        return Err(unfit(py, span.bytes(&holder)));
    }
    let names = names_of_tables(py, &envelope)?;
    let record = (envelope.record_offset(), envelope.record.len());
    let mut row = span.into_row(record, holder, names, always_open(py), None);
    row.own_policy = (!policy.is_deny()).then(|| Box::new(policy));
    plain_of_row(py, &GilRc::new(row))
}

/// Check packed bytes completely: the checksum and every rule of the format.
///
/// Raises `CorruptRecord` with the offset of the first damage; returns None if there is none.
///
/// >>> import pellucid
/// >>> pellucid.validate(pellucid.dumps({"a": 1}))
#[pyfunction]
#[pyo3(signature = (buffer, /))]
pub fn validate(py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
    let (span, holder) = open_buffer(buffer)?;
    parse(py, span.bytes(&holder))?;
    let bytes = span.bytes(&holder);
    envelope::validate(bytes).map(|_| ()).map_err(|error| damaged_envelope(py, bytes, &error))
}

/// The Python object for a row's value: a handle for a container, or the scalar itself.
pub fn handle_of_row(py: Python<'_>, row: GilRc<Row>) -> PyResult<Bound<'_, PyAny>> {
    // The upper nibble of the first byte is the kind.
    match row.bytes().first().map(|byte| Kind::from_number(byte >> 4)) {
        Some(Some(Kind::Shaped | Kind::Keyed)) => {
            Ok(alloc::new_handle(py, Record { node: Node::root(row, true) })?.into_any())
        }
        Some(Some(Kind::List | Kind::PackedInts | Kind::PackedFloats)) => {
            Ok(alloc::new_handle(py, RecordList { node: Node::root(row, false) })?.into_any())
        }
        Some(Some(Kind::Tuple)) => {
            let list = alloc::new_handle(py, RecordList { node: Node::root(row.clone(), false) })?;
            let place = list.get().node.container(py)?;
            decode::tuple_handles(list.as_any(), &Reading::new(&row), &place)
        }
        _ => plain_of_row(py, &row),
    }
}

/// Decodes the whole value of a row into plain objects.
pub fn plain_of_row<'py>(py: Python<'py>, row: &GilRc<Row>) -> PyResult<Bound<'py, PyAny>> {
    // The new objects hold no garbage, and the collector's repeated walks over them took two thirds
    // of the time of a large `loads`.
    let _pause =
        (row.bytes().len() >= PAUSE_SIZE_MIN).then(|| crate::hot::collector::CollectorPause::new(py));
    let reading = Reading::new(row);
    match pellucid_record::view::root(reading.bytes(), &*row.names) {
        Ok(Root::Container(place)) => decode::plain(py, &reading, &Slot::Container(place)),
        Ok(Root::Scalar(slot)) => decode::plain_at(py, &reading, &slot, 0)
            .map_err(|error| scalars::unmade(py, &reading, &slot, None, error)),
        Err(error) => Err(row_errors::corrupt_row(py, row, &error)),
    }
}

/// The self-contained bytes of the value at a handle's place.
pub fn sealed<'py>(node: &Node, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
    let place = node.container(py)?;
    let plain = decode::plain(py, &Reading::new(&node.row), &Slot::Container(place))?;
    // A value that was read under the row's policy may be written under the same policy.
    let policy = node.row.policy(py);
    seal_object(py, &plain, &policy)
}

/// A detached, changeable handle on an envelope's record, with the pickle policy of its original.
pub fn detached_handle<'py>(
    py: Python<'py>,
    sealed: &[u8],
    policy: PicklePolicy,
) -> PyResult<Bound<'py, PyAny>> {
    let envelope = parse(py, sealed)?;
    // It gets its own tables, not the remembered ones, since a change may add shapes.
    let (names, _) = own_names(py, &envelope)?;
    let mut row = Row::owned(envelope.record, &[], names, always_open(py), None, None);
    row.own_policy = (!policy.is_deny()).then(|| Box::new(policy));
    handle_of_row(py, GilRc::new(row))
}

/// An object as a record of its own, made by `own_record`; None if no record can hold its type.
pub fn key_record(key: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    match own_record(key, &PicklePolicy::DENY, Manner::COPIES) {
        Ok((record, _)) => Ok(Some(record)),
        Err(failure) => match failure.reason {
            encode::Reason::Python(error) => Err(error),
            _ => Ok(None),
        },
    }
}

/// An object as a record of its own, with the shapes of `dumps`.
pub fn own_record(
    object: &Bound<'_, PyAny>,
    policy: &PicklePolicy,
    manner: Manner,
) -> Result<(Vec<u8>, GilRc<Names>), Box<encode::Failure>> {
    let names = names_for_writing(object.py());
    let mut encoding = Encoding::new(object.py(), &names, Target::Own, policy, manner);
    encoding.is_trial = true;
    encoding.bound_value(object, 0)?;
    let record = encoding.finish().encoder.bytes().to_vec();
    Ok((record, names))
}

/// Converts an object to a value that needs no shapes; `place` names it in messages.
///
/// # Errors
/// `UnsupportedValue` if no record can hold it.
pub fn value_of(object: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<Value> {
    let py = object.py();
    let names = names_for_writing(py);
    let encoded = encode_object(py, &names, Target::Own, &PicklePolicy::DENY, Manner::COPIES, object, place)?;
    let value = pellucid_record::decode(encoded.encoder.bytes(), &*names);
    value.map_err(|error| errors::corrupt_record(py, format!("the value cannot be read back: {error}")))
}

/// Converts a value to a Python object.
///
/// # Errors
/// Whatever making the object raises.
pub fn object_of<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    let record = pellucid_record::encode_value(value, &mut NoShapes);
    key_object(py, &record.map_err(|error| errors::value_error(error.to_string()))?)
}

/// Decodes the record of a key into a Python object.
pub fn key_object<'py>(py: Python<'py>, record: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let names = names_for_writing(py);
    plain_of_row(py, &GilRc::new(Row::owned(record, &[], names, always_open(py), None, None)))
}
