//! The place in a row that a handle stands for.
//!
//! A handle (`Record`, `RecordList`) is a row and a *path* in it: the parent handle and one step
//! from there. The place that the path leads to is cached with the row's version. If another handle
//! has changed the row, the next access walks the path again. So `tags = rec.tags;
//! tags.append("x"); rec.tags` show one list, as with a dict.

use pellucid_record::error::{Corrupt, Damage};
use pellucid_record::layout::{DEPTH_MAX, Kind};
use pellucid_record::path::OwnedStep;
use pellucid_record::view::{Container, Root, Slot};
use pyo3::prelude::*;

use crate::hot::gil::{GilRc, GilValue, Strong};
use crate::values::reading::Reading;
use crate::values::row::Row;
use crate::values::{handles, row_errors};

/// A handle's place in its row.
pub struct Node {
    /// The row that holds the value.
    pub row: GilRc<Row>,
    /// The handle that this one was reached from, and the step from there; None at the root.
    pub parent: Option<(Strong<PyAny>, OwnedStep)>,
    /// Whether the handle stands for a dict, and not for a list or tuple. This never changes: if
    /// the value is replaced by one of the other kind, the handle raises.
    pub is_dict: bool,
    depth: u8,
    place: GilValue<Option<Container>>,
    seen: GilValue<u32>,
}

impl Node {
    /// The root of a row; its place is looked up on first use.
    #[inline]
    pub fn root(row: GilRc<Row>, is_dict: bool) -> Self {
        Self { row, parent: None, is_dict, depth: 0, place: GilValue::new(None), seen: GilValue::new(0) }
    }

    /// The node of the container at `place` in this reading; `step` leads there from `parent`.
    ///
    /// # Errors
    /// `CorruptRecord` if containers nest deeper than the format allows: a handle keeps all handles
    /// around it, and their releases are nested.
    pub fn child(
        reading: &Reading<'_>,
        parent: &Bound<'_, PyAny>,
        step: OwnedStep,
        place: Container,
    ) -> PyResult<Self> {
        let row = reading.row();
        if matches!(step, OwnedStep::Index(_)) {
            row.has_element();
        }
        let depth = handles::node_of(parent)?.depth + 1;
        if u32::from(depth) >= DEPTH_MAX {
            let error = Corrupt::new(Damage::Depth, place.start as usize);
            return Err(row_errors::corrupt_row(parent.py(), row, &error));
        }
        Ok(Self {
            row: row.clone(),
            parent: Some((Strong::new(parent), step)),
            is_dict: is_dict(place.kind),
            depth,
            place: GilValue::new(Some(place)),
            // If the row has changed since, the place is looked up again.
            seen: GilValue::new(reading.version()),
        })
    }

    /// The cached place if it is still valid, for the fast paths.
    #[inline]
    pub fn known_place(&self) -> Option<Container> {
        if self.seen.get() == self.row.version() { self.place.get() } else { None }
    }

    /// Drops the cached place, because the row has moved to another record.
    #[inline]
    pub fn forget(&self) {
        self.place.set(None);
    }

    /// Raises `StaleRecord` if the snapshot or database is closed.
    #[inline]
    pub fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.row.validity.is_open() { Ok(()) } else { self.read_anew(py) }
    }

    /// Reloads the row from the table after its transaction was rolled back.
    #[cold]
    fn read_anew(&self, py: Python<'_>) -> PyResult<()> {
        match &self.row.table {
            Some(table) if self.row.validity.share().is_rolled_back() => {
                if table.read_anew(py, &self.row)? {
                    Ok(())
                } else {
                    Err(row_errors::gone(py, self))
                }
            }
            _ => Err(row_errors::stale(py)),
        }
    }

    /// The container at this handle's place.
    ///
    /// # Errors
    /// `StaleRecord` after a close, `CorruptRecord` for damage, `KeyError` if the path leads to
    /// nothing any more.
    #[inline]
    pub fn container(&self, py: Python<'_>) -> PyResult<Container> {
        self.check_open(py)?;
        match self.known_place() {
            Some(place) => Ok(place),
            None => self.find(py),
        }
    }

    fn find(&self, py: Python<'_>) -> PyResult<Container> {
        let row = &*self.row;
        let place = match &self.parent {
            None => self.find_root(py)?,
            Some((parent, step)) => {
                let parent = parent.bind(py);
                let parent = handles::node_of(&parent)?;
                let around = parent.container(py)?;
                self.check_moved(py)?;
                let slot = crate::values::field::slot_at(py, row, row.bytes(), &around, step)?;
                match slot {
                    Some(Slot::Container(place)) if is_dict(place.kind) == self.is_dict => place,
                    _ => return Err(row_errors::gone(py, self)),
                }
            }
        };
        // A list may have replaced a dict; this handle stands for the old value only.
        if self.place.get().is_some_and(|old| is_dict(old.kind) != is_dict(place.kind)) {
            return Err(row_errors::gone(py, self));
        }
        self.place.set(Some(place));
        self.seen.set(row.version());
        Ok(place)
    }

    /// Raises if a list on the path has changed so that an index means another element, since a
    /// change through this handle would go to that element.
    fn check_moved(&self, py: Python<'_>) -> PyResult<()> {
        if !matches!(self.parent, Some((_, OwnedStep::Index(_)))) {
            // The call for the parent's place has checked the steps before.
            return Ok(());
        }
        let path = self.path(py)?;
        match self.row.moved_on(py, &path, self.seen.get()) {
            None => Ok(()),
            Some(depth) => Err(row_errors::moved(py, &self.row, path.get(..depth).unwrap_or_default())),
        }
    }

    fn find_root(&self, py: Python<'_>) -> PyResult<Container> {
        let row = &*self.row;
        match pellucid_record::view::root(row.bytes(), &*row.names) {
            Ok(Root::Container(place)) if is_dict(place.kind) == self.is_dict => Ok(place),
            Ok(_) => Err(row_errors::gone(py, self)),
            Err(error) => Err(row_errors::corrupt_row(py, row, &error)),
        }
    }

    /// The steps from the root to here.
    pub fn path(&self, py: Python<'_>) -> PyResult<Vec<OwnedStep>> {
        let mut path = match &self.parent {
            None => return Ok(Vec::new()),
            Some((parent, _)) => handles::node_of(&parent.bind(py))?.path(py)?,
        };
        if let Some((_, step)) = &self.parent {
            path.push(step.clone());
        }
        Ok(path)
    }
}

/// Whether a container of this kind is a dict, with a `Record` as its handle.
#[inline]
pub fn is_dict(kind: Kind) -> bool {
    matches!(kind, Kind::Shaped | Kind::Keyed)
}
