//! The iterator over the rows of a query on a server.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use pellucid_query::Selection;
use pellucid_store::{OverflowReader, Row};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors;
use crate::hot::gil::GilCell;
use crate::server::codec::ServerValidity;
use crate::server::feed::{PageReader, RemoteOverflow};
use crate::server::fetched_key::key_of_row;
use crate::server::stored;
use crate::server::table::ServerTable;
use crate::values::keys;
use crate::values::row_errors;
use crate::values::views::Shows;

/// An iterator over the keys, values or items of rows that a query finds on a server.
#[pyclass(frozen, module = "pellucid", name = "ServerRows")]
pub struct ServerRows {
    table: Py<ServerTable>,
    validity: Py<ServerValidity>,
    shows: Shows,
    state: GilCell<State>,
}

enum State {
    /// The walk, between two steps.
    Walking(Box<Walk>),
    /// A thread is fetching the next page.
    Fetching,
    Over,
}

struct Walk {
    fetching: PageReader,
    large: RemoteOverflow,
    selection: Option<Selection>,
    /// Whether the reading tells between two rows whether its transaction or snapshot has ended.
    is_checked: bool,
    /// The rows of the page at hand that are wanted.
    wanted: VecDeque<Py<PyTuple>>,
}

impl ServerRows {
    /// An iterator over the rows of `fetching` that `selection` takes.
    ///
    /// # Errors
    /// What the table's `validity` raises.
    pub fn new(
        table: &Bound<'_, ServerTable>,
        fetching: PageReader,
        selection: Option<Selection>,
        shows: Shows,
    ) -> PyResult<Self> {
        let validity = table.call_method0("validity")?.cast_into::<ServerValidity>()?.unbind();
        let large = RemoteOverflow::new(&fetching, table.py());
        let is_checked = fetching.is_checked(table.py())?;
        let walk = Walk { fetching, large, selection, is_checked, wanted: VecDeque::new() };
        let state = GilCell::new(State::Walking(Box::new(walk)));
        Ok(Self { table: table.clone().unbind(), validity, shows, state })
    }
}

impl Walk {
    /// The next wanted row.
    fn step<'py>(&mut self, table: &Bound<'py, ServerTable>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let py = table.py();
        loop {
            if let Some(row) = self.wanted.pop_front() {
                if self.is_checked {
                    self.fetching.check(py)?;
                }
                return Ok(Some(row.into_bound(py)));
            }
            if self.selection.as_ref().is_some_and(|selection| selection.limit == 0) {
                return Ok(None);
            }
            let Some(page) = self.fetching.next_list(py)? else { return Ok(None) };
            for row in page {
                let row = row.cast_into::<PyTuple>()?;
                match self.takes(table, &row)? {
                    ControlFlow::Continue(true) => self.wanted.push_back(row.unbind()),
                    ControlFlow::Continue(false) => {}
                    ControlFlow::Break(()) => break,
                }
            }
        }
    }

    fn takes(
        &mut self,
        table: &Bound<'_, ServerTable>,
        row: &Bound<'_, PyTuple>,
    ) -> PyResult<ControlFlow<(), bool>> {
        let Some(selection) = &mut self.selection else { return Ok(ControlFlow::Continue(true)) };
        let py = table.py();
        let (key, spelling) = key_of_row(row)?;
        let value = row.get_item(2)?.cast_into::<PyBytes>()?;
        let spelling = spelling.as_ref().map(PyBytesMethods::as_bytes).unwrap_or_default();
        let row = Row { key: key.as_bytes(), spelling, record: stored::record_of(value.as_bytes()) };
        let shapes = table.get().codec.get().dictionary();
        let taken = selection.takes(&row, &OverflowReader { shapes, large: &self.large });
        taken.map_err(|error| {
            let damaged = || row_errors::corrupt_key(py, &table.get().name_of(py), row.key, &error);
            self.large.failed(py).unwrap_or_else(damaged)
        })
    }
}

#[pymethods]
impl ServerRows {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let shows = match self.shows {
            Shows::Keys => "keys",
            Shows::Values => "values",
            Shows::Items => "items",
        };
        format!("<pellucid.ServerRows over {shows} of table {:?}>", self.table.get().name_of(py))
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let table = self.table.bind(py);
        // Fetching a page runs Python code, and other threads may step this iterator meanwhile.
        let mut walk = match self.state.with(py, |state| std::mem::replace(state, State::Fetching)) {
            State::Walking(walk) => walk,
            State::Over => {
                self.state.with(py, |state| *state = State::Over);
                return Ok(None);
            }
            State::Fetching => {
                return Err(errors::value_error("another thread is taking the next row of this iterator"));
            }
        };
        let found = walk.step(table);
        let next = if matches!(found, Ok(Some(_))) { State::Walking(walk) } else { State::Over };
        drop(self.state.with(py, |state| std::mem::replace(state, next)));
        let Some(row) = found? else { return Ok(None) };
        let key = || {
            let (code, spelling) = key_of_row(&row)?;
            let spelling = spelling.as_ref().map(PyBytesMethods::as_bytes).unwrap_or_default();
            keys::object_of(py, code.as_bytes(), spelling)
        };
        let value = || ServerTable::value_of(table, row.as_any(), self.validity.get());
        Ok(Some(match self.shows {
            Shows::Keys => key()?,
            Shows::Values => value()?,
            Shows::Items => PyTuple::new(py, [key()?, value()?])?.into_any(),
        }))
    }
}
