//! Check and build the instances of a table that was opened with a class (`type=`).
//!
//! A record does not name its class. So the table accepts only instances of exactly its class, and
//! `pellucid.instances` builds each returned row into one, whole and detached. A record that does
//! not fit the class raises, and can still be read without the class.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::errors;
use crate::hot::callbacks;
use crate::hot::gil::GilRc;
use crate::table::handle::Table;
use crate::values::bytes::{self, handle_of_row};
use crate::values::encode::Manner;
use crate::values::hooks::PicklePolicy;
use crate::values::keys::{self, Key};
use crate::values::row::Row;
use crate::values::{hooks, instance_rows, row_errors};

/// The class of a table's rows.
pub struct RowClass {
    /// The class.
    pub python: Py<PyType>,
    /// Whether each read calls the class with the stored fields, instead of setting them.
    pub run_init: bool,
    /// Whether the class is `object`: rows are any objects, and come back exactly as they were.
    pub is_any: bool,
    /// Whether objects are stored without looking for parts that occur twice.
    pub is_fast: bool,
    /// What checks and makes instances where `validate=`, `ignore_extra=` or `renames=` was given:
    /// an `Evolving` of `pellucid.evolving`.
    pub evolving: Option<Py<PyAny>>,
    // What says whether an instance would come back; None where that does not depend on its parts.
    checker: PyOnceLock<Option<Py<PyAny>>>,
    // Whether instances have weak references, so that their rows can be remembered.
    has_weak: PyOnceLock<bool>,
}

/// How instances are checked and made: the arguments of `table()` beside `type=`.
#[derive(Default)]
pub struct Evolution<'py> {
    /// `validate=`
    pub validate: bool,
    /// `ignore_extra=`
    pub ignore_extra: bool,
    /// `renames=`
    pub renames: Option<Bound<'py, PyAny>>,
}

impl Evolution<'_> {
    fn is_asked(&self) -> bool {
        self.validate || self.ignore_extra || self.renames.is_some()
    }
}

/// The class given as `type=`; None if none is given.
pub fn class_of(
    argument: Option<&Bound<'_, PyAny>>,
    run_init: bool,
    is_fast: bool,
    evolution: &Evolution<'_>,
) -> PyResult<Option<RowClass>> {
    let is_any = argument.is_some_and(|argument| argument.is(argument.py().get_type::<PyAny>()));
    if is_fast && !is_any {
        return Err(errors::value_error("fast=True is about tables of any objects; give type=object, too"));
    }
    if evolution.is_asked() && (is_any || argument.is_none()) {
        return Err(errors::type_error(
            "validate=, ignore_extra= and renames= are about the fields of the class that type= names; give type=, too".to_owned(),
        ));
    }
    let Some(argument) = argument else {
        return if run_init {
            Err(errors::type_error("run_init=True is about the class that type= names; give both".to_owned()))
        } else {
            Ok(None)
        };
    };
    match argument.cast::<PyType>() {
        Ok(class) => {
            hooks::check_row_class(class)?;
            let python = class.clone().unbind();
            let evolving = if evolution.is_asked() {
                let (validate, ignores) = (evolution.validate, evolution.ignore_extra);
                Some(hooks::evolving(class, run_init, validate, ignores, evolution.renames.as_ref())?)
            } else {
                None
            };
            Ok(Some(RowClass {
                python,
                run_init,
                is_any,
                is_fast,
                evolving,
                checker: PyOnceLock::new(),
                has_weak: PyOnceLock::new(),
            }))
        }
        // Not a class on Python 3.10.
        Err(_) => Err(errors::type_error(format!(
            "type= is the class that rows come back as, not {}; what a field of it holds, its annotations say",
            argument.repr()?
        ))),
    }
}

/// The error of `conform` of a table without a class.
pub fn without_class(table: &str) -> PyErr {
    errors::type_error(format!(
        "conform() compares the rows with a class, and table {table:?} was opened without type=; open it with the class"
    ))
}

