//! Says which table a query is of: one of an engine, or one of a server.

use pyo3::prelude::*;

use crate::server::table::ServerTable;
use crate::table::handle::Table;
use crate::values::table_ref::TableRef;

/// The table of a query.
pub enum QueryTarget {
    /// One of an engine.
    Table(Py<Table>),
    /// One of a server.
    Server(Py<ServerTable>),
}

impl QueryTarget {
    /// Another reference to the same table.
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Table(table) => Self::Table(table.clone_ref(py)),
            Self::Server(table) => Self::Server(table.clone_ref(py)),
        }
    }

    /// The table, as its rows see it.
    pub fn table_ref(&self, py: Python<'_>) -> TableRef {
        match self {
            Self::Table(table) => TableRef::new(table.bind(py)),
            Self::Server(table) => TableRef::new(table.bind(py)),
        }
    }
}
