//! Gives classes the methods that show what is in them; `pellucid.look` implements them.
//!
//! `table.head()` calls the function `head` of `pellucid.look.verbs`, with the table as its first
//! argument. That module is imported at the first call, because `import pellucid` has to be fast.
//! Tables on a server have the same functions.

use pellucid_query::survey::Survey;
use pellucid_query::survey::figures::GatherFigures;
use pellucid_query::{Expression, Outcome};
use pellucid_record::Value;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::column;
use crate::database::Database;
use crate::hot::{callbacks, metaclass};
use crate::query::group::{self, Groups};
use crate::query::handle::Query;
use crate::snapshot::SnapshotHandle;
use crate::table::handle::Table;
use crate::table::wrong_names::{self, Kind};
use crate::values::handles::RecordList;
use crate::work::threads::over_parts;
use crate::work::walks::{Queried, Walked};

/// What tables have. Databases and snapshots have all but the last two from their default table.
const OF_TABLES: &str =
    "head tail sample fields describe value_counts _ipython_key_completions_ _repr_html_ __dir__";
const OF_DATABASES: &str = "_repr_html_ __dir__";
const OF_QUERIES: &str = "_repr_html_";

/// The descriptor of a function of `pellucid.look.verbs` that is a method.
#[pyclass(frozen, module = "pellucid", name = "LookMethod")]
pub struct LookMethod {
    name: Py<PyString>,
}

#[pymethods]
impl LookMethod {
    fn __get__<'py>(
        &self,
        py: Python<'py>,
        owner: Option<&Bound<'py, PyAny>>,
        _class: Option<&Bound<'py, PyType>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        callbacks::code_may_run(py);
        let function = py.import("pellucid.look.verbs")?.getattr(&self.name)?;
        match owner {
            None => Ok(function),
            Some(owner) => function.call_method1("__get__", (owner,)),
        }
    }
}

/// The text of `repr` for a table: `head`, and its first rows below.
///
/// # Errors
/// What reading the rows raises.
pub fn shown(table: &Bound<'_, Table>, head: String) -> PyResult<String> {
    let py = table.py();
    callbacks::code_may_run(py);
    py.import("pellucid.look.show")?.call_method1("text_of_table", (table, head))?.extract()
}

/// The same table without its class: its rows are records, whether or not an instance can be made.
#[pyfunction]
#[pyo3(name = "_untyped")]
pub fn untyped(table: &Bound<'_, Table>) -> Table {
    table.get().untyped()
}

/// Whether a query gives the dicts that `select` makes, and no rows of its table.
#[pyfunction]
#[pyo3(name = "_is_selected")]
pub fn is_selected(query: &Bound<'_, Query>) -> bool {
    query.get().is_selected()
}

/// What `pellucid.look.fields` makes rows of: for each path its text, how many rows have it, the
/// types with their shares, how many values differ, the least, the greatest and an example; then
/// how many rows were met, how many were read, and whether there are more paths.
type Surveyed<'py> = (Vec<Bound<'py, PyTuple>>, u64, u64, bool);

/// Surveys the fields of a table or of a query, which has about `count` rows.
#[pyfunction]
#[pyo3(name = "_survey")]
pub fn survey<'py>(of: &Bound<'py, PyAny>, count: u64, exact: bool) -> PyResult<Surveyed<'py>> {
    match of.cast_exact::<Table>() {
        Ok(table) => surveyed(table, count, exact),
        Err(_) => surveyed(of.cast::<Query>()?, count, exact),
    }
}

