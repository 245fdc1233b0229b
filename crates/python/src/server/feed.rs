//! Feeds work with the rows that a server sends, a page at a time.
//!
//! The pages come from an object of Python's, `pellucid.postgres.query.reader.ServerReader`, which
//! has the connection. A page keeps the driver's objects, and its rows are read in place.

use std::sync::OnceLock;

use pellucid_query::sort::SortedKeys;
use pellucid_query::{Fault, Page, PagedRows, Pages};
use pellucid_record::Dictionary;
use pellucid_store::{Large, Row, StoreError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::hot::callbacks;
use crate::server::codec::ServerCodec;
use crate::server::fetched_key::key_of_row;
use crate::server::held::Held;
use crate::server::stored;
use crate::store_errors;

/// Keys that one statement looks up.
const LOOKED_UP_COUNT: usize = 1000;

/// Rows of a server's table.
pub struct RemoteRows {
    /// The rows.
    pub rows: PagedRows<PageReader>,
    /// The large values of these rows.
    pub large: RemoteOverflow,
    codec: Py<ServerCodec>,
}

impl RemoteRows {
    /// The rows that `reading` brings, of a table with this codec.
    pub fn new(py: Python<'_>, fetching: PageReader, codec: Py<ServerCodec>) -> Self {
        let large = RemoteOverflow::new(&fetching, py);
        Self { rows: PagedRows::new(fetching), large, codec }
    }

    /// The rows, their large values and their shapes.
    pub fn parts(&mut self) -> (&mut PagedRows<PageReader>, &RemoteOverflow, &Dictionary) {
        (&mut self.rows, &self.large, self.codec.get().dictionary())
    }
}

/// Where pages come from.
pub struct PageReader {
    reading: Py<PyAny>,
    /// The keys whose rows are looked up; None: the rows of the statement that was begun.
    keys: Option<SortedKeys>,
    /// The code of the key that the rows come after.
    after: Option<Vec<u8>>,
}

impl PageReader {
    /// The pages of the statement that `reading` has begun, without rows up to the key `after`.
    pub fn begun(reading: &Bound<'_, PyAny>, after: Option<Vec<u8>>) -> Self {
        Self { reading: reading.clone().unbind(), keys: None, after }
    }

    /// The rows under these keys, in their order.
    pub fn of_keys(reading: &Bound<'_, PyAny>, keys: SortedKeys) -> Self {
        Self { reading: reading.clone().unbind(), keys: Some(keys), after: None }
    }

    /// Whether `check` may raise between two rows.
    ///
    /// # Errors
    /// What code of Python's raises.
    pub fn is_checked(&self, py: Python<'_>) -> PyResult<bool> {
        self.reading.bind(py).call_method0("is_checked")?.extract()
    }

    /// Raises if the transaction or the snapshot of the rows has ended.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.reading.bind(py).call_method0("check").map(|_| ())
    }

    /// The next page as the driver has made it; None at the end.
    ///
    /// # Errors
    /// What the server raises.
    pub fn next_list<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        callbacks::check_signals(py)?;
        let reading = self.reading.bind(py);
        let page = match &mut self.keys {
            None => reading.call_method0("page")?,
            Some(keys) => {
                let mut codes = Vec::new();
                for key in keys.take(LOOKED_UP_COUNT) {
                    let key = key.map_err(|error| store_errors::of_store(py, error))?;
                    codes.push(PyBytes::new(py, &key.code));
                }
                if codes.is_empty() {
                    reading.call_method0("end")?;
                    return Ok(None);
                }
                reading.call_method1("named", (codes,))?
            }
        };
        let Some(page) = page.extract::<Option<Bound<'py, PyList>>>()? else { return Ok(None) };
        let Some(after) = &self.after else { return Ok(Some(page)) };
        // The server may have sent some more: of a long code it has only the begin.
        let behind = PyList::empty(py);
        for row in page {
            if key_of_row(row.cast::<PyTuple>()?)?.0.as_bytes() > &**after {
                behind.append(row)?;
            }
        }
        Ok(Some(behind))
    }
}

impl Pages for PageReader {
    type Page = RemotePage;

