//! Turns rows into Arrow columns.
//!
//! One walk over the rows collects every column, in batches, and finds the type of each column on
//! the way. If the values of a column do not fit the type that was assumed, the result is
//! [`Gathered::Again`], and the caller walks the rows once more with the types that are known now.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use pellucid_record::Shapes;
use pellucid_record::view::{Root, Slot, root};
use pellucid_store::{Large, Row};

use super::builder::{Builder, Ground, Stop};
use super::fields::Fields;
use super::freeze;
use super::kind::Type;
use crate::column::Column;
use crate::fault::Fault;
use crate::walk::{Walk, for_each};

/// Maximum number of rows in one batch.
const BATCH_ROW_COUNT_MAX: usize = 1 << 16;
/// Record bytes after which a batch ends. This keeps the text of each batch below the 2 GiB that an
/// Arrow string array can hold.
const BATCH_SIZE_MAX: usize = 1 << 28;
/// The name of the column for rows that are not dicts.
const VALUE: &str = "value";

/// Column names and the types of their values.
pub type Kinds = Vec<(Box<str>, Type)>;

/// The columns that the caller asks for.
#[derive(Clone)]
pub enum Wanted {
    /// All fields that any row has, in the order in which they are first seen.
    All,
    /// These columns.
    Chosen(Vec<(Box<str>, Column)>),
}

/// A table of Arrow columns, in batches.
#[derive(Clone, Debug)]
pub struct Table {
    /// Names and types.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
    /// The paths of columns, and of fields inside of them, that are text because no other type
    /// holds all their values.
    pub texts: Vec<String>,
}

/// Adds the paths of `Table::texts` in one column.
fn add_texts(path: String, kind: &Type, texts: &mut Vec<String>) {
    match kind {
        Type::Text => texts.push(path),
        Type::List(inner) => add_texts(path + "[*]", inner, texts),
        Type::Struct(fields) => {
            for (name, kind) in fields {
                add_texts(format!("{path}.{name}"), kind, texts);
            }
        }
        _ => {}
    }
}

/// The first name of a column, or of a field inside one, that Arrow's C interface cannot pass on.
/// That interface ends names at a NUL.
#[must_use]
pub fn unnamable(columns: &Table) -> Option<String> {
    fn first<'a>(mut fields: impl Iterator<Item = &'a FieldRef>) -> Option<String> {
        fields.find_map(|field| {
            if field.name().contains('\0') {
                return Some(field.name().clone());
            }
            match field.data_type() {
                DataType::Struct(fields) => first(fields.iter()),
                DataType::List(field) => first(std::iter::once(field)),
                _ => None,
            }
        })
    }
    first(columns.schema.fields().iter())
}

/// The reason why no columns can be made.
#[derive(Debug)]
pub struct Refusal {
    /// The column's name.
    pub column: String,
    /// The key of the row, where it is known.
    pub key: Option<Vec<u8>>,
    /// What is wrong with its value.
    pub why: String,
}

/// The outcome of a walk.
#[derive(Debug)]
pub enum Gathered {
    /// The columns.
    Done(Table),
    /// Some types differ from those that were assumed: walk the rows once more with these.
    Again(Kinds),
    /// A value that no column can hold.
    Refused(Refusal),
    /// A string that is not valid UTF-8.
    Damaged(Refusal),
}

/// The table for an empty result.
#[must_use]
pub fn nothing(wanted: &Wanted) -> Table {
    let names: Vec<_> = match wanted {
        Wanted::All => Vec::new(),
        Wanted::Chosen(columns) => columns.iter().map(|(name, _)| Type::Null.field(name)).collect(),
    };
    Table { schema: Arc::new(Schema::new(names)), batches: Vec::new(), texts: Vec::new() }
}

/// The collected rows of one batch.
struct Batch {
    fields: Fields,
    kinds: Type,
    row_count: usize,
}

/// The batches of some of the rows, in row order.
pub struct Part {
    batches: Vec<Batch>,
    kinds: Type,
    is_again: bool,
    refusal: Option<Refusal>,
}

/// Collects rows into batches.
struct Gatherer {
    fields: Fields,
    row_count: usize,
    size: usize,
    part: Part,
}

/// Collects the columns of the rows. `known` holds the types that the previous walk found.
///
/// # Errors
/// Damage, or `is_stopped` said yes.
pub fn gather<S: Shapes + ?Sized>(
    rows: &mut impl Walk,
    shapes: &S,
    wanted: &mut Wanted,
    known: &Kinds,
    large: &dyn Large,
    is_stopped: impl Fn() -> bool,
) -> Result<Part, Fault> {
    let mut gatherer = Gatherer::new(wanted, known);
    let ground = Ground { shapes, large };
    let refusal = for_each(rows, is_stopped, |row| {
        let done = match wanted {
            Wanted::All => gatherer.take_all(&row, &ground),
            Wanted::Chosen(columns) => gatherer.take(columns, &row, &ground),
        };
        match done {
            Ok(()) => {}
            Err(Stop::Corrupt(error)) => return crate::walk::damaged(&row, error),
            Err(Stop::Store(error)) => return ControlFlow::Break(Err(Fault::Store(error))),
            Err(Stop::Refused { column, why }) => {
                return ControlFlow::Break(Ok(Refusal { column, key: Some(row.key.to_vec()), why }));
            }
        }
        gatherer.row_count += 1;
        gatherer.size += row.record.len();
        if gatherer.row_count == BATCH_ROW_COUNT_MAX || gatherer.size > BATCH_SIZE_MAX {
            gatherer.cut();
        }
        ControlFlow::Continue(())
    })?;
    gatherer.cut();
    Ok(Part { refusal, ..gatherer.part })
}

