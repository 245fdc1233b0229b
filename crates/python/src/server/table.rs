//! The native base of a server's table: its keys, and its rows as bytes.
//!
//! `pellucid.postgres.table.records.Records` derives from it, and passes on to the parts of the
//! table what needs the server. A row is fetched as a tuple of the key's code, its spelling (None
//! where it has none), the value and its version.

use std::sync::Arc;

use pellucid_query::jsonb;
use pellucid_record::key::KeyEncoder;
use pellucid_record::large_ids::large_ids;
use pellucid_record::pickles::pickle_count;
use pellucid_record::shape::ShapeDecision;
use pellucid_record::validate::validate_record;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods, PyList, PyTuple, PyType};

use crate::bounds::Bounds;
use crate::errors;
use crate::hot::gil::{GilCell, GilRc, GilValue};
use crate::server::codec::{ServerCodec, ServerValidity};
use crate::server::copying;
use crate::server::encoded::ServerEncoded;
use crate::server::fetched_key::{CodeAndSpelling, key_of_row};
use crate::server::stored;
use crate::table::typed::{Evolution, RowClass, class_of};
use crate::values::bytes::{encode_object, handle_of_row, plain_of_row};
use crate::values::encode::{self, Encoded, Target};
use crate::values::keys::{self, Key};
use crate::values::row::Row;
use crate::values::table_ref::{Sightings, TableRef};

/// The native base of a table on a server.
#[pyclass(frozen, subclass, module = "pellucid", name = "ServerTable")]
pub struct ServerTable {
    /// What encodes its values.
    pub codec: Py<ServerCodec>,
    /// The class of the returned rows, if the table was opened with one.
    pub class: Option<RowClass>,
    name: GilCell<Arc<str>>,
    number: GilValue<u32>,
    frozen: Option<&'static str>,
}

/// The counter of dicts that a table writes.
struct Counter<'a> {
    codec: &'a ServerCodec,
    table: u32,
    may_register: bool,
}

impl Sightings for Counter<'_> {
    fn decide_shape(&self, py: Python<'_>, names: &[&str], is_root: bool) -> ShapeDecision {
        self.codec.decide_shape(py, self.table, names, is_root, self.may_register)
    }
}

impl ServerTable {
    /// The table's name when it was last looked up.
    pub fn name_of(&self, py: Python<'_>) -> Arc<str> {
        self.name.with(py, |name| name.clone())
    }

    /// Whether both are handles on the same table.
    pub fn is_same_as(&self, py: Python<'_>, other: &Self) -> bool {
        self.codec.is(&other.codec) && self.name_of(py) == other.name_of(py)
    }

    /// The number by which dicts are counted.
    pub fn number(&self) -> u32 {
        self.number.get()
    }