fn surveyed<'py>(of: &impl Queried<'py>, count: u64, exact: bool) -> PyResult<Surveyed<'py>> {
    let (py, table) = (of.py(), of.table_ref());
    let Some(source) = of.source(Walked::InParts)? else { return Ok((Vec::new(), 0, 0, false)) };
    let survey = Survey::new(count, exact);
    over_parts(py, &table, source, survey.clone())?;
    let found = survey.result();
    let object = |value: &Value| group::object_of(py, &table, value);
    let mut fields = Vec::with_capacity(found.fields.len());
    for field in &found.fields {
        let (least, greatest) = match &field.ends {
            Some((least, greatest)) => (object(least)?, object(greatest)?),
            None => (py.None().into_bound(py), py.None().into_bound(py)),
        };
        let example = field.example.as_ref().map(object).transpose()?;
        let parts = (
            Expression::field(field.steps.clone()).to_string(),
            field.rows,
            &field.types,
            field.distinct,
            least,
            greatest,
            example,
        );
        fields.push(parts.into_pyobject(py)?);
    }
    Ok((fields, found.rows, found.read, found.has_more))
}

/// What `pellucid.look.fields` makes a row of: the count, the mean, the standard deviation, the
/// least number, the quartiles and the greatest number.
type Figured<'py> = (usize, f64, Option<f64>, [Bound<'py, PyAny>; 5]);

/// The figures of the numbers at a path of a table or a query: an empty list of no numbers; None if
/// some need the numbers of Python.
#[pyfunction]
#[pyo3(name = "_figures")]
pub fn figures<'py>(of: &Bound<'py, PyAny>, path: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Figured<'py>>>> {
    match of.cast_exact::<Table>() {
        Ok(table) => figured(table, path),
        Err(_) => figured(of.cast::<Query>()?, path),
    }
}

fn figured<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Figured<'py>>>> {
    let py = of.py();
    let node = column::node_of(path)?;
    let Some((source, nodes)) = of.source_of(std::slice::from_ref(&node), Walked::InParts)? else {
        return Ok(Some(Vec::new()));
    };
    let gather = GatherFigures(column::column_of(nodes.first().unwrap_or(&node))?);
    let Outcome::Done(gathered) = over_parts(py, &of.table_ref(), source, gather)? else { return Ok(None) };
    let Some(figures) = callbacks::released(py, || gathered.figures()) else { return Ok(Some(Vec::new())) };
    let object = |number: f64, int: Option<i64>| match int {
        Some(int) => int.into_pyobject(py).map(Bound::into_any),
        None => number.into_pyobject(py).map(Bound::into_any),
    };
    let [least, first, second, third, greatest] = figures.quartiles;
    let quartiles = [
        object(least, figures.ints.0)?,
        object(first, None)?,
        object(second, None)?,
        object(third, None)?,
        object(greatest, figures.ints.1)?,
    ];
    Ok(Some(vec![(figures.count, figures.mean, figures.deviation, quartiles)]))
}

/// Gives the classes these methods, and the names that they are asked for and do not have.
///
/// # Errors
/// `MemoryError`.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let (database, snapshot) = (py.get_type::<Database>(), py.get_type::<SnapshotHandle>());
    let table = py.get_type::<Table>();
    for (class, names) in [
        (&table, OF_TABLES),
        (&database, OF_DATABASES),
        (&snapshot, OF_DATABASES),
        (&py.get_type::<Query>(), OF_QUERIES),
        (&py.get_type::<Groups>(), OF_QUERIES),
        (&py.get_type::<RecordList>(), OF_QUERIES),
    ] {
        for name in names.split(' ') {
            let name = PyString::intern(py, name);
            class.setattr(&name, LookMethod { name: name.clone().unbind() })?;
        }
    }
    // `dir` and `help` of a class leave out the words that are only hints, too.
    let parts = PyDict::new(py);
    parts.set_item("__slots__", PyTuple::empty(py))?;
    parts.set_item("__dir__", LookMethod { name: PyString::intern(py, "names_of_class").unbind() })?;
    let plain = py.get_type::<PyType>();
    let meta = plain.call1(("Kind", (&plain,), parts))?.cast_into::<PyType>()?;
    meta.setattr("__module__", "pellucid")?;
    for (class, kind) in [(table, Kind::Table), (database, Kind::Database), (snapshot, Kind::Snapshot)] {
        wrong_names::install(&class, kind)?;
        metaclass::set(&class, &meta)?;
    }
    Ok(())
}
