//! Walks over rows that come in pages, from a source that is no engine: a server.
//!
//! A page is what one question to the source brought. Its rows are read in place, so a page lives
//! until its last row was visited, and no longer.

use std::ops::ControlFlow;

use pellucid_store::Row;

use crate::fault::Fault;
use crate::walk::{StepResult, Walk};

/// Rows that came together.
pub trait Page {
    /// The row at a place, counted from 0; None after the last one.
    fn row(&self, place: usize) -> Option<Row<'_>>;
}

/// A source of pages.
pub trait Pages {
    /// What it brings.
    type Page: Page;

    /// The next page; None at the end. `last` is the page before, which goes first: there is never
    /// memory for two.
    ///
    /// # Errors
    /// The source failed.
    fn next(&mut self, last: Option<Self::Page>) -> Result<Option<Self::Page>, Fault>;
}

/// A walk over the rows of pages, one page after the other.
pub struct PagedRows<P: Pages> {
    pages: P,
    /// The page at hand, and the place of its next row.
    page: Option<P::Page>,
    place: usize,
}

impl<P: Pages> PagedRows<P> {
    /// A walk over the rows of these pages.
    pub fn new(pages: P) -> Self {
        Self { pages, page: None, place: 0 }
    }

    /// What `visit` makes of the next row and its page; None at the end.
    ///
    /// # Errors
    /// The source failed.
    pub fn next<T>(&mut self, visit: impl FnOnce(&P::Page, usize, Row<'_>) -> T) -> Result<Option<T>, Fault> {
        loop {
            if let Some(page) = &self.page
                && let Some(row) = page.row(self.place)
            {
                let place = self.place;
                self.place += 1;
                return Ok(Some(visit(page, place, row)));
            }
            if !self.turn()? {
                return Ok(None);
            }
        }
    }

    /// Takes the next page in the place of the one at hand; false at the end.
    fn turn(&mut self) -> Result<bool, Fault> {
        self.place = 0;
        let last = self.page.take();
        self.page = self.pages.next(last)?;
        Ok(self.page.is_some())
    }
}

impl<P: Pages> Walk for PagedRows<P> {
    fn step<B>(&mut self, mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B> {
        loop {
            if let Some(page) = &self.page
                && let Some(mut row) = page.row(self.place)
            {
                // The rows of a page are at hand, all of them.
                loop {
                    self.place += 1;
                    let said = visit(row);
                    match page.row(self.place) {
                        Some(next) if said.is_continue() => row = next,
                        _ => return Ok(Some(said)),
                    }
                }
            }
            if !self.turn()? {
                return Ok(None);
            }
        }
    }
}