    fn next(&mut self, last: Option<RemotePage>) -> Result<Option<RemotePage>, Fault> {
        Python::attach(|py| {
            // Released where the GIL is held: elsewhere, each object waits in a list until it is.
            drop(last);
            self.next_list(py)?.map(|page| RemotePage::new(&page)).transpose()
        })
        .map_err(|error: PyErr| Fault::Source(Box::new(error)))
    }
}

/// The rows of a page.
pub struct RemotePage {
    rows: Vec<RemoteRow>,
}

struct RemoteRow {
    key: PyBackedBytes,
    spelling: Option<PyBackedBytes>,
    value: PyBackedBytes,
}

impl RemotePage {
    fn new(page: &Bound<'_, PyList>) -> PyResult<Self> {
        let mut rows = Vec::with_capacity(page.len());
        for row in page {
            let row = row.cast::<PyTuple>()?;
            let (key, spelling) = key_of_row(row)?;
            let value = row.get_item(2)?.cast_into::<PyBytes>()?;
            let spelling = spelling.map(PyBackedBytes::from);
            rows.push(RemoteRow { key: key.into(), spelling, value: value.into() });
        }
        Ok(Self { rows })
    }
}

impl Page for RemotePage {
    #[inline]
    fn row(&self, place: usize) -> Option<Row<'_>> {
        let row = self.rows.get(place)?;
        let spelling = row.spelling.as_deref().unwrap_or_default();
        Some(Row { key: &row.key, spelling, record: stored::record_of(&row.value) })
    }
}

/// The large values of one row.
pub struct RowLarge {
    large: RemoteOverflow,
}

impl RowLarge {
    /// Those of the row with this key.
    pub fn new(table: &Bound<'_, PyAny>, key: &[u8]) -> Self {
        let key = PyBytes::new(table.py(), key).unbind();
        Self { large: RemoteOverflow::of(From::Row(table.clone().unbind(), key)) }
    }

    /// The same, of which the server may not have some yet.
    pub fn with(table: &Bound<'_, PyAny>, key: &[u8], some: Vec<(u64, PyBackedBytes)>) -> Self {
        let this = Self::new(table, key);
        for (id, bytes) in some {
            this.large.held.add(id, bytes);
        }
        this
    }

    /// As [`RemoteOverflow::failed`].
    pub fn failed(&self, py: Python<'_>) -> Option<PyErr> {
        self.large.failed(py)
    }
}

impl Large for RowLarge {
    fn large(&self, id: u64) -> Result<&[u8], StoreError> {
        self.large.large(id)
    }
}

/// Where large values come from.
enum From {
    /// The rows of the page that was read last.
    Page(Py<PyAny>),
    /// The row with this key.
    Row(Py<PyAny>, Py<PyBytes>),
}

/// The large values of paged rows. Those that were asked for stay in memory until the work is done:
/// what it computes may refer to them.
pub struct RemoteOverflow {
    from: From,
    held: Held<PyBackedBytes>,
    failure: OnceLock<PyErr>,
}

impl RemoteOverflow {
    /// The large values of these rows.
    pub fn new(fetching: &PageReader, py: Python<'_>) -> Self {
        Self::of(From::Page(fetching.reading.clone_ref(py)))
    }

    fn of(from: From) -> Self {
        Self { from, held: Held::default(), failure: OnceLock::new() }
    }

    /// Why a large value could not be fetched, if the server or the connection has failed.
    pub fn failed(&self, py: Python<'_>) -> Option<PyErr> {
        self.failure.get().map(|error| error.clone_ref(py))
    }
}

impl Large for RemoteOverflow {
    fn large(&self, id: u64) -> Result<&[u8], StoreError> {
        if let Some(bytes) = self.held.get(id) {
            return Ok(bytes);
        }
        let bytes = Python::attach(|py| -> PyResult<Option<PyBackedBytes>> {
            callbacks::code_may_run(py);
            let id = id.cast_signed();
            let found = match &self.from {
                From::Page(reading) => reading.bind(py).call_method1("large", (id,))?,
                From::Row(table, key) => table.bind(py).call_method1("overflow_value", (key, id))?,
            };
            found.extract().map_err(PyErr::from)
        });
        let bytes = bytes.unwrap_or_else(|error| {
            // The record is taken to be damaged then; `failed` tells why.
            let _ = self.failure.set(error);
            None
        });
        let bytes = bytes.ok_or(StoreError::NoSuchBlob { id })?;
        Ok(self.held.add(id, bytes))
    }
}
