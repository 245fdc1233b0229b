//! What an engine offers so that its file can become shorter while it is in use.

use crate::engine::{KeepsPages, Result, Tree};

/// An entry that keeps the file long: it, or a page on the way to it, is on this page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailEntry {
    /// The last such page.
    pub page: u64,
    /// Whether the page is the first of a value that has pages of its own.
    pub is_large: bool,
    /// The tree that has the entry.
    pub tree: Tree,
    /// The key of the entry.
    pub key: Vec<u8>,
}

/// How full the pages of a tree are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    /// How many leaves it has.
    pub leaf_pages: u64,
    /// How many pages its large values have.
    pub large_pages: u64,
    /// Roughly how many bytes of the leaves have nothing in them.
    pub unfilled: u64,
}

/// Neighbouring leaves whose entries fit into fewer leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underfilled {
    /// The tree that has them.
    pub tree: Tree,
    /// The key of the first entry.
    pub first: Vec<u8>,
    /// How many entries they have.
    pub entries: usize,
}

/// What a write transaction can do with where its pages are. Nothing of it changes an entry.
pub trait MovesPages: KeepsPages {
    /// Have all free pages that no reader can see at hand, so that the lowest ones are taken first.
    /// Returns how many there are.
    ///
    /// # Errors
    /// `NoMemory`, or when the engine finds its list damaged.
    fn gather_free(&mut self) -> Result<u64>;

    /// Have free pages at hand that are next to each other, for a transaction that is about to
    /// change `keys` keys: it then writes them to the disk in fewer pieces. All free pages that no
    /// reader can see are loaded for it, which takes time for each of them.
    ///
    /// # Errors
    /// As `gather_free`.
    fn take_neighbours(&mut self, keys: u64) -> Result<()>;

    /// End the file before the free pages at its end. Returns how many pages that saves.
    ///
    /// # Errors
    /// `Misuse` when the transaction is over.
    fn cut_end(&mut self) -> Result<u64>;

    /// Move the page of an entry and those above it, and the entry's large value, to free pages, if
    /// they are not below `from`. Returns false if there is no such entry, or no room for its
    /// value.
    ///
    /// # Errors
    /// As `WriteTxn::put`.
    fn move_entry(&mut self, tree: Tree, key: &[u8], from: u64) -> Result<bool>;

    /// Put the entries of an underfilled stretch anew, in key order, so that they fill their
    /// leaves. Some room stays in each, so that the next puts do not split them all. The entries go
    /// to the engine as they are: what else is done for a write, as packing a row or forgetting the
    /// dictionaries of a dropped table, is not done for these. Returns how many there are.
    ///
    /// # Errors
    /// As `WriteTxn::put`.
    fn fill(&mut self, underfilled: &Underfilled) -> Result<usize>;
}
