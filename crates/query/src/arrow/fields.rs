//! The columns of a dict's fields.
//!
//! Columns are found by field name, once for each shape. Fields that earlier dicts had keep their
//! columns. A new field adds a column, with nulls for all earlier rows.

use hashbrown::HashMap;
use pellucid_record::encode::Simple;
use pellucid_record::layout::Kind;
use pellucid_record::view::{Container, Slot, Walker};
use pellucid_record::{Corrupt, Damage, Shapes};

use super::builder::{Builder, Ground, Stop};
use super::data::Data;
use super::kind::Type;

/// Maximum number of fields of one struct. A dict with more is used as a mapping, not as a record,
/// so its column becomes text.
const FIELD_COUNT_MAX: usize = 1024;

/// The columns of a struct: one builder for each field.
#[derive(Default)]
pub(super) struct Fields {
    pub names: Vec<Box<str>>,
    pub builders: Vec<Builder>,
    by_name: HashMap<Box<str>, usize>,
    /// For each shape id, the columns of its fields. The shape that was used last comes first.
    plans: Vec<(u32, Box<[u32]>)>,
}

impl Fields {
    /// Adds a column and returns its index.
    pub fn add(&mut self, name: &str, builder: Builder) -> usize {
        let index = self.builders.len();
        self.names.push(name.into());
        self.builders.push(builder);
        self.by_name.insert(name.into(), index);
        index
    }

    /// The index of the column with this name. Adds the column if there is none.
    pub fn named(&mut self, name: &str) -> usize {
        match self.by_name.get(name) {
            Some(index) => *index,
            None => self.add(name, Builder::of(&Type::Null)),
        }
    }

    /// Removes the column with this name and returns it.
    pub fn take(&mut self, name: &str) -> Option<Builder> {
        let index = self.by_name.remove(name)?;
        self.builders.get_mut(index).map(|builder| std::mem::replace(builder, Builder::of(&Type::Null)))
    }

    /// Whether there are more columns than `FIELD_COUNT_MAX`.
    pub fn is_beyond(&self) -> bool {
        self.builders.len() > FIELD_COUNT_MAX
    }

    /// Whether there are no columns, or all were taken.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Empty columns with these names and types.
    pub fn of(kinds: &[(Box<str>, Type)]) -> Self {
        match Data::of(&Type::Struct(kinds.to_vec())) {
            Data::Struct(_, fields) => *fields,
            _ => Fields::default(),
        }
    }

    /// The names and types of the columns.
    pub fn kinds(&self) -> Vec<(Box<str>, Type)> {
        self.names.iter().zip(&self.builders).map(|(name, builder)| (name.clone(), builder.kind())).collect()
    }

    /// Empty copies of the columns with these types, for the next batch.
    pub fn emptied(&self, kinds: &[(Box<str>, Type)]) -> Self {
        let mut fresh = Self::default();
        for ((name, kind), old) in kinds.iter().zip(&self.builders) {
            fresh.add(name, Builder::like(kind, old));
        }
        // Plans refer to columns by index, and the indexes stay the same.
        fresh.plans.clone_from(&self.plans);
        fresh
    }

    /// Appends a dict. Returns the offset where it ends; None if a key is not a string or there are
    /// too many columns.
    pub fn push<S: Shapes + ?Sized>(
        &mut self,
        row: usize,
        container: &Container,
        record: &[u8],
        depth: u32,
        ground: &Ground<'_, S>,
    ) -> Result<Option<u32>, Stop> {
        if container.kind == Kind::Keyed {
            return self.push_keyed(row, container, record, depth, ground);
        }
        let Some(plan) = self.plan(container, ground.shapes)? else { return Ok(None) };
        let Self { names, builders, plans, .. } = self;
        let Some((_, plan)) = plans.get(plan) else { return Ok(None) };
        let mut walker = Walker::new(*container);
        for index in plan {
            let Some(builder) = builders.get_mut(*index as usize) else { continue };
            let simple = walker.next_simple(record);
            let done = match simple {
                Some(Simple::Int(value)) => builder.push_int(row, value),
                Some(Simple::Float(value)) => builder.push_float(row, value),
                Some(Simple::Str(value)) => builder.push_str(row, value),
                Some(Simple::Bool(value)) => builder.push_bool(row, value),
                Some(Simple::None) => true,
                None => false,
            };
            if done {
                continue;
            }
            let slot = match simple {
                Some(Simple::Int(value)) => Slot::Int(value),
                Some(Simple::Float(value)) => Slot::Float(value),
                Some(Simple::Str(value)) => Slot::Str(value),
                Some(Simple::Bool(value)) => Slot::Bool(value),
                Some(Simple::None) => Slot::None,
                None => match walker.next(record, ground.shapes)? {
                    Some(slot) => slot,
                    None => break,
                },
            };
            let end = builder.push(row, &slot, record, depth + 1, ground);
            let end = end.map_err(|stop| stop.of_field(named(names, *index as usize)))?;
            if matches!(slot, Slot::Container(_)) {
                walker.consumed(end)?;
            }
        }
        Ok(Some(walker.end()))
    }

    /// The index of the shape's plan; None if there are too many columns.
    fn plan<S: Shapes + ?Sized>(&mut self, container: &Container, shapes: &S) -> Result<Option<usize>, Stop> {
        let id = container.shape;
        if matches!(self.plans.first(), Some((known, _)) if *known == id) {
            return Ok(Some(0));
        }
        if let Some(index) = self.plans.iter().position(|(known, _)| *known == id) {
            self.plans.swap(0, index);
            return Ok(Some(0));
        }
        let unknown = || Corrupt::new(Damage::UnknownShape, container.start as usize);
        let shape = shapes.shape(id).ok_or_else(unknown)?;
        let plan = shape.names().iter().map(|name| self.named(name) as u32).collect();
        self.plans.insert(0, (id, plan));
        Ok((self.builders.len() <= FIELD_COUNT_MAX).then_some(0))
    }

    fn push_keyed<S: Shapes + ?Sized>(
        &mut self,
        row: usize,
        container: &Container,
        record: &[u8],
        depth: u32,
        ground: &Ground<'_, S>,
    ) -> Result<Option<u32>, Stop> {
        let mut walker = Walker::new(*container);
        while let Some(key) = walker.next(record, ground.shapes)? {
            let Slot::Str(key) = key else { return Ok(None) };
            let Ok(name) = std::str::from_utf8(key) else {
                return Err(Corrupt::new(Damage::Text, container.start as usize).into());
            };
            let Some(slot) = walker.next(record, ground.shapes)? else { break };
            let index = self.named(name);
            if self.builders.len() > FIELD_COUNT_MAX {
                return Ok(None);
            }
            let Some(builder) = self.builders.get_mut(index) else { continue };
            let end = builder.push(row, &slot, record, depth + 1, ground);
            let end = end.map_err(|stop| stop.of_field(name))?;
            if matches!(slot, Slot::Container(_)) {
                walker.consumed(end)?;
            }
        }
        Ok(Some(walker.end()))
    }
}

fn named(names: &[Box<str>], index: usize) -> &str {
    names.get(index).map_or("", AsRef::as_ref)
}
