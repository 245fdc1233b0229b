//! Large values, stored outside of their records.

use std::sync::Arc;

use pellucid_store::{Snapshot, StoreError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors;

/// A large value, and what keeps its bytes.
pub enum Large {
    /// In a snapshot, under this id.
    Held(Snapshot, u64),
    /// A copy, out of a transaction.
    Copied(Vec<u8>),
    /// What the commit wrote that a watch reports.
    Reported(Arc<[u8]>),
    /// What a server has sent.
    Fetched(PyBackedBytes),
}

impl Large {
    /// The value with this id in a snapshot; None if it is gone.
    ///
    /// # Errors
    /// What the store raises.
    pub fn held(snapshot: &Snapshot, id: u64) -> Result<Option<Self>, StoreError> {
        match snapshot.blob(id) {
            Ok(_) => Ok(Some(Self::Held(snapshot.clone(), id))),
            Err(StoreError::NoSuchBlob { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A copy of what was found; None if it is gone.
    ///
    /// # Errors
    /// The error that was found, and `NoMemory`.
    pub fn copied(found: Result<&[u8], StoreError>) -> Result<Option<Self>, StoreError> {
        match found {
            Ok(data) => {
                let mut copy = Vec::new();
                let reserved = copy.try_reserve_exact(data.len());
                reserved.map_err(|_| StoreError::NoMemory { what: "a large value" })?;
                copy.extend_from_slice(data);
                Ok(Some(Self::Copied(copy)))
            }
            Err(StoreError::NoSuchBlob { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The bytes. Those of a snapshot stay at their address while it lives.
    pub fn bytes(&self) -> &[u8] {
        match self {
            // It was found before, and a snapshot does not change; in a forked child it cannot be
            // read any more.
            Self::Held(snapshot, id) => snapshot.blob(*id).unwrap_or_default(),
            Self::Copied(copy) => copy,
            Self::Reported(bytes) => bytes,
            Self::Fetched(bytes) => bytes,
        }
    }
}

/// What a record has in the place of a large value.
pub struct Reference {
    /// The tag of the value.
    pub tag: u8,
    /// The id of its bytes.
    pub id: u64,
    /// How many bytes it has.
    pub size: u64,
}

impl Reference {
    /// Reads the payload of `OVERFLOW`.
    ///
    /// # Errors
    /// `ValueError` for other bytes.
    pub fn parse(payload: &[u8]) -> PyResult<Self> {
        let damaged = || errors::value_error("a reference to a value apart is damaged");
        let reference: &[u8; 17] = payload.try_into().map_err(|_| damaged())?;
        let (tag, rest) = reference.split_first().ok_or_else(damaged)?;
        let (id, size) = rest.split_first_chunk().ok_or_else(damaged)?;
        let size = size.first_chunk().ok_or_else(damaged)?;
        Ok(Self { tag: *tag, id: u64::from_le_bytes(*id), size: u64::from_le_bytes(*size) })
    }
}
