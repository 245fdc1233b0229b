//! Find the plain key that an object of another class equals, as a dict finds it.
//!
//! `numpy.int64(5)`, a member of an `IntEnum` and an instance of a subclass of `str` are equal to a
//! plain key and have its hash, so they are one key in a dict. They are one key here, too.

use std::sync::OnceLock;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyFrozenSet, PyInt, PyString, PyTuple};

use crate::hot::modules;

type Refuse = fn(&Bound<'_, PyAny>) -> PyResult<()>;

/// Raises for objects that only look like keys. Their classes are above this room.
static REFUSE: OnceLock<Refuse> = OnceLock::new();

/// Says which function raises for objects that only look like keys, such as a condition. The first
/// call counts.
pub fn refuse_with(refuse: Refuse) {
    let _ = REFUSE.set(refuse);
}

/// Refuses an object that only looks like a key.
///
/// # Errors
/// `TypeError`, with the call that was meant.
pub fn refuse(object: &Bound<'_, PyAny>) -> PyResult<()> {
    REFUSE.get().map_or(Ok(()), |refuse| refuse(object))
}

/// The str, int, float, bool or bytes that an object equals; None if there is none. A tuple stands
/// for itself.
///
/// # Errors
/// What the object's own code raises.
pub fn plain_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let found = match base_of(object)? {
        Some(base) => Some(base),
        None => number_of_numpy(object)?,
    };
    let Some(plain) = found else { return Ok(None) };
    Ok(is_one_key(object, &plain)?.then_some(plain))
}

/// Whether an object of a derived class and the plain one are one key in a dict. A class with a
/// comparison or a hash of its own may be another key.
///
/// # Errors
/// What the object's own code raises.
pub fn is_one_key(object: &Bound<'_, PyAny>, plain: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.eq(plain)? && object.hash()? == plain.hash()?)
}

/// As `plain_of`, also for the elements of tuples and frozensets, however deep. None if the object
/// is plain itself.
///
/// # Errors
/// As `plain_of`.
pub fn plain_key<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if is_plain(object) {
        return Ok(None);
    }
    if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        let Some(elements) = plain_elements(tuple.iter())? else { return Ok(None) };
        return Ok(Some(PyTuple::new(object.py(), elements)?.into_any()));
    }
    if let Ok(set) = object.cast_exact::<PyFrozenSet>() {
        let Some(elements) = plain_elements(set.iter())? else { return Ok(None) };
        return Ok(Some(PyFrozenSet::new(object.py(), &elements)?.into_any()));
    }
    plain_of(object)
}

/// Whether objects of this class have equal stored forms exactly if they are equal.
pub fn is_plain(member: &Bound<'_, PyAny>) -> bool {
    member.is_exact_instance_of::<PyString>()
        || member.is_exact_instance_of::<PyInt>()
        || member.is_exact_instance_of::<PyFloat>()
        || member.is_exact_instance_of::<PyBool>()
        || member.is_exact_instance_of::<PyBytes>()
        || member.is_none()
}

/// The elements as plain keys; None if all are plain.
fn plain_elements<'py>(
    elements: impl Iterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let mut is_other = false;
    let plain = elements.map(|element| {
        let plain = plain_key(&element)?;
        is_other |= plain.is_some();
        Ok(plain.unwrap_or(element))
    });
    let plain = plain.collect::<PyResult<Vec<_>>>()?;
    Ok(is_other.then_some(plain))
}

/// The text, number or bytes of an instance of a subclass.
///
/// # Errors
/// `MemoryError`.
pub fn base_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    // The methods of the base class, since a subclass may have its own.
    let base = if object.is_instance_of::<PyString>() {
        py.get_type::<PyString>().call_method1(intern!(py, "__str__"), (object,))?
    } else if object.is_instance_of::<PyInt>() {
        py.get_type::<PyInt>().call_method1(intern!(py, "__int__"), (object,))?
    } else if let Ok(number) = object.cast::<PyFloat>() {
        PyFloat::new(py, number.value()).into_any()
    } else if let Ok(bytes) = object.cast::<PyBytes>() {
        PyBytes::new(py, bytes.as_bytes()).into_any()
    } else {
        return Ok(None);
    };
    Ok(Some(base))
}

/// The bool, int or float of a NumPy scalar, be it equal or not; None for any other object.
///
/// # Errors
/// What NumPy raises.
pub fn number_of_numpy<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let Some(numpy) = modules::loaded(intern!(py, "numpy")) else { return Ok(None) };
    let Some(generic) = numpy.getattr_opt(intern!(py, "generic"))? else { return Ok(None) };
    if !object.is_instance(&generic)? {
        return Ok(None);
    }
    let kind: String = object.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "kind"))?.extract()?;
    match &*kind {
        "b" | "i" | "u" => object.call_method0(intern!(py, "item")).map(Some),
        // `item` of a longdouble is a longdouble.
        "f" => py.get_type::<PyFloat>().call1((object,)).map(Some),
        _ => Ok(None),
    }
}
