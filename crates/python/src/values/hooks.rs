//! Call the Python code that encodes and decodes objects of other types.
//!
//! Objects that are not of an exact built-in type go to `pellucid.objects` (one module, imported on
//! first use), which returns plain values for the encoder to write.

use pellucid_record::layout::{Kind, SCALAR_HEAD_SIZE, tag};
use pellucid_record::pickles::PICKLE_NAME;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple, PyType};

use crate::errors;
use crate::hot::gil::Strong;
use crate::hot::text;
use crate::values::encode::{Encoding, Outcome, Reason, fail};

/// Which pickles may be written and read: the value of `pickle=` in `open`, `dumps` and `loads`.
pub struct PicklePolicy {
    // None means "deny", the default, which costs nothing to make.
    object: Option<Strong<PyAny>>,
    /// Whether all pickles may be read.
    pub is_allow: bool,
}

impl PicklePolicy {
    /// The policy that refuses to write or read pickles.
    pub const DENY: Self = Self { object: None, is_allow: false };

    /// The policy for an argument: "deny", "allow", or an iterable of names of globals.
    ///
    /// # Errors
    /// `ValueError` for another word, and for a name that no global can have.
    pub fn new(argument: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(argument) = argument else { return Ok(Self::DENY) };
        if let Ok(word) = argument.cast::<PyString>() {
            // A surrogate in it is not an error of its own.
            return match &*word.to_string_lossy() {
                "deny" => Ok(Self::DENY),
                "allow" => Ok(Self { object: Some(Strong::new(argument)), is_allow: true }),
                word => Err(errors::value_error(format!(
                    "pickle={word:?} is unknown; use \"deny\", \"allow\", or a list of allowed globals"
                ))),
            };
        }
        let Ok(names) = argument.try_iter() else {
            return Err(errors::value_error(format!(
                "pickle={} is unknown; use \"deny\", \"allow\", or a list of allowed globals",
                argument.repr()?
            )));
        };
        let mut globals: Vec<Bound<'_, PyString>> = Vec::new();
        for name in names {
            let name = name?;
            let text = name.cast::<PyString>().cloned().map_err(PyErr::from);
            let wanted = "a name in full, such as \"mypkg.models.Order\", in quotes";
            globals.push(errors::argument(&name, text, "each element of pickle=[...]", wanted)?);
        }
        let globals = PyTuple::new(argument.py(), globals)?;
        pickles(argument.py())?.call_method1("check_globals", (&globals,))?;
        Ok(Self { object: Some(Strong::new(globals.as_any())), is_allow: false })
    }

    /// Whether writing and reading pickles are refused.
    pub fn is_deny(&self) -> bool {
        self.object.is_none()
    }

    /// Another reference to the same policy.
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { object: self.object.as_ref().map(|object| object.clone_ref(py)), is_allow: self.is_allow }
    }

    /// The policy as the argument of `pickle=`.
    pub fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match &self.object {
            Some(object) => object.clone_ref(py).into_bound(py),
            None => PyString::intern(py, "deny").into_any(),
        }
    }
}

fn objects(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("pellucid.objects")
}

fn pickles(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("pellucid.pickles")
}

