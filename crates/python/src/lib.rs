//! The Python module of pellucid: records, tables and databases as Python objects.
//!
//! `hot/` has raw access to CPython, and `values/` stored values as Python objects; `table/`,
//! `query/`, `index/`, `expression/`, `put/` and `work/` have the rest, with one file for each
//! Python type. Most code is written against PyO3. Records are read through `pellucid-record`,
//! stored by `pellucid-store`, and computed over by `pellucid-query`.
#![deny(unsafe_code)]
#![allow(clippy::needless_pass_by_value, reason = "an argument of a Python method is what PyO3 hands over")]
#![allow(clippy::doc_link_with_quotes, reason = "the comments of Python's methods are in Python's manner")]
#![allow(clippy::trivially_copy_pass_by_ref, reason = "an error is borrowed, whatever its size is today")]
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "CPython counts in signed numbers, and the calendar may go below zero; none comes near a limit"
)]

mod arguments;
mod arrow;
mod bounds;
mod column;
mod core;
mod counters;
mod database;
mod default_table;
mod errors;
mod expression;
#[allow(unsafe_code, reason = "raw CPython slots: the loops of users run through here")]
mod hot;
mod imported;
mod index;
mod look;
mod not_keys;
mod numpy;
mod open;
mod progress;
mod put;
mod query;
mod report;
mod server;
mod signals;
mod snapshot;
mod store_errors;
mod table;
mod table_binding;
mod testing;
mod transaction;
mod unclosed;
mod uses;
mod values;
mod watch;
mod work;

use pellucid_query::expression::Source;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::database::Database;
use crate::expression::handle::Expression;
use crate::snapshot::SnapshotHandle;
use crate::table::handle::Table;
use crate::values::handles::{Record, RecordList};
use crate::values::record_list::ListIterator;

#[cfg(Py_GIL_DISABLED)]
compile_error!(
    "pellucid needs Python's GIL: its handles are guarded by it. Use the regular build of this Python, \
     not the free-threaded one (python3.14 instead of python3.14t)"
);

/// The compiled part of pellucid.
// `GilCell` is `Sync` only because of the GIL. A bare `#[pymodule]` would declare that the module
// does not need it.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    static PREPARED: PyOnceLock<()> = PyOnceLock::new();
    let py = module.py();
    // Before any class is made, since classes are made once in a process.
    hot::gil::check_interpreter(py)?;
    PREPARED.get_or_try_init(py, || prepare(py))?;
    for function in [
        wrap_pyfunction!(values::bytes::dumps, module)?,
        wrap_pyfunction!(values::bytes::loads, module)?,
        wrap_pyfunction!(values::bytes::validate, module)?,
        wrap_pyfunction!(values::instance_rows::key_of, module)?,
        wrap_pyfunction!(values::instance_rows::table_of, module)?,
        wrap_pyfunction!(values::json::json_bytes, module)?,
        wrap_pyfunction!(values::json::json_dumps, module)?,
        wrap_pyfunction!(counters::counters, module)?,
        wrap_pyfunction!(expression::text::parse, module)?,
        wrap_pyfunction!(imported::imported, module)?,
        wrap_pyfunction!(look::figures, module)?,
        wrap_pyfunction!(look::is_selected, module)?,
        wrap_pyfunction!(look::survey, module)?,
        wrap_pyfunction!(look::untyped, module)?,
        wrap_pyfunction!(open::open, module)?,
        wrap_pyfunction!(put::cell_kinds::cell_kinds, module)?,
        wrap_pyfunction!(query::claim::claim_first, module)?,
        wrap_pyfunction!(query::update_same::update_same, module)?,
        wrap_pyfunction!(query::group::count, module)?,
        wrap_pyfunction!(table::wrong_names::no_attribute_of, module)?,
        wrap_pyfunction!(values::brief::brief, module)?,
        wrap_pyfunction!(work::threads::set_threads, module)?,
    ] {
        module.add_function(function)?;
    }
    testing::add_to(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Database>()?;
    module.add_class::<SnapshotHandle>()?;
    module.add_class::<Table>()?;
    module.add_class::<table::bytes_map::BytesMap>()?;
    module.add_class::<table::object_map::ObjectMap>()?;
    module.add_class::<Expression>()?;
    module.add("F", Expression::root(Source::Record)?)?;
    module.add("KEY", Expression::root(Source::Key)?)?;
    module.add_class::<arrow::ArrowStream>()?;
    module.add_class::<index::handle::Index>()?;
    module.add_class::<index::pairs::IndexKeys>()?;
    module.add_class::<index::describe::IndexDescription>()?;
    module.add_class::<query::handle::Query>()?;
    module.add_class::<query::group::Groups>()?;
    module.add_class::<put::cells::CellRows>()?;
    module.add_class::<expression::aggregate::Aggregate>()?;
    module.add_class::<expression::sort_by::SortBy>()?;
    module.add_class::<Record>()?;
    module.add_class::<RecordList>()?;
    module.add_class::<ListIterator>()?;
    values::views::register(module)?;
    module.add_class::<table::rows::RowIterator>()?;
    module.add_class::<transaction::TransactionContext>()?;
    module.add_class::<table::edit::EditContext>()?;
    module.add_class::<watch::WatchHandle>()?;
    module.add_class::<watch::ChangeHandle>()?;
    module.add_class::<uses::UseSlots>()?;
    module.add_class::<uses::NotedTable>()?;
    add_server(module)?;
    module.add("view", values::functions::view_function(module)?)?;
    register_as_collections(py)?;
    imported::restore(py)
}

