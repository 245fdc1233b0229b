//! A value that is encoded, and what it still needs from the server.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors;
use crate::server::codec::ServerCodec;
use crate::server::stored;
use crate::values::encode::{self, Encoded};
use crate::values::missing_ids::{write_large_ids, write_shape_ids};
use crate::values::names::ShapeNames;

/// An encoded value that needs ids: of new shapes, and of values that are stored outside of it.
#[pyclass(frozen, module = "pellucid", name = "ServerEncoded")]
#[expect(clippy::vec_box, reason = "names stay where they are: others point there")]
pub struct ServerEncoded {
    codec: Py<ServerCodec>,
    record: Vec<u8>,
    pending: Vec<Box<ShapeNames>>,
    large: Vec<Py<PyBytes>>,
}

impl ServerEncoded {
    /// What `encoded` needs.
    pub fn new(py: Python<'_>, codec: Py<ServerCodec>, encoded: Encoded) -> Self {
        let record = encoded.encoder.bytes().to_vec();
        let large = encoded.overflow.iter().map(|bytes| PyBytes::new(py, bytes).unbind()).collect();
        encode::recycle(py, encoded.encoder);
        Self { codec, record, pending: encoded.pending, large }
    }

    /// The record with its ids.
    ///
    /// # Errors
    /// `ValueError` for too few ids.
    pub fn record(&self, py: Python<'_>, shape_ids: &[u32], large_ids: &[u64]) -> PyResult<Vec<u8>> {
        if shape_ids.len() != self.pending.len() || large_ids.len() != self.large.len() {
            return Err(errors::value_error("each new shape and each large value needs an id"));
        }
        let names = &self.codec.get().names;
        let mut record = self.record.clone();
        write_large_ids(&mut record, names, &self.pending, large_ids)
            .and_then(|()| write_shape_ids(&mut record, names, &self.pending, shape_ids))
            .map_err(|error| errors::corrupt_record(py, error.to_string()))?;
        Ok(record)
    }
}

#[pymethods]
impl ServerEncoded {
    /// The new shapes, each as the bytes of its names.
    #[getter]
    fn shapes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let names = self.pending.iter().map(|shape| {
            PyBytes::new(py, &stored::bytes_of_names(shape.shape.names().iter().map(AsRef::as_ref)))
        });
        PyList::new(py, names)
    }

    /// The values that are stored outside of the record.
    #[getter]
    fn large<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.large.iter().map(|bytes| bytes.bind(py)))
    }

    /// The bytes to store, with these ids of the shapes and of the large values.
    fn value<'py>(
        &self,
        py: Python<'py>,
        shape_ids: Vec<u32>,
        large_ids: Vec<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let record = self.record(py, &shape_ids, &large_ids)?;
        Ok(PyBytes::new(py, &stored::value_of(self.codec.get().dictionary().len(), &record)))
    }
}