/// Encodes an object whose type the native code does not know.
pub fn encode<'py>(encoding: &mut Encoding<'_, 'py>, object: &Bound<'py, PyAny>, depth: u32) -> Outcome {
    let py = encoding.py;
    let manner = encoding.manner;
    let wants_parts = manner.keeps_identity && depth > 0;
    let policy = encoding.policy.object(py);
    let arguments = (object, policy, manner.is_exact, manner.is_fast, wants_parts, manner.runs_init);
    let said = objects(py)?.call_method1("encode", arguments)?;
    if said.is_none() {
        return fail(Reason::Unsupported(object.clone().unbind()));
    }
    let said = said.cast_into::<PyTuple>().map_err(PyErr::from)?;
    let way: String = said.get_item(0)?.extract()?;
    if matches!(way.as_str(), "registered" | "array") {
        encoding.see_any(object)?;
    }
    match way.as_str() {
        "value" => encoding.stand_in(&said.get_item(1)?, depth),
        "pickle" => {
            if wants_parts {
                for part in said.get_item(2)?.try_iter()? {
                    encoding.see_any(&part?)?;
                }
            }
            pickled(encoding, &said.get_item(1)?.cast_into::<PyTuple>().map_err(PyErr::from)?, depth)
        }
        "registered" => {
            encoding.encoder.begin_payload(tag::REGISTERED);
            encoding.encoder.begin(Kind::Tuple, 2, 0)?;
            encoding.bound_value(&said.get_item(1)?, depth + 2)?;
            encoding.bound_value(&said.get_item(2)?, depth + 2)?;
            encoding.encoder.end()?;
            Ok(encoding.encoder.end_payload(&[])?)
        }
        _ => array(encoding, &said, depth),
    }
}

/// Encodes a whole value as one pickle: it has parts that occur twice, or more than a record holds.
pub fn encode_pickled<'py>(encoding: &mut Encoding<'_, 'py>, object: &Bound<'py, PyAny>) -> Outcome {
    let py = encoding.py;
    let arguments = (object, encoding.policy.object(py), encoding.manner.is_fast);
    let said = objects(py)?.call_method1("encode_pickled", arguments)?;
    pickled(encoding, &said.cast_into::<PyTuple>().map_err(PyErr::from)?, 0)
}

/// A hint how to store an object of this type, for the message of the exception.
pub fn way_out(object: &Bound<'_, PyAny>) -> PyResult<String> {
    objects(object.py())?.call_method1("way_out", (object,))?.extract()
}

/// Encodes a NumPy array: its head as a nested tuple, its data after that.
fn array<'py>(encoding: &mut Encoding<'_, 'py>, said: &Bound<'py, PyTuple>, depth: u32) -> Outcome {
    let data = said.get_item(4)?.cast_into::<PyBytes>().map_err(PyErr::from)?;
    // It is encoded apart first, since its size decides whether it goes into the record.
    let mut part = encoding.part(&PicklePolicy::DENY);
    part.encoder.begin_payload(tag::NDARRAY);
    part.encoder.begin(Kind::Tuple, 4, 0)?;
    for index in 1..3 {
        part.bound_value(&said.get_item(index)?, depth + 2)?;
    }
    // The encoder writes flags and data offset, since only the encoder knows where the data will
    // lie.
    let address = encoding.address_of(data.as_bytes().len(), depth);
    part.encoder.end_ndarray(said.get_item(3)?.extract()?, data.as_bytes(), address)?;
    let payload = part.finish().encoder.take().split_off(SCALAR_HEAD_SIZE);
    encoding.payload(tag::NDARRAY, &payload, depth)
}

/// Encodes a pickle whose large buffers are stored beside it, as arrays of bytes.
fn pickle_with_buffers<'py>(
    encoding: &mut Encoding<'_, 'py>,
    data: &Bound<'py, PyAny>,
    buffers: &Bound<'py, PyTuple>,
    depth: u32,
) -> Outcome {
    let py = encoding.py;
    encoding.encoder.begin_payload(tag::REGISTERED);
    encoding.encoder.begin(Kind::Tuple, 2, 0)?;
    encoding.bound_value(PyString::intern(py, PICKLE_NAME).as_any(), depth + 2)?;
    encoding.encoder.begin(Kind::Tuple, 1 + buffers.len() as u32, 0)?;
    encoding.bound_value(data, depth + 3)?;
    for buffer in buffers {
        let said = ("array", "|u1", vec![buffer.len()?], 0_u8, buffer).into_pyobject(py)?;
        array(encoding, &said, depth + 3)?;
    }
    encoding.encoder.end()?;
    encoding.encoder.end()?;
    Ok(encoding.encoder.end_payload(&[])?)
}