impl Gatherer {
    fn new(wanted: &Wanted, known: &Kinds) -> Self {
        let fields = match wanted {
            Wanted::Chosen(columns) if known.is_empty() => {
                let kinds: Kinds = columns.iter().map(|(name, _)| (name.clone(), Type::Null)).collect();
                Fields::of(&kinds)
            }
            _ => Fields::of(known),
        };
        Self { fields, row_count: 0, size: 0, part: Part::default() }
    }

    /// Appends the wanted columns of a row.
    #[inline]
    fn take<S: Shapes + ?Sized>(
        &mut self,
        columns: &mut [(Box<str>, Column)],
        row: &Row<'_>,
        ground: &Ground<'_, S>,
    ) -> Result<(), Stop> {
        let at = self.row_count;
        for ((name, column), builder) in columns.iter_mut().zip(&mut self.fields.builders) {
            let place = column.place(row.record);
            let is_done = place.is_some_and(|place| builder.push_place(at, &place, row.record));
            if !is_done {
                take_slowly(column, builder, at, row, ground).map_err(|stop| stop.of_field(name))?;
            }
        }
        Ok(())
    }

    /// Appends all fields of a row.
    fn take_all<S: Shapes + ?Sized>(&mut self, row: &Row<'_>, ground: &Ground<'_, S>) -> Result<(), Stop> {
        let slot = match root(row.record, ground.shapes)? {
            Root::Container(container) if container.kind.is_dict() => {
                return match self.fields.push(self.row_count, &container, row.record, 0, ground)? {
                    Some(_) => Ok(()),
                    None if self.fields.is_beyond() => Err(Stop::refused(
                        "fields beyond the 1,024 columns that the rows may have together, at most",
                    )),
                    None => Err(Stop::refused("keys that are no names")),
                };
            }
            Root::Container(container) => Slot::Container(container),
            Root::Scalar(slot) => slot,
        };
        let index = self.fields.named(VALUE);
        match self.fields.builders.get_mut(index) {
            Some(builder) => {
                builder
                    .push(self.row_count, &slot, row.record, 0, ground)
                    .map_err(|stop| stop.of_field(VALUE))?;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Ends the current batch and starts the next one.
    fn cut(&mut self) {
        let own = self.fields.kinds();
        let fresh = self.fields.emptied(&own);
        let fields = std::mem::replace(&mut self.fields, fresh);
        let own = Type::Struct(own);
        let is_again = fields.builders.iter().any(Builder::is_lost);
        self.part.add(Batch { fields, kinds: own, row_count: self.row_count }, is_again);
        self.row_count = 0;
        self.size = 0;
    }
}

impl Default for Part {
    fn default() -> Self {
        Self { batches: Vec::new(), kinds: Type::Struct(Vec::new()), is_again: false, refusal: None }
    }
}

impl Part {
    /// Joins parts that follow each other into one.
    #[must_use]
    pub fn joined(parts: Vec<Part>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.join(part.kinds, part.is_again);
            if all.refusal.is_none() {
                all.refusal = part.refusal;
            }
            all.batches.extend(part.batches);
        }
        all
    }

    fn join(&mut self, kinds: Type, is_again: bool) {
        self.kinds = std::mem::replace(&mut self.kinds, Type::Null).join(kinds);
        self.is_again |= is_again;
    }

    fn add(&mut self, batch: Batch, is_again: bool) {
        self.join(batch.kinds.clone(), is_again);
        if self.is_again {
            // The rows are walked once more, so the batches so far are not needed.
            self.batches.clear();
        } else if batch.row_count > 0 {
            self.batches.push(batch);
        }
    }

    /// The columns, if every batch can be converted to the types that all batches share.
    #[must_use]
    pub fn finish(self) -> Gathered {
        if let Some(refusal) = self.refusal {
            return Gathered::Refused(refusal);
        }
        let kinds = self.kinds;
        let is_again = self.is_again || !self.batches.iter().all(|batch| batch.kinds.becomes(&kinds));
        let Type::Struct(kinds) = kinds else { return Gathered::Again(Vec::new()) };
        if is_again {
            return Gathered::Again(kinds);
        }
        let fields: Vec<_> = kinds.iter().map(|(name, kind)| kind.field(name)).collect();
        let schema = Arc::new(Schema::new(fields));
        let mut batches = Vec::with_capacity(self.batches.len());
        for Batch { fields, row_count, .. } in self.batches {
            let options = RecordBatchOptions::new().with_row_count(Some(row_count));
            let made = freeze::columns_of(fields, row_count, &kinds).and_then(|columns| {
                RecordBatch::try_new_with_options(schema.clone(), columns, &options)
                    .map_err(|error| (String::new(), error))
            });
            match made {
                Ok(batch) => batches.push(batch),
                Err((column, error)) => {
                    return Gathered::Damaged(Refusal { column, key: None, why: error.to_string() });
                }
            }
        }
        let mut texts = Vec::new();
        for (name, kind) in &kinds {
            add_texts(name.to_string(), kind, &mut texts);
        }
        Gathered::Done(Table { schema, batches, texts })
    }
}

#[inline(never)]
fn take_slowly<S: Shapes + ?Sized>(
    column: &mut Column,
    builder: &mut Builder,
    at: usize,
    row: &Row<'_>,
    ground: &Ground<'_, S>,
) -> Result<(), Stop> {
    match column.read(row, ground.shapes)? {
        Some((slot, record)) => builder.push(at, &slot, record, 0, ground).map(|_| ()),
        None => Ok(()),
    }
}