    /// Why its rows cannot be changed; None if they can.
    pub fn why_frozen(&self) -> Option<&'static str> {
        self.frozen
    }

    /// Encodes a value; with `may_register`, its dicts may become new shapes. `is_part`: for a
    /// place in a record. `place` names it.
    ///
    /// # Errors
    /// `UnsupportedValue` and related exceptions, and what the value's own code raises.
    pub fn encoded(
        &self,
        value: &Bound<'_, PyAny>,
        may_register: bool,
        is_part: bool,
        place: impl Fn() -> String,
    ) -> PyResult<Encoded> {
        let py = value.py();
        let codec = self.codec.get();
        let counter = Counter { codec, table: self.number(), may_register };
        let target = Target::Table { table: &counter, transaction: 0, is_part };
        let manner = RowClass::manner(self.class.as_ref(), &codec.policy);
        encode_object(py, &codec.names, target, &codec.policy, manner, value, place)
    }

    /// Encodes an appended value: the only one (None), or the one with this number.
    fn encoded_appended(
        &self,
        value: &Bound<'_, PyAny>,
        number: Option<usize>,
        may_register: bool,
    ) -> PyResult<Encoded> {
        let py = value.py();
        let place = || match number {
            None => format!("the value appended to table {:?}", self.name_of(py)),
            Some(number) => format!("value {number} given to extend() of table {:?}", self.name_of(py)),
        };
        if let Some(class) = &self.class {
            class.check(value, place)?;
        }
        self.encoded(value, may_register, false, place)
    }

    fn finished<'py>(&self, py: Python<'py>, encoded: Encoded) -> PyResult<Bound<'py, PyAny>> {
        if !encoded.pending.is_empty() || !encoded.overflow.is_empty() {
            let encoded = ServerEncoded::new(py, self.codec.clone_ref(py), encoded);
            return Ok(Bound::new(py, encoded)?.into_any());
        }
        let shape_count = self.codec.get().dictionary().len();
        let value = PyBytes::new(py, &stored::value_of(shape_count, encoded.encoder.bytes()));
        encode::recycle(py, encoded.encoder);
        Ok(value.into_any())
    }

    fn row<'py>(slf: &Bound<'py, Self>, fetched: &Fetched<'py>, validity: &ServerValidity) -> GilRc<Row> {
        let this = slf.get();
        let row = Row::fetched(
            &fetched.value,
            stored::HEAD_SIZE,
            &fetched.key,
            fetched.edition,
            this.codec.get().names.clone(),
            validity.validity.clone(),
            TableRef::new(slf),
            this.frozen,
        );
        let spelling = fetched.spelling.as_ref().map(PyBytesMethods::as_bytes);
        GilRc::new(row.spelled(slf.py(), spelling.unwrap_or_default()))
    }

    fn object<'py>(
        slf: &Bound<'py, Self>,
        fetched: &Fetched<'py>,
        validity: &ServerValidity,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let row = Self::row(slf, fetched, validity);
        match &slf.get().class {
            None => handle_of_row(py, row),
            Some(class) => class.instance(py, &row),
        }
    }

    /// The value of a fetched row.
    ///
    /// # Errors
    /// The row has other columns; and what building an instance raises.
    pub fn value_of<'py>(
        slf: &Bound<'py, Self>,
        row: &Bound<'py, PyAny>,
        validity: &ServerValidity,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::object(slf, &Fetched::new(row)?, validity)
    }

    fn stored_key<'py>(py: Python<'py>, key: &Key) -> CodeAndSpelling<'py> {
        let spelling = (!key.spelling.is_empty()).then(|| PyBytes::new(py, &key.spelling));
        (PyBytes::new(py, &key.bytes), spelling)
    }
}

/// One fetched row.
struct Fetched<'py> {
    key: Bound<'py, PyBytes>,
    spelling: Option<Bound<'py, PyBytes>>,
    value: Bound<'py, PyBytes>,
    edition: i64,
}

impl<'py> Fetched<'py> {
    /// The columns of a tuple that a driver has made.
    fn new(row: &Bound<'py, PyAny>) -> PyResult<Self> {
        let row = row.cast::<PyTuple>().map_err(PyErr::from)?;
        let (key, spelling) = key_of_row(row)?;
        Ok(Self {
            key,
            spelling,
            value: row.get_item(2)?.cast_into::<PyBytes>()?,
            edition: row.get_item(3)?.extract()?,
        })
    }

    fn key_object(&self) -> PyResult<Bound<'py, PyAny>> {
        let spelling = self.spelling.as_ref().map(PyBytesMethods::as_bytes);
        keys::object_of(self.key.py(), self.key.as_bytes(), spelling.unwrap_or_default())
    }
}

