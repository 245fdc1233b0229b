//! The shapes of a write transaction: those of the dictionary, and its own new ones.
//!
//! Other transactions see the new shapes only after the commit. The ids of an aborted transaction
//! are given to other shapes later, so its shapes must never get into the dictionary. A record that
//! was read inside the transaction keeps this object, and stays readable after the transaction has
//! ended.

use std::sync::{Arc, OnceLock};

use pellucid_record::{Dictionary, Shape, ShapeError, Shapes};

/// The dictionary, and the shapes of one transaction after it.
#[derive(Debug)]
pub struct TransactionShapes {
    dictionary: Arc<Dictionary>,
    /// The first id that is the transaction's own.
    start: u32,
    /// Most transactions make no shape, and an empty dictionary costs as much as a small commit.
    own: OnceLock<Dictionary>,
}

impl TransactionShapes {
    pub(crate) fn new(dictionary: Arc<Dictionary>) -> Self {
        let start = dictionary.len();
        Self { dictionary, start, own: OnceLock::new() }
    }

    /// The id of the shape with exactly these names in this order.
    #[must_use]
    pub fn find(&self, names: &[&str]) -> Option<u32> {
        let known = self.dictionary.find(names).filter(|id| *id < self.start);
        known.or_else(|| self.own.get()?.find(names).map(|id| id + self.start))
    }

    /// The id of such a shape, and whether it was made just now.
    pub(crate) fn find_or_add(&self, names: &[&str]) -> Result<(u32, bool), ShapeError> {
        if let Some(id) = self.find(names) {
            return Ok((id, false));
        }
        let id = self.own.get_or_init(Dictionary::new).push(Shape::new(names)?)?;
        Ok((self.start + id, true))
    }

    /// The first id that is the transaction's own.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.start
    }

    /// The shapes that the transaction has made, in the order of their ids.
    pub(crate) fn own(&self) -> Vec<&Shape> {
        let Some(own) = self.own.get() else { return Vec::new() };
        (0..own.len()).filter_map(|id| own.shape(id)).collect()
    }

    /// The number of shapes.
    pub(crate) fn count(&self) -> u32 {
        self.start + self.own.get().map_or(0, Dictionary::len)
    }
}

impl Shapes for TransactionShapes {
    #[inline]
    fn shape(&self, id: u32) -> Option<&Shape> {
        if id < self.start { self.dictionary.shape(id) } else { self.own.get()?.shape(id - self.start) }
    }
}
