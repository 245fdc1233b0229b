//! The shapes of a server's database, as this client knows them, and the validity of its rows.
//!
//! A server gives each shape its id, in ascending order and without gaps. So what a client knows is
//! the first shapes, and learning the others needs only their number.

use pellucid_record::layout::Kind;
use pellucid_record::path::{Step, slot_index};
use pellucid_record::shape::{Admission, Dictionary, Shape, ShapeDecision};
use pellucid_record::view::Container;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors;
use crate::hot::gil::{GilCell, GilRc};
use crate::server::stored;
use crate::values::hooks::PicklePolicy;
use crate::values::names::{Names, Source};
use crate::values::row::ValidityFlag;

/// Whether rows that were read may still be read: they end with their database, snapshot or
/// transaction.
#[pyclass(frozen, module = "pellucid", name = "ServerValidity")]
pub struct ServerValidity {
    /// The flag.
    pub validity: GilRc<ValidityFlag>,
}

#[pymethods]
impl ServerValidity {
    #[new]
    fn new() -> Self {
        Self { validity: ValidityFlag::new() }
    }

    /// Makes its rows raise `StaleRecord` from now on.
    fn close(&self) {
        self.validity.close();
    }

    /// Makes its rows be read again on their next use, since a transaction was rolled back.
    fn invalidate(&self) {
        self.validity.roll_back();
    }
}

/// What turns values into the bytes of one server's database, and back.
#[pyclass(frozen, module = "pellucid", name = "ServerCodec")]
pub struct ServerCodec {
    /// The names of its shapes.
    pub names: GilRc<Names>,
    /// The pickle policy of the database.
    pub policy: PicklePolicy,
    admission: GilCell<Admission>,
}

impl ServerCodec {
    /// The shapes that this client knows.
    pub fn dictionary(&self) -> &Dictionary {
        self.names.source().dictionary()
    }

    /// Decides what to do with a list of keys; without `may_admit`, none becomes a shape.
    pub fn decide_shape(
        &self,
        py: Python<'_>,
        table: u32,
        names: &[&str],
        is_root: bool,
        may_admit: bool,
    ) -> ShapeDecision {
        let dictionary = self.dictionary();
        if !may_admit {
            return dictionary.find(names).map_or(ShapeDecision::Keyed, ShapeDecision::Known);
        }
        self.admission.with(py, |admission| admission.decide_shape(dictionary, table, names, is_root))
    }
}

#[pymethods]
impl ServerCodec {
    #[new]
    #[pyo3(signature = (pickle=None))]
    fn new(pickle: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self {
            names: GilRc::new(Names::new(Source::Own(Dictionary::new()))),
            policy: PicklePolicy::new(pickle)?,
            admission: GilCell::new(Admission::new()),
        })
    }

    /// How many shapes the client knows.
    #[getter]
    fn shape_count(&self) -> u32 {
        self.dictionary().len()
    }

    /// Learns the shapes with the ids from `first` on; those that are known are passed over.
    ///
    /// Raises `DatabaseCorrupt` if the bytes are no names, or a shape between is missing.
    fn learn(&self, py: Python<'_>, first: u32, shapes: Vec<PyBackedBytes>) -> PyResult<()> {
        let dictionary = self.dictionary();
        for (id, bytes) in (first..).zip(&shapes) {
            if id < dictionary.len() {
                continue;
            }
            let shape = stored::names_of_bytes(bytes).and_then(|names| Shape::new(&names).ok());
            let learned = shape.and_then(|shape| dictionary.push(shape).ok());
            if learned != Some(id) {
                let message =
                    format!("shape {id} of the database is damaged, or shapes before it are missing");
                return Err(errors::raise(py, "DatabaseCorrupt", message));
            }
        }
        Ok(())
    }

    /// The offsets of the tag and the slot of an int in a stored value; None if the name is no
    /// field of a shaped dict, or has no int. They depend on the bytes 4 to 12 alone.
    fn int_place(&self, value: &[u8], name: &str) -> Option<(usize, usize)> {
        let (record, shapes) = (stored::record_of(value), self.dictionary());
        let dict = Container::root(record, shapes).ok().filter(|root| root.kind == Kind::Shaped)?;
        let index = slot_index(record, shapes, &dict, Step::Field(name)).ok()??;
        dict.int(record, index)?;
        let (tag, slot) = dict.position(index);
        Some((stored::HEAD_SIZE + tag, stored::HEAD_SIZE + slot))
    }

    /// The ids of shapes, given by the bytes of their names; None for one that is unknown.
    fn ids_of(&self, shapes: Vec<PyBackedBytes>) -> Vec<Option<u32>> {
        let dictionary = self.dictionary();
        let id_of = |bytes: &PyBackedBytes| dictionary.find(&stored::names_of_bytes(bytes)?);
        shapes.iter().map(id_of).collect()
    }
}
