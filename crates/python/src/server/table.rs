//! The native base of a server's table: its keys, and its rows as bytes.
//!
//! `pellucid.postgres.Table` derives from it and adds the SQL. A row is fetched as a tuple of the
//! key's code, its spelling (None where it has none), the value and its version.

use std::sync::Arc;

use pellucid_query::jsonb;
use pellucid_query::server::distribution_of;
use pellucid_record::key::KeyEncoder;
use pellucid_record::large_ids::large_ids;
use pellucid_record::pickles::pickle_count;
use pellucid_record::shape::Sighting;
use pellucid_record::validate::validate_record;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods, PyList, PyTuple};

use crate::bounds::Bounds;
use crate::errors;
use crate::hot::gil::{GilCell, GilRc, GilValue};
use crate::server::codec::{ServerCodec, ServerGate};
use crate::server::copying;
use crate::server::encoded::ServerEncoded;
use crate::server::fetched_key::{CodeAndSpelling, LONG_KEY_SIZE, key_of_row};
use crate::server::stored;
use crate::server::view::view_of;
use crate::table::typed::{RowClass, class_of};
use crate::values::bytes::{encode_object, handle_of_row, plain_of_row};
use crate::values::encode::{self, Encoded, Target};
use crate::values::home::{Home, Sightings};
use crate::values::keys::{self, Key};
use crate::values::row::Row;

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
    may_admit: bool,
}