/// Writes what `pickles.encode` returned: the pickle, and the buffers that lie beside it.
fn pickled<'py>(encoding: &mut Encoding<'_, 'py>, said: &Bound<'py, PyTuple>, depth: u32) -> Outcome {
    let data = said.get_item(0)?.cast_into::<PyBytes>().map_err(PyErr::from)?;
    let buffers = said.get_item(1)?.cast_into::<PyTuple>().map_err(PyErr::from)?;
    if buffers.is_empty() {
        return encoding.payload(tag::PICKLE, data.as_bytes(), depth);
    }
    pickle_with_buffers(encoding, data.as_any(), &buffers, depth)
}

/// Makes the instance of a registered class.
pub fn decode_registered<'py>(
    name: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    objects(name.py())?.call_method1("decode_registered", (name, value))
}

/// Loads the object of a pickle if the policy allows it.
pub fn decode_pickle<'py>(
    py: Python<'py>,
    data: &[u8],
    buffers: Option<&Bound<'py, PyTuple>>,
    policy: &PicklePolicy,
) -> PyResult<Bound<'py, PyAny>> {
    if policy.is_deny() {
        let wanted: Option<String> = text::bytes(py, data)
            .and_then(|data| pickles(py)?.call_method1("wanted", (data,))?.extract())
            .unwrap_or_default();
        let (of, list) = match wanted {
            Some(wanted) => (format!(" of {wanted:?}"), format!("pickle=[{wanted:?}]")),
            None => (String::new(), "the list of globals it may use".to_owned()),
        };
        return Err(errors::raise(
            py,
            "PickleDenied",
            format!(
                "a stored value is a pickle{of}, and pickles are denied; open with pickle=\"allow\", or with {list}, if \
                 you trust the file's author"
            ),
        ));
    }
    // The bytes are copied first: the import may run code that writes to a viewed buffer.
    let data = text::bytes(py, data)?;
    pickles(py)?.call_method1("decode", (data, policy.object(py), buffers))
}

/// Makes the NumPy array or scalar that a payload describes; it shares `data`.
pub fn decode_array<'py>(
    head: &Bound<'py, PyTuple>,
    data: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = head.py();
    objects(py)?.call_method1("decode_array", (head.get_item(0)?, head.get_item(1)?, head.get_item(2)?, data))
}

/// Makes an instance of the class that a table was opened with (`type=`).
pub fn build<'py>(
    class: &Bound<'py, PyType>,
    value: &Bound<'py, PyAny>,
    run_init: bool,
) -> PyResult<Bound<'py, PyAny>> {
    class.py().import("pellucid.instances")?.call_method1("build", (class, value, run_init))
}

/// What checks and makes instances of a class as `validate=`, `ignore_extra=` and `renames=` say.
pub fn evolving(
    class: &Bound<'_, PyType>,
    run_init: bool,
    validate: bool,
    ignore_extra: bool,
    renames: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let module = class.py().import("pellucid.evolving")?;
    let made = module.call_method1("Evolving", (class, run_init, validate, ignore_extra, renames))?;
    Ok(made.unbind())
}

/// Raises if a table cannot store instances of this class.
pub fn check_row_class(class: &Bound<'_, PyType>) -> PyResult<()> {
    class.py().import("pellucid.classes")?.call_method1("check_row_class", (class,)).map(|_| ())
}

/// Raises if one of these names is no field of a class; `what` was called.
pub fn check_fields(class: &Bound<'_, PyType>, names: Vec<&str>, what: &str) -> PyResult<()> {
    class.py().import("pellucid.classes")?.call_method1("check_fields", (class, names, what)).map(drop)
}

/// Whether a table with a class accepts a value that is not of exactly that class.
pub fn admits(class: &Bound<'_, PyType>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    class.py().import("pellucid.classes")?.call_method1("admits", (class, value))?.extract()
}

/// A function that says why an instance cannot be read back; None if every instance can.
pub fn checker(class: &Bound<'_, PyType>, run_init: bool) -> PyResult<Option<Py<PyAny>>> {
    let checker = class.py().import("pellucid.instances")?.call_method1("checker", (class, run_init))?;
    Ok((!checker.is_none()).then(|| checker.unbind()))
}
