//! Gives work over rows a whole table as its source.

use pellucid_query::Extremes;
use pellucid_query::expression::Node;
use pyo3::prelude::*;

use crate::bounds::Bounds;
use crate::query::reader::rows_of_extremes;
use crate::table::handle::Table;
use crate::values::table_ref::TableRef;
use crate::work::walks::{Queried, Source, Walked};

impl<'py> Queried<'py> for Bound<'py, Table> {
    fn py(&self) -> Python<'py> {
        Bound::py(self)
    }

    fn table_ref(&self) -> TableRef {
        TableRef::new(self)
    }

    fn source_of_extremes(&self, wanted: &[(&Node, Extremes)]) -> PyResult<Option<Source>> {
        rows_of_extremes(self, wanted)
    }

    fn source(&self, _walked: Walked) -> PyResult<Option<Source>> {
        let rows = self.get().rows(self.py(), &Bounds::all(), false)?;
        Ok(rows.map(|rows| Source { rows, selection: None }))
    }
}