impl Sightings for Counter<'_> {
    fn sight(&self, py: Python<'_>, names: &[&str], is_root: bool) -> Sighting {
        self.codec.sight(py, self.table, names, is_root, self.may_admit)
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

    /// Encodes a value; with `may_admit`, its dicts may become new shapes. `is_part`: for a place
    /// in a record. `place` names it.
    ///
    /// # Errors
    /// `UnsupportedValue` and related exceptions, and what the value's own code raises.
    pub fn encoded(
        &self,
        value: &Bound<'_, PyAny>,
        may_admit: bool,
        is_part: bool,
        place: impl Fn() -> String,
    ) -> PyResult<Encoded> {
        let py = value.py();
        let codec = self.codec.get();
        let counter = Counter { codec, table: self.number(), may_admit };
        let target = Target::Table { table: &counter, transaction: 0, is_part };
        let manner = RowClass::manner(self.class.as_ref(), &codec.policy);
        encode_object(py, &codec.names, target, &codec.policy, manner, value, place)
    }

    /// Encodes an appended value: the only one (None), or the one with this number.
    fn encoded_appended(
        &self,
        value: &Bound<'_, PyAny>,
        number: Option<usize>,
        may_admit: bool,
    ) -> PyResult<Encoded> {
        let py = value.py();
        let place = || match number {
            None => format!("the value appended to table {:?}", self.name_of(py)),
            Some(number) => format!("value {number} given to extend() of table {:?}", self.name_of(py)),
        };
        if let Some(class) = &self.class {
            class.check(value, place)?;
        }
        self.encoded(value, may_admit, false, place)
    }

    fn finished<'py>(&self, py: Python<'py>, encoded: Encoded) -> PyResult<Bound<'py, PyAny>> {
        if !encoded.pending.is_empty() || !encoded.apart.is_empty() {
            let encoded = ServerEncoded::new(py, self.codec.clone_ref(py), encoded);
            return Ok(Bound::new(py, encoded)?.into_any());
        }
        let shape_count = self.codec.get().dictionary().len();
        let value = PyBytes::new(py, &stored::value_of(shape_count, encoded.encoder.bytes()));
        encode::recycle(py, encoded.encoder);
        Ok(value.into_any())
    }

    fn row<'py>(slf: &Bound<'py, Self>, fetched: &Fetched<'py>, gate: &ServerGate) -> GilRc<Row> {
        let this = slf.get();
        let row = Row::fetched(
            &fetched.value,
            stored::HEAD_SIZE,
            &fetched.key,
            fetched.edition,
            this.codec.get().names.clone(),
            gate.gate.clone(),
            Home::new(slf),
            this.frozen,
        );
        let spelling = fetched.spelling.as_ref().map(PyBytesMethods::as_bytes);
        GilRc::new(row.spelled(slf.py(), spelling.unwrap_or_default()))
    }

    fn object<'py>(
        slf: &Bound<'py, Self>,
        fetched: &Fetched<'py>,
        gate: &ServerGate,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let row = Self::row(slf, fetched, gate);
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
        gate: &ServerGate,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::object(slf, &Fetched::new(row)?, gate)
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
    #[pyo3(signature = (codec, name, number, why_frozen=None, *, r#type=None, run_init=false, fast=false))]
    #[allow(clippy::too_many_arguments, reason = "what a table is opened with")]
    fn new(
        codec: Py<ServerCodec>,
        name: &str,
        number: u32,
        why_frozen: Option<&str>,
        r#type: Option<&Bound<'_, PyAny>>,
        run_init: bool,
        fast: bool,
    ) -> PyResult<Self> {
        let frozen = match why_frozen {
            None => None,
            Some("snapshot") => Some(SNAPSHOT),
            Some(_) => Some(READ_ONLY),
        };
        let class = class_of(r#type, run_init, fast)?;
        let (name, number) = (GilCell::new(Arc::from(name)), GilValue::new(number));
        Ok(Self { codec, class, name, number, frozen })
    }

    /// The table's name when this handle looked it up last.
    #[getter]
    fn name(&self, py: Python<'_>) -> String {
        self.name_of(py).to_string()
    }

    /// Sets what the server says of the table.
    fn _set_standing(&self, py: Python<'_>, name: &str, number: u32) {
        let name = Arc::from(name);
        drop(self.name.with(py, |old| std::mem::replace(old, name)));
        self.number.set(number);
    }

    /// Whether the table was opened with a class.
    #[getter]
    fn _is_typed(&self) -> bool {
        self.class.is_some()
    }

    /// The code and the spelling of a key; raises `UnsupportedKey`.
    fn _key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<CodeAndSpelling<'py>> {
        let py = key.py();
        let stored = keys::try_key_of(key).map_err(|refusal| refusal.raised(&self.name_of(py), key))?;
        let pair = Self::stored_key(py, &stored);
        keys::recycle(py, stored);
        Ok(pair)
    }

    /// The code of a key; None for an object that cannot be one, so that no row has it.
    #[staticmethod]
    #[pyo3(signature = (key, /))]
    fn _code<'py>(key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = key.py();
        match keys::try_key_of(key) {
            Ok(stored) => {
                let code = PyBytes::new(py, &stored.bytes);
                keys::recycle(py, stored);
                Ok(Some(code))
            }
            Err(keys::Refusal::Unsupported { .. }) => Ok(None),
            Err(keys::Refusal::Raised(error)) => Err(error),
        }
    }

    /// The key with this code and spelling.
    #[staticmethod]
    #[pyo3(signature = (code, spelling=None))]
    fn _key_object<'py>(
        py: Python<'py>,
        code: &[u8],
        spelling: Option<&[u8]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        keys::object_of(py, code, spelling.unwrap_or_default())
    }

    /// The codes between which the rows of a range lie, the second one excluded; None: open.
    #[pyo3(signature = (start, stop, prefix))]
    fn _bounds<'py>(
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
    #[pyo3(signature = (key, value, may_admit=true))]
    fn _encode<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        may_admit: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        let place = || {
            let key = key.repr().map(|text| text.to_string()).unwrap_or_default();
            format!("the value for key {key} of table {:?}", self.name_of(py))
        };
        if let Some(class) = &self.class {
            class.check(value, place)?;
        }
        self.finished(py, self.encoded(value, may_admit, false, place)?)
    }

    /// Encodes an appended value: the only one (None), or the one with this number.
    #[pyo3(signature = (value, number=None, may_admit=true))]
    fn _encode_appended<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        number: Option<usize>,
        may_admit: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let encoded = self.encoded_appended(value, number, may_admit)?;
        self.finished(value.py(), encoded)
    }

    /// The greatest number of shapes that a fetched row needs, and whether a row has a long key.
    #[staticmethod]
    #[pyo3(signature = (rows, /))]
    fn _surveyed(rows: &Bound<'_, PyList>) -> PyResult<(u32, bool)> {
        let (mut greatest, mut has_long) = (0, false);
        for row in rows {
            let row = row.cast::<PyTuple>().map_err(PyErr::from)?;
            let value = row.get_item(2)?;
            // Reading a value that is too short raises.
            greatest = greatest.max(stored::shape_count(value.cast::<PyBytes>()?.as_bytes()).unwrap_or(0));
            has_long |= row.get_item(0)?.cast::<PyBytes>()?.as_bytes().len() == LONG_KEY_SIZE;
        }
        Ok((greatest, has_long))
    }

    /// How many values of fetched rows were stored as pickles.
    #[pyo3(signature = (rows, /))]
    fn _pickle_count(&self, rows: &Bound<'_, PyList>) -> PyResult<u64> {
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
    fn _faults<'py>(&self, rows: &Bound<'py, PyList>) -> PyResult<Vec<(Bound<'py, PyBytes>, String)>> {
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

    /// The whole code of a fetched row's key.
    #[staticmethod]
    #[pyo3(signature = (row, /))]
    fn _whole_code<'py>(row: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(key_of_row(row)?.0)
    }

    /// The ids of the large values that stored bytes refer to.
    #[pyo3(signature = (value, /))]
    fn _large_ids_of(&self, py: Python<'_>, value: &Bound<'_, PyBytes>) -> PyResult<Vec<i64>> {
        let ids = large_ids(stored::record_of(value.as_bytes()), &*self.codec.get().names);
        let ids = ids.map_err(|error| errors::corrupt_record(py, error.to_string()))?;
        Ok(ids.into_iter().map(u64::cast_signed).collect())
    }

    /// A stored value as JSON for the column `value` of a table with `queryable=True`; None if it
    /// has none.
    #[pyo3(signature = (value, /))]
    fn _json<'py>(&self, py: Python<'py>, value: &[u8]) -> Option<Bound<'py, PyBytes>> {
        let text = jsonb::of_record(stored::record_of(value), self.codec.get().dictionary())?;
        Some(PyBytes::new(py, text.as_bytes()))
    }

    /// A key as JSON for the column `key` of such a table.
    #[staticmethod]
    #[pyo3(signature = (code, spelling, /))]
    fn _json_key<'py>(py: Python<'py>, code: &[u8], spelling: Option<&[u8]>) -> Option<Bound<'py, PyBytes>> {
        let text = jsonb::of_key(code, spelling.unwrap_or_default())?;
        Some(PyBytes::new(py, text.as_bytes()))
    }

    /// What the row with this stored key is distributed by: the first `count` parts of the key.
    /// None for a key that has fewer.
    #[staticmethod]
    #[pyo3(signature = (stored_key, count, /))]
    fn _distribution<'py>(py: Python<'py>, stored_key: &[u8], count: usize) -> Option<Bound<'py, PyBytes>> {
        Some(PyBytes::new(py, distribution_of(stored_key, count)?))
    }

    /// Rows in the binary form of PostgreSQL's COPY; each is a tuple of bytes, bools and None.
    #[staticmethod]
    #[pyo3(signature = (rows, /))]
    fn _copy_rows<'py>(rows: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::new();
        for row in rows {
            let row = row.cast::<PyTuple>().map_err(PyErr::from)?;
            out.extend_from_slice(&(row.len() as u16).to_be_bytes());
            for field in row {
                copying::push_field(&mut out, &field)?;
            }
        }
        Ok(PyBytes::new(rows.py(), &out))
    }

    /// A list of bytes and None as PostgreSQL's array of bytea, in its binary form.
    #[staticmethod]
    #[pyo3(signature = (elements, /))]
    fn _array<'py>(elements: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
        copying::array_of(elements)
    }

    /// Encodes values from position `start` on as rows of COPY under these numbers, and returns the
    /// rows and the position of the first value that is not in them: it needs ids, or the rows are
    /// as large as `size_max`. The first value is number `count` of its call, for messages.
    #[pyo3(signature = (values, start, numbers, count, size_max, /))]
    fn _copy_values<'py>(
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
            if !encoded.pending.is_empty() || !encoded.apart.is_empty() {
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

    /// A view of a range, as "keys", "values" or "items".
    fn _view<'py>(
        slf: &Bound<'py, Self>,
        shows: &str,
        range: &Bound<'py, PyAny>,
        reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        view_of(slf.as_any(), shows, range, reverse)
    }

    /// The value of a fetched row.
    #[pyo3(signature = (row, gate, /))]
    fn _value<'py>(
        slf: &Bound<'py, Self>,
        row: &Bound<'py, PyAny>,
        gate: &Bound<'py, ServerGate>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::value_of(slf, row, gate.get())
    }

    /// The value of a fetched row that is there no more: plain objects, or an instance.
    #[pyo3(signature = (row, gate, /))]
    fn _last_value<'py>(
        slf: &Bound<'py, Self>,
        row: &Bound<'py, PyAny>,
        gate: &Bound<'py, ServerGate>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let fetched = Fetched::new(row)?;
        if slf.get().class.is_some() {
            return Self::object(slf, &fetched, gate.get());
        }
        let row = Self::row(slf, &fetched, gate.get());
        plain_of_row(slf.py(), &row)
    }

    /// The keys of fetched rows.
    #[staticmethod]
    #[pyo3(signature = (rows, /))]
    fn _keys<'py>(py: Python<'py>, rows: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            let (code, spelling) = key_of_row(row.cast::<PyTuple>().map_err(PyErr::from)?)?;
            let spelling = spelling.as_ref().map(PyBytesMethods::as_bytes);
            keys.push(keys::object_of(py, code.as_bytes(), spelling.unwrap_or_default())?);
        }
        PyList::new(py, keys)
    }

    /// The values of fetched rows.
    #[pyo3(signature = (rows, gate, /))]
    fn _values<'py>(
        slf: &Bound<'py, Self>,
        rows: &Bound<'py, PyList>,
        gate: &Bound<'py, ServerGate>,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut values = Vec::with_capacity(rows.len());
        for row in rows {
            values.push(Self::object(slf, &Fetched::new(&row)?, gate.get())?);
        }
        PyList::new(slf.py(), values)
    }

    /// The keys and values of fetched rows.
    #[pyo3(signature = (rows, gate, /))]
    fn _items<'py>(
        slf: &Bound<'py, Self>,
        rows: &Bound<'py, PyList>,
        gate: &Bound<'py, ServerGate>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let mut items = Vec::with_capacity(rows.len());
        for row in rows {
            let fetched = Fetched::new(&row)?;
            let value = Self::object(slf, &fetched, gate.get())?;
            items.push(PyTuple::new(py, [fetched.key_object()?, value])?);
        }
        PyList::new(py, items)
    }
}

const SNAPSHOT: &str = "this belongs to a snapshot, which does not change; write through the database";
const READ_ONLY: &str = "the database was opened with mode=\"r\"; open it with \"w\" or \"c\" to write";
