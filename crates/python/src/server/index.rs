//! The indexes of a server's table, as far as they are bytes: the entries of rows, and the codes of
//! values that are looked for.

use pellucid_query::index::{Definition, Expressions, Keys};
use pellucid_query::server::stored_spelling;
use pellucid_record::key::split_stand_in;
use pellucid_store::{
    Derive, Derived, Deriver, IndexError, NotUnique, OverflowReader, Range, Row, StoreError,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::errors;
use crate::hot::gil::GilCell;
use crate::index::describe::IndexDescription;
use crate::index::handle::equals_in_other_family;
use crate::index::lookup::Parts;
use crate::index::pairs::value_of_parts;
use crate::server::feed::RowLarge;
use crate::server::stored;
use crate::server::table::ServerTable;
use crate::store_errors;
use crate::values::row_errors;

/// What derives the entries of rows in the indexes of a table.
#[pyclass(frozen, module = "pellucid", name = "ServerIndexes")]
pub struct ServerIndexes {
    definitions: Vec<String>,
    /// None while a row's entries are being derived: code of Python's may derive those of another.
    prepared: GilCell<Option<Vec<Prepared>>>,
}

struct Prepared {
    keys: Keys,
    derive: Box<dyn Derive>,
}

/// The code of an entry, and its spelling as the server has it.
type Entry<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// The code of a value or of a key, and its spelling as the server has it.
type CodeAndSpelling = (Vec<u8>, Option<Vec<u8>>);

fn prepare(definitions: &[String]) -> PyResult<Vec<Prepared>> {
    let prepared = |text: &String| -> Result<Prepared, String> {
        let keys = Keys::of(&Definition::parse(text)?);
        Ok(Prepared { keys, derive: Expressions.prepare(text)? })
    };
    definitions.iter().map(|text| prepared(text).map_err(errors::value_error)).collect()
}

#[pymethods]
impl ServerIndexes {
    #[new]
    fn new(definitions: Vec<String>) -> PyResult<Self> {
        let prepared = GilCell::new(Some(prepare(&definitions)?));
        Ok(Self { definitions, prepared })
    }

    /// The entries that a row has in each index, in order and each once. `large` are those of its
    /// large values that the server may not have yet.
    fn entries<'py>(
        &self,
        table: &Bound<'py, ServerTable>,
        key: &[u8],
        spelling: Option<&[u8]>,
        value: &[u8],
        large: Vec<(u64, PyBackedBytes)>,
    ) -> PyResult<Vec<Vec<Entry<'py>>>> {
        let py = table.py();
        let taken = self.prepared.with(py, Option::take);
        let mut prepared = match taken {
            Some(prepared) => prepared,
            None => prepare(&self.definitions)?,
        };
        let row = Row { key, spelling: spelling.unwrap_or_default(), record: stored::record_of(value) };
        let large = RowLarge::with(table.as_any(), key, large);
        let shapes = table.get().codec.get().dictionary();
        let overflow_reader = OverflowReader { shapes, large: &large };
        let mut all = Vec::with_capacity(prepared.len());
        let mut derived = Derived::default();
        for Prepared { keys, derive } in &mut prepared {
            derived.clear();
            if let Err(error) = derive.derive(&row, &overflow_reader, &mut derived) {
                let damaged = || row_errors::corrupt_key(py, &table.get().name_of(py), key, &error);
                return Err(large.failed(py).unwrap_or_else(damaged));
            }
            let mut entries: Vec<_> = derived.iter().collect();
            // Of entries with the same parts the first stays, as in a file.
            entries.sort_by(|one, other| one.0.cmp(other.0));
            entries.dedup_by(|one, other| one.0 == other.0);
            let entry = |(parts, spelling): (&[u8], &[u8])| {
                let spelling = stored_spelling(keys, parts, spelling);
                (PyBytes::new(py, parts), spelling.map(|spelling| PyBytes::new(py, &spelling)))
            };
            all.push(entries.into_iter().map(entry).collect());
        }
        drop(self.prepared.with(py, |place| place.replace(prepared)));
        Ok(all)
    }
}

/// An index of a server's table: its definition, and the codes of its values.
#[pyclass(frozen, module = "pellucid", name = "ServerIndexCodes")]
pub struct ServerIndexCodes {
    name: String,
    text: String,
    keys: Keys,
    branches: bool,
}

/// Codes from the first one up to, but without, the second one; None: no bound.
type Edges<'py> = (Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>);

fn edges<'py>(py: Python<'py>, range: &Range) -> Edges<'py> {
    let code = |edge: &std::ops::Bound<Vec<u8>>| match edge {
        std::ops::Bound::Included(code) | std::ops::Bound::Excluded(code) => Some(PyBytes::new(py, code)),
        std::ops::Bound::Unbounded => None,
    };
    (code(&range.start), code(&range.end))
}

