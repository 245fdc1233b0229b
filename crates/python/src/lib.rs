//! How does Python see records, tables and databases?
//!
//! One file for each Python type. `hot/` holds the raw CPython slots and all `unsafe`; everything else
//! is written against PyO3. Records are read through `pellucid-record`, kept by `pellucid-store`, and
//! computed over by `pellucid-query`.
#![deny(unsafe_code)]
#![allow(clippy::needless_pass_by_value, reason = "an argument of a Python method is what PyO3 hands over")]
#![allow(clippy::doc_link_with_quotes, reason = "the comments of Python's methods are in Python's manner")]
#![allow(clippy::trivially_copy_pass_by_ref, reason = "an error is lent, whatever its size is today")]
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "CPython counts in signed numbers, and the calendar may go below zero; none comes near a limit"
)]

mod bounds;
mod bytes;
mod calendar;
mod column;
mod core;
mod counters;
mod database;
mod errors;
mod hooks;
#[allow(unsafe_code, reason = "raw CPython slots: the loops of users run through here")]
mod hot;
mod keys;
mod members;
mod open;
mod path;
mod put;
mod record;
mod record_list;
mod report;
mod save;
mod scalars;
mod snapshot;
mod table;
mod transaction;
mod views;

use pyo3::prelude::*;

/// The compiled part of pellucid.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::bytes::{dumps, loads, validate};
    #[pymodule_export]
    use crate::counters::counters;
    #[pymodule_export]
    use crate::database::Database;
    #[pymodule_export]
    use crate::hot::rows::RowIterator;
    #[pymodule_export]
    use crate::open::open;
    #[pymodule_export]
    use crate::record::Record;
    #[pymodule_export]
    use crate::record_list::{ListIterator, RecordList};
    #[pymodule_export]
    use crate::snapshot::SnapshotHandle;
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::transaction::{EditContext, TransactionContext};
    #[pymodule_export]
    use crate::views::DictView;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        crate::hot::small::install(py);
        crate::hot::alloc::install::<Record>(py)?;
        crate::hot::alloc::install::<RecordList>(py)?;
        crate::hot::buffer::install(py);
        crate::hot::field::install(py);
        crate::hot::rows::install(py);
        module.add("view", crate::hot::functions::view_function(module)?)?;
        // The abstract classes make isinstance() and structural pattern matching see what these are.
        let abc = py.import("collections.abc")?;
        for class in [py.get_type::<Record>(), py.get_type::<Table>(), py.get_type::<Database>()] {
            abc.getattr("MutableMapping")?.call_method1("register", (class,))?;
        }
        abc.getattr("Mapping")?.call_method1("register", (py.get_type::<SnapshotHandle>(),))?;
        abc.getattr("MutableSequence")?.call_method1("register", (py.get_type::<RecordList>(),))?;
        Ok(())
    }
}
