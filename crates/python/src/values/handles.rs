//! The classes `Record` and `RecordList`: a place in a row, as a Python object. Their methods are
//! in `record.rs` and `record_list.rs`.

use std::ffi::CStr;

use pellucid_record::shape::Dictionary;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::hot::gil::GilRc;
use crate::values::alloc::{Handle, Pool};
use crate::values::names::{Names, Source};
use crate::values::node::Node;
use crate::values::row::{Row, ValidityFlag};

/// A stored dict, read in place.
///
/// Fields are attributes and items, and an access decodes only the field that it reads. A record of
/// a table is attached: fields and elements that you set, delete or append in it, at any depth, are
/// saved at once.
///
/// That holds for dicts and lists, also inside of tuples. A set, a bytearray, and an object of a
/// registered class or a pickle are copies, made anew by each access: `rec.s.add(1)` changes a copy
/// and is not saved, while `rec.s |= {1}` is. A NumPy array is read-only.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["fred"] = {"name": "Fred", "age": 21, "tags": ["a"]}
/// >>> fred = db["fred"]
/// >>> fred.age += 1
/// >>> fred.tags.append("b")
/// >>> db["fred"]
/// {'name': 'Fred', 'age': 22, 'tags': ['a', 'b']}
/// >>> fred["roles"] = {"cook"}
/// >>> fred.roles |= {"baker"}
/// >>> sorted(db["fred"].roles)
/// ['baker', 'cook']
#[pyclass(frozen, mapping, weakref, module = "pellucid", name = "Record")]
pub struct Record {
    /// The place of the dict.
    pub node: Node,
}

/// A stored list, read in place.
///
/// It is a `MutableSequence`. In a record of a table it is attached: elements that you append, set
/// or remove are saved at once, and only this list is encoded again.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["numbers"] = [1, 2, 3]
/// >>> numbers = db["numbers"]
/// >>> numbers.append(4)
/// >>> numbers[-1], len(numbers), db["numbers"]
/// (4, 4, [1, 2, 3, 4])
#[pyclass(frozen, sequence, weakref, module = "pellucid", name = "RecordList")]
pub struct RecordList {
    /// The place of the list.
    pub node: Node,
}

/// Makes a class of handles. A generic implementation would have one pool for all classes.
macro_rules! handle {
    ($class:ident, $full_name:literal) => {
        impl Handle for $class {
            const FULL_NAME: &'static CStr = $full_name;

            #[inline]
            fn is_tracked(&self) -> bool {
                self.node.row.is_tracked()
            }

            fn held(&self, py: Python<'_>) -> *mut ffi::PyObject {
                let Node { row, parent, .. } = &self.node;
                parent.as_ref().map_or_else(|| row.exporter(py), |(parent, _)| parent.bind(py).as_ptr())
            }

            #[inline]
            fn pool() -> &'static Pool {
                static POOL: Pool = Pool::new();
                &POOL
            }

            fn sample(py: Python<'_>) -> PyResult<Bound<'_, Self>> {
                Bound::new(py, Self { node: sample_node() })
            }
        }
    };
}

handle!(Record, c"pellucid.Record");
handle!(RecordList, c"pellucid.RecordList");

/// A place in an empty row, for the sample handle whose memory layout `alloc` measures.
fn sample_node() -> Node {
    let names = GilRc::new(Names::new(Source::Own(Dictionary::new())));
    let row = Row::owned(&[], &[], names, ValidityFlag::new(), None, None);
    Node::root(GilRc::new(row), false)
}

/// The node of one of our handles.
pub fn node_of<'a>(handle: &'a Bound<'_, PyAny>) -> PyResult<&'a Node> {
    if let Ok(record) = handle.cast_exact::<Record>() {
        return Ok(&record.get().node);
    }
    if let Ok(list) = handle.cast_exact::<RecordList>() {
        return Ok(&list.get().node);
    }
    // Handles that the collector tracks belong to subclasses.
    match handle.cast::<Record>() {
        Ok(record) => Ok(&record.get().node),
        Err(_) => Ok(&handle.cast::<RecordList>()?.get().node),
    }
}