impl ServerIndexCodes {
    fn parts(&self) -> Parts<'_> {
        Parts { name: &self.name, keys: &self.keys, definition: &self.text }
    }
}

#[pymethods]
impl ServerIndexCodes {
    #[new]
    fn new(name: String, text: String) -> PyResult<Self> {
        let definition = Definition::parse(&text).map_err(errors::value_error)?;
        Ok(Self { keys: Keys::of(&definition), branches: definition.branches(), name, text })
    }

    /// Whether a row may have several entries.
    #[getter]
    fn has_each(&self) -> bool {
        self.branches
    }

    /// How many parts a value has.
    #[getter]
    fn part_count(&self) -> usize {
        self.keys.count()
    }

    /// The codes of all entries that equal a value: its own, and those of the numbers of the other
    /// family.
    fn codes_of<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let own = self.parts().of(value, true)?;
        let all = own.into_iter().chain(equals_in_other_family(&self.keys, value)?);
        PyList::new(value.py(), all.map(|code| PyBytes::new(value.py(), &code)))
    }

    /// The edges of the codes from one value up to another.
    #[pyo3(signature = (start, stop))]
    fn between<'py>(
        &self,
        py: Python<'py>,
        start: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Edges<'py>> {
        Ok(edges(py, &self.parts().between(start, stop)?))
    }

    /// The edges of the codes that begin as a text does, or with these parts.
    fn prefix<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Edges<'py>> {
        Ok(edges(prefix.py(), &self.parts().prefix_range(prefix)?))
    }

    /// The value with this code and spelling.
    fn value<'py>(
        &self,
        py: Python<'py>,
        code: &[u8],
        spelling: Option<&[u8]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let spelling = spelling.and_then(|spelling| spelling.get(1..)).unwrap_or_default();
        let damaged = || errors::corrupt_record(py, format!("an entry of index {:?} is damaged", self.name));
        value_of_parts(py, &self.keys, code, split_stand_in(spelling).0)?.ok_or_else(damaged)
    }

    /// `UniqueError`: the row with this key would have the value that another one has.
    #[allow(clippy::too_many_arguments, reason = "what the message tells")]
    fn not_unique<'py>(
        &self,
        py: Python<'py>,
        table: String,
        value: CodeAndSpelling,
        row: CodeAndSpelling,
        existing: CodeAndSpelling,
        is_in_batch: bool,
        position: Option<u32>,
    ) -> Bound<'py, PyAny> {
        let ((code, spelling), (key, key_spelling), (existing, existing_spelling)) = (value, row, existing);
        let spelling = spelling.as_ref().and_then(|spelling| spelling.get(1..)).unwrap_or_default();
        let refused = NotUnique {
            table,
            index: self.name.clone(),
            definition: self.text.clone(),
            parts: code,
            parts_spelling: spelling.to_vec(),
            key,
            key_spelling: key_spelling.unwrap_or_default(),
            existing,
            existing_spelling: existing_spelling.unwrap_or_default(),
            is_in_batch,
            position,
            index_id: None,
        };
        raised(py, IndexError::NotUnique(refused))
    }

    /// The description of the index for people.
    fn described(&self, unique: bool, is_building: bool, entries: u64) -> PyResult<IndexDescription> {
        IndexDescription::of_server((&self.name, &self.text), unique, is_building, entries)
    }
}

fn raised(py: Python<'_>, error: IndexError) -> Bound<'_, PyAny> {
    store_errors::of_store(py, StoreError::Index(Box::new(error))).into_value(py).into_bound(py).into_any()
}

/// The exception for an index that is missing, is there already, or is not finished.
#[pyfunction]
#[pyo3(signature = (what, table, index, others, definition=("", false), wanted=("", false)))]
pub fn server_index_error<'py>(
    py: Python<'py>,
    what: &str,
    table: String,
    index: String,
    others: Vec<String>,
    definition: (&str, bool),
    wanted: (&str, bool),
) -> Bound<'py, PyAny> {
    let error = match what {
        "missing" => IndexError::Missing { table, index, others },
        "building" => IndexError::Building { table, index },
        _ => IndexError::Exists {
            table,
            index,
            definition: definition.0.to_owned(),
            is_unique: definition.1,
            wanted: (wanted.0.to_owned(), wanted.1),
        },
    };
    raised(py, error)
}

/// The text of the definition of an index.
#[pyfunction]
#[pyo3(signature = (name, parts, r#where))]
pub fn server_index_definition(
    name: &Bound<'_, PyAny>,
    parts: &Bound<'_, PyAny>,
    r#where: Option<&Bound<'_, PyAny>>,
) -> PyResult<(String, String)> {
    let name = crate::index::making::name_of(name)?;
    let text = crate::index::making::definition_of(&name, parts, r#where)?;
    Ok((name, text))
}