#[pymethods]
impl ServerTable {
    #[new]
    #[pyo3(signature = (codec, name, number, why_frozen=None, *, r#type=None, run_init=false, fast=false, validate=false, ignore_extra=false, renames=None))]
    #[allow(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "what a table is opened with"
    )]
    fn new(
        codec: Py<ServerCodec>,
        name: &str,
        number: u32,
        why_frozen: Option<&str>,
        r#type: Option<&Bound<'_, PyAny>>,
        run_init: bool,
        fast: bool,
        validate: bool,
        ignore_extra: bool,
        renames: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let frozen = match why_frozen {
            None => None,
            Some("snapshot") => Some(SNAPSHOT),
            Some(_) => Some(READ_ONLY),
        };
        let class = class_of(r#type, run_init, fast, &Evolution { validate, ignore_extra, renames })?;
        let (name, number) = (GilCell::new(Arc::from(name)), GilValue::new(number));
        Ok(Self { codec, class, name, number, frozen })
    }

    /// The table's name when this handle looked it up last.
    #[getter]
    fn name(&self, py: Python<'_>) -> String {
        self.name_of(py).to_string()
    }

    /// Sets what the server says of the table.
    fn set_name(&self, py: Python<'_>, name: &str, number: u32) {
        let name = Arc::from(name);
        drop(self.name.with(py, |old| std::mem::replace(old, name)));
        self.number.set(number);
    }

    /// The class that the table was opened with.
    #[getter]
    fn row_class(&self, py: Python<'_>) -> Option<Py<PyType>> {
        self.class.as_ref().map(|class| class.python.clone_ref(py))
    }

    /// Raises `WrongClass` if a write would refuse an instance that was read under this key.
    fn check_conforms(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        let place = || {
            let key = key.repr().map(|text| text.to_string()).unwrap_or_default();
            format!("record {key} of table {:?}", self.name_of(py))
        };
        self.class.as_ref().map_or(Ok(()), |class| class.conforms(value, place))
    }

    /// The code and the spelling of a key; raises `UnsupportedKey`.
    fn encode_key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<CodeAndSpelling<'py>> {
        let py = key.py();
        let stored = keys::try_key_of(key).map_err(|refusal| refusal.raised(&self.name_of(py), key))?;
        let pair = Self::stored_key(py, &stored);
        keys::recycle(py, stored);
        Ok(pair)
    }

    /// The codes between which the rows of a range lie, the second one excluded; None: open.
    #[pyo3(signature = (start, stop, prefix))]
    fn bounds<'py>(
        &self,
        py: Python<'py>,
        start: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyAny>>,
        prefix: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<[Option<Bound<'py, PyBytes>>; 2]> {
        let range = Bounds::new(&self.name_of(py), start, stop, prefix, false)?.range;
        let code = |edge: &std::ops::Bound<Vec<u8>>| match edge {
            std::ops::Bound::Included(code) | std::ops::Bound::Excluded(code) => Some(PyBytes::new(py, code)),
            std::ops::Bound::Unbounded => None,
        };
        Ok([code(&range.start), code(&range.end)])
    }

    /// Encodes the value for a key: the bytes to store, or a `ServerEncoded` that still needs ids.
    #[pyo3(signature = (key, value, may_register=true))]
    fn encode<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        may_register: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        let place = || {
            let key = key.repr().map(|text| text.to_string()).unwrap_or_default();
            format!("the value for key {key} of table {:?}", self.name_of(py))
        };
        if let Some(class) = &self.class {
            class.check(value, place)?;
        }
        self.finished(py, self.encoded(value, may_register, false, place)?)
    }

    /// Encodes an appended value: the only one (None), or the one with this number.
    #[pyo3(signature = (value, number=None, may_register=true))]
    fn encode_appended<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        number: Option<usize>,
        may_register: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let encoded = self.encoded_appended(value, number, may_register)?;
        self.finished(value.py(), encoded)
    }

    /// How many values of fetched rows were stored as pickles.
    #[pyo3(signature = (rows, /))]
    fn pickle_count(&self, rows: &Bound<'_, PyList>) -> PyResult<u64> {
        let names = &*self.codec.get().names;
        let mut count = 0;
        for row in rows {
            let value = row.cast::<PyTuple>().map_err(PyErr::from)?.get_item(2)?.cast_into::<PyBytes>()?;
            // `check` reports damaged records.
            count += pickle_count(stored::record_of(value.as_bytes()), names).unwrap_or(0);
        }
        Ok(count)
    }

    /// What is wrong with fetched rows: for each damaged one, its key's code and what it is.
    #[pyo3(signature = (rows, /))]
    fn faults<'py>(&self, rows: &Bound<'py, PyList>) -> PyResult<Vec<(Bound<'py, PyBytes>, String)>> {
        let names = &*self.codec.get().names;
        let mut faults = Vec::new();
        for row in rows {
            let row = row.cast::<PyTuple>().map_err(PyErr::from)?;
            let key = row.get_item(0)?.cast_into::<PyBytes>()?;
            let value = row.get_item(2)?.cast_into::<PyBytes>()?;
            let fault = match key_of_row(row) {
                Err(error) => Some(error.to_string()),
                Ok((code, spelling)) => {
                    let spelling = spelling.as_ref().map(PyBytesMethods::as_bytes);
                    keys::object_of(row.py(), code.as_bytes(), spelling.unwrap_or_default())
                        .err()
                        .map(|error| error.to_string())
                }
            };
            let record = stored::record_of(value.as_bytes());
            let fault = fault.or_else(|| validate_record(record, names).err().map(|error| error.to_string()));
            if let Some(fault) = fault {
                faults.push((key, fault));
            }
        }
        Ok(faults)
    }

    /// The ids of the large values that stored bytes refer to.
    #[pyo3(signature = (value, /))]
    fn overflow_ids(&self, py: Python<'_>, value: &Bound<'_, PyBytes>) -> PyResult<Vec<i64>> {
        let ids = large_ids(stored::record_of(value.as_bytes()), &*self.codec.get().names);
        let ids = ids.map_err(|error| errors::corrupt_record(py, error.to_string()))?;
        Ok(ids.into_iter().map(u64::cast_signed).collect())
    }

    /// A stored value as JSON for the column `value` of a table with `queryable=True`; None if it
    /// has none.
    #[pyo3(signature = (value, /))]
    fn json<'py>(&self, py: Python<'py>, value: &[u8]) -> Option<Bound<'py, PyBytes>> {
        let text = jsonb::of_record(stored::record_of(value), self.codec.get().dictionary())?;
        Some(PyBytes::new(py, text.as_bytes()))
    }

    /// Encodes values from position `start` on as rows of COPY under these numbers, and returns the
    /// rows and the position of the first value that is not in them: it needs ids, or the rows are
    /// as large as `size_max`. The first value is number `count` of its call, for messages.
    #[pyo3(signature = (values, start, numbers, count, size_max, /))]
    fn encode_copy<'py>(
        &self,
        values: &Bound<'py, PyList>,
        start: usize,
        numbers: Vec<i64>,
        count: usize,
        size_max: usize,
    ) -> PyResult<(Bound<'py, PyBytes>, usize)> {
        let py = values.py();
        let (mut out, mut key, mut position) = (Vec::new(), KeyEncoder::new(), start);
        for number in numbers {
            if position >= values.len() || out.len() >= size_max {
                break;
            }
            let value = values.get_item(position)?;
            let encoded = self.encoded_appended(&value, Some(count + position), true)?;
            if !encoded.pending.is_empty() || !encoded.overflow.is_empty() {
                break;
            }
            key.clear();
            key.int(number);
            let shape_count = self.codec.get().dictionary().len();
            copying::push_row(&mut out, key.as_bytes(), shape_count, encoded.encoder.bytes())?;
            encode::recycle(py, encoded.encoder);
            position += 1;
        }
        Ok((PyBytes::new(py, &out), position))
    }

    /// The value of a fetched row.
    #[pyo3(signature = (row, validity, /))]
    fn value<'py>(
        slf: &Bound<'py, Self>,
        row: &Bound<'py, PyAny>,
        validity: &Bound<'py, ServerValidity>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::value_of(slf, row, validity.get())
    }

    /// The value of a fetched row that is there no more: plain objects, or an instance.
    #[pyo3(signature = (row, validity, /))]
    fn last_value<'py>(
        slf: &Bound<'py, Self>,
        row: &Bound<'py, PyAny>,
        validity: &Bound<'py, ServerValidity>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let fetched = Fetched::new(row)?;
        if slf.get().class.is_some() {
            return Self::object(slf, &fetched, validity.get());
        }
        let row = Self::row(slf, &fetched, validity.get());
        plain_of_row(slf.py(), &row)
    }

    /// The values of fetched rows.
    #[pyo3(signature = (rows, validity, /))]
    fn values<'py>(
        slf: &Bound<'py, Self>,
        rows: &Bound<'py, PyList>,
        validity: &Bound<'py, ServerValidity>,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut values = Vec::with_capacity(rows.len());
        for row in rows {
            values.push(Self::object(slf, &Fetched::new(&row)?, validity.get())?);
        }
        PyList::new(slf.py(), values)
    }

    /// The keys and values of fetched rows.
    #[pyo3(signature = (rows, validity, /))]
    fn items<'py>(
        slf: &Bound<'py, Self>,
        rows: &Bound<'py, PyList>,
        validity: &Bound<'py, ServerValidity>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let mut items = Vec::with_capacity(rows.len());
        for row in rows {
            let fetched = Fetched::new(&row)?;
            let value = Self::object(slf, &fetched, validity.get())?;
            items.push(PyTuple::new(py, [fetched.key_object()?, value])?);
        }
        PyList::new(py, items)
    }
}

const SNAPSHOT: &str = "this belongs to a snapshot, which does not change; write through the database";
const READ_ONLY: &str = "the database was opened with mode=\"r\"; open it with \"w\" or \"c\" to write";