/// Registers classes with the abstract ones, for `isinstance()` and structural pattern matching.
fn register_as_collections(py: Python<'_>) -> PyResult<()> {
    let abc = hot::modules::abstract_classes(py)?;
    for class in [py.get_type::<Record>(), py.get_type::<Table>(), py.get_type::<Database>()] {
        abc.getattr("MutableMapping")?.call_method1("register", (class,))?;
    }
    abc.getattr("Mapping")?.call_method1("register", (py.get_type::<SnapshotHandle>(),))?;
    abc.getattr("MutableSequence")?.call_method1("register", (py.get_type::<RecordList>(),))?;
    Ok(())
}

/// Prepares what a process has once, however often this module is imported: the slots of classes
/// that exist already would otherwise be taken for those that PyO3 has made.
fn prepare(py: Python<'_>) -> PyResult<()> {
    hot::text::check_layout(py)?;
    #[cfg(all(target_os = "linux", target_env = "gnu", not(Py_3_14)))]
    hot::thread_end::install();
    hot::small::install(py);
    values::alloc::install::<Record>(py)?;
    values::alloc::install::<RecordList>(py)?;
    values::buffer::install(py);
    values::field::install(py);
    default_table::install(py)?;
    look::install(py)?;
    table::rows::install(py);
    table::slots::install(py);
    values::equal::refuse_with(not_keys::refuse);
    values::table_ref::install([&table::calls::Calls, &server::calls::ServerCalls]);
    values::alloc::install_tracked::<Record>(py)?;
    values::alloc::install_tracked::<RecordList>(py)?;
    Ok(())
}

/// Adds what `pellucid.postgres` builds on.
fn add_server(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<server::codec::ServerValidity>()?;
    module.add_class::<server::codec::ServerCodec>()?;
    module.add_class::<server::edit::ServerEdit>()?;
    module.add_class::<server::encoded::ServerEncoded>()?;
    module.add_class::<server::table::ServerTable>()?;
    module.add_class::<server::rows::ServerRows>()?;
    module.add_class::<server::index::ServerIndexes>()?;
    module.add_class::<server::index::ServerIndexCodes>()?;
    module.add_function(wrap_pyfunction!(server::index::server_index_error, module)?)?;
    module.add_function(wrap_pyfunction!(server::index::server_index_definition, module)?)?;
    module.add_function(wrap_pyfunction!(query::remote::server_query, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_key_code, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_key, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_survey, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_whole_code, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_json_key, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_distribution, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_copy_rows, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_array, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_keys, module)?)?;
    module.add_function(wrap_pyfunction!(server::functions::server_view, module)?)?;
    Ok(())
}
