//! Which columns do the fields of a dict go to?
//!
//! By name, found once for each shape. A dict's fields that were met before keep their places; new ones are columns more, with
//! nulls up to here.

use hashbrown::HashMap;
use pellucid_record::encode::Simple;
use pellucid_record::layout::Kind;
use pellucid_record::view::{Container, Slot, Walker};
use pellucid_record::{Corrupt, Damage, Shapes};

use super::builder::{Builder, Ground, Stop};
use super::data::Data;
use super::kind::Type;

/// Fields of one struct. A dict with more is no record but a mapping; its column becomes text.
const FIELD_COUNT_MAX: usize = 1024;

/// The columns of dicts.
#[derive(Default)]
pub(super) struct Fields {
    pub names: Vec<Box<str>>,
    pub builders: Vec<Builder>,
    by_name: HashMap<Box<str>, usize>,
    /// Of a shape: which columns its fields go to. The one met last comes first.
    plans: Vec<(u32, Box<[u32]>)>,
}

impl Fields {
    /// A column more; which it is.
    pub fn add(&mut self, name: &str, builder: Builder) -> usize {
        let index = self.builders.len();
        self.names.push(name.into());
        self.builders.push(builder);
        self.by_name.insert(name.into(), index);
        index
    }

    /// The column of this name.
    pub fn named(&mut self, name: &str) -> usize {
        match self.by_name.get(name) {
            Some(index) => *index,
            None => self.add(name, Builder::of(&Type::Null)),
        }
    }

    /// Takes the column of this name out.
    pub fn take(&mut self, name: &str) -> Option<Builder> {
        let index = self.by_name.remove(name)?;
        self.builders.get_mut(index).map(|builder| std::mem::replace(builder, Builder::of(&Type::Null)))
    }

    /// Whether there are more than there may be.
    pub fn is_beyond(&self) -> bool {
        self.builders.len() > FIELD_COUNT_MAX
    }

    /// Whether all columns were taken out, or none was there.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The columns with these names, and the types that they had the last time.
    pub fn of(kinds: &[(Box<str>, Type)]) -> Self {
        match Data::of(&Type::Struct(kinds.to_vec())) {
            Data::Struct(_, fields) => *fields,
            _ => Fields::default(),
        }
    }

    /// Names and types.
    pub fn kinds(&self) -> Vec<(Box<str>, Type)> {
        self.names.iter().zip(&self.builders).map(|(name, builder)| (name.clone(), builder.kind())).collect()
    }

    /// The same columns, of these types, without what is in them: for the next batch.
    pub fn emptied(&self, kinds: &[(Box<str>, Type)]) -> Self {
        let mut fresh = Self::default();
        for ((name, kind), old) in kinds.iter().zip(&self.builders) {
            fresh.add(name, Builder::like(kind, old));
        }
        // Shapes name columns by their places, which stay.
        fresh.plans.clone_from(&self.plans);
        fresh
    }

    /// Takes a dict. Returns where it ends; None where its keys are no names, or too many.
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

    /// Which plan has the columns of a shape; None where they are too many.
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
