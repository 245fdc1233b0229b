//! A file for tests.

use std::path::PathBuf;

use crate::engine::lmdb::lock_path_of;
use crate::engine::lmdb::{LmdbEngine, LmdbOptions, PageChoice};
use crate::engine::{Engine as _, TreeFile as _};

/// A database that is removed at the end.
pub(super) struct Scratch {
    engine: Option<LmdbEngine>,
    pub(super) path: PathBuf,
}

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        Self::with(name, LmdbOptions::default())
    }

    /// A database in which LMDB chooses all pages.
    pub(super) fn left_to_lmdb(name: &str) -> Self {
        Self::with(name, LmdbOptions { page_choice: PageChoice::Lmdb, ..LmdbOptions::default() })
    }

    fn with(name: &str, options: LmdbOptions) -> Self {
        let path = std::env::temp_dir().join(format!("pellucid-pages-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let engine = LmdbEngine::create(&path, options, &mut |_, _| Vec::new()).unwrap();
        Self { engine: Some(engine), path }
    }

    pub(super) fn engine(&self) -> &LmdbEngine {
        self.engine.as_ref().unwrap()
    }

    pub(super) fn pages(&self) -> u64 {
        self.engine().usage().unwrap().pages
    }

    /// Every page is in one tree, or free once.
    pub(super) fn prove(&self) {
        self.engine().prove(&mut std::iter::empty()).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.engine = None;
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(lock_path_of(&self.path));
    }
}