/// The Python object for a row of a table.
pub fn value_of_row(py: Python<'_>, row: GilRc<Row>) -> PyResult<Bound<'_, PyAny>> {
    let table = row.table.as_ref().map(|table| table.bind(py));
    let class = table.as_ref().and_then(|table| table.cast_exact::<Table>().ok()?.get().class.as_ref());
    match class {
        None => handle_of_row(py, row),
        Some(class) => class.instance(py, &row),
    }
}

impl RowClass {
    /// The instance for a row.
    pub fn instance<'py>(&self, py: Python<'py>, row: &GilRc<Row>) -> PyResult<Bound<'py, PyAny>> {
        instance(py, row, self)
    }

    /// Makes the instance of a row, for the error; with `validates`, it must be one that a write
    /// would accept.
    ///
    /// # Errors
    /// The row makes no instance, or holds a value that a write would refuse.
    pub fn read(&self, py: Python<'_>, row: &GilRc<Row>, validates: bool) -> PyResult<()> {
        let made = instance(py, row, self)?;
        if validates { self.conforms(&made, || row_errors::describe(py, row)) } else { Ok(()) }
    }

    /// Raises if a write would refuse an instance that was read; `place` names its row.
    ///
    /// # Errors
    /// `WrongClass`.
    pub fn conforms(&self, made: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<()> {
        if self.evolving.is_some() { self.check_parts(made, place) } else { Ok(()) }
    }

    /// What is kept of objects that are stored in a table of this class, or of none.
    pub fn manner(class: Option<&Self>, policy: &PicklePolicy) -> Manner {
        match class {
            None => bytes::manner_of(policy),
            Some(class) if class.is_any => Manner {
                is_exact: true,
                keeps_identity: policy.is_allow && !class.is_fast,
                is_fast: class.is_fast,
                runs_init: false,
            },
            // The fields of an instance are a record, whatever they share.
            Some(class) => Manner { runs_init: class.run_init, ..Manner::COPIES },
        }
    }

    /// Raises where `value` is not of the class, or would not come back as it is; `place` names it.
    pub fn check(&self, value: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<()> {
        let py = value.py();
        if self.is_any {
            return Ok(());
        }
        let class = self.python.bind(py);
        // What admits a value may be the user's.
        callbacks::code_may_run(py);
        if value.get_type().is(class) {
            return self.check_parts(value, place);
        }
        if hooks::admits(class, value)? {
            return Ok(());
        }
        let (wanted, given) = (class.fully_qualified_name()?, value.get_type().fully_qualified_name()?);
        Err(errors::raise(
            py,
            "WrongClass",
            format!(
                "{} is of type {given}, and the table was opened with type={wanted}: store an instance of exactly that \
                 class, or open the table without type= to store anything",
                place()
            ),
        ))
    }
}

fn instance<'py>(py: Python<'py>, row: &GilRc<Row>, class: &RowClass) -> PyResult<Bound<'py, PyAny>> {
    if class.is_any {
        return Python::attach(|_py| bytes::plain_of_row(py, row));
    }
    let built = built(py, row, class)?;
    let has_weak = || -> PyResult<bool> {
        let class = class.python.bind(py);
        // A member of an Enum is one object for all rows, and lives on.
        Ok(class.getattr("__weakrefoffset__")?.is_truthy()? && class.getattr_opt("__members__")?.is_none())
    };
    if *class.has_weak.get_or_try_init(py, has_weak)? {
        Python::attach(|_py| instance_rows::remember(&built, row))?;
    }
    Ok(built)
}

fn built<'py>(py: Python<'py>, row: &GilRc<Row>, class: &RowClass) -> PyResult<Bound<'py, PyAny>> {
    // Attached again, to release exceptions that Python code drops on its way: a scan calls this
    // from a raw slot.
    Python::attach(|_py| {
        let plain = bytes::plain_of_row(py, row)?;
        let made = match &class.evolving {
            Some(evolving) => evolving.bind(py).call_method1("build", (plain,)),
            None => hooks::build(class.python.bind(py), &plain, class.run_init),
        };
        made.map_err(|error| {
            let is_ours = error.get_type(py).name().is_ok_and(|name| name == "WrongClass");
            if !is_ours {
                return error;
            }
            let placed = errors::raise(
                py,
                "WrongClass",
                format!("{} {}", row_errors::describe(py, row), error.value(py)),
            );
            placed.set_cause(py, error.cause(py));
            placed
        })
    })
}

impl RowClass {
    /// Raises where an instance of the class has a part that would not come back as it is.
    fn check_parts(&self, value: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<()> {
        let py = value.py();
        let checker = self.checker.get_or_try_init(py, || match &self.evolving {
            Some(evolving) => evolving.bind(py).getattr("check").map(|check| Some(check.unbind())),
            None => hooks::checker(self.python.bind(py), self.run_init),
        })?;
        let Some(checker) = checker else { return Ok(()) };
        let why = checker.bind(py).call1((value,))?;
        if why.is_none() {
            return Ok(());
        }
        let why: String = why.extract()?;
        Err(errors::raise(py, "WrongClass", format!("{} {why}", place())))
    }
}

impl Table {
    /// What is kept of objects that are stored here.
    pub fn manner(&self) -> Manner {
        RowClass::manner(self.class.as_ref(), &self.core().policy)
    }

    /// Raises if the table's class lacks a field with one of these names, since rows with that
    /// field could not be read. `verb` is the method that was called.
    pub fn check_fields<'a>(
        &self,
        py: Python<'_>,
        verb: &str,
        names: impl Iterator<Item = &'a str>,
    ) -> PyResult<()> {
        let Some(class) = &self.class else { return Ok(()) };
        let what = format!("{verb}() of table {:?}", self.name(py));
        hooks::check_fields(class.python.bind(py), names.collect(), &what)
    }

    /// Raises if the row under a key, which was changed, makes no instance of the table's class, or
    /// one that could not be stored.
    pub fn check_row(table: &Bound<'_, Self>, key: &Key) -> PyResult<()> {
        let (py, this) = (table.py(), table.get());
        if this.class.is_none() {
            return Ok(());
        }
        let Some(value) = Self::value_of(table, key)? else { return Ok(()) };
        let shown = keys::object_of(py, &key.bytes, &key.spelling)?.repr()?;
        this.check_class(&value, || format!("the value for key {shown} of table {:?}", this.name(py)))
    }

    /// Raises if `value` is not of the table's class, or would not be read back as it is. `place`
    /// names it.
    pub fn check_class(&self, value: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<()> {
        match &self.class {
            Some(class) => class.check(value, place),
            None => Ok(()),
        }
    }
}
