//! Dumps a record as annotated hex, for people.
//!
//! Each line has an offset, the bytes and their meaning. Every byte is in exactly one line,
//! including gaps and damaged parts, so a dump of any bytes is complete. Not for programs: the text
//! may change in any release.

use std::fmt::Write;

use crate::envelope::{Envelope, is_envelope};
use crate::error::Result;
use crate::keyed;
use crate::layout::{
    BLOCK_SLOTS, DEPTH_MAX, ENVELOPE_HEAD_SIZE, Kind, ROOT_HEAD_SIZE, SCALAR_HEAD_SIZE, tag,
};
use crate::payload;
use crate::shape::{Shape, Shapes};
use crate::view::{self, Container, Root, Slot};
use crate::walk::Walker;

/// Bytes in one line.
const LINE_SIZE: usize = 16;
/// A longer part is shown by its first bytes.
const PART_SIZE_MAX: usize = 8 * LINE_SIZE;
/// Characters of a string that are shown.
const TEXT_SIZE_MAX: usize = 40;

/// The dump of a record, or of an envelope with its own tables.
///
/// ```
/// use pellucid_record::{dump::dump, value::NoShapes};
/// let text = dump(&[0x91, 0x04, 0x05], &NoShapes);
/// assert!(text.ends_with("int 5\n"));
/// ```
#[must_use]
pub fn dump<S: Shapes + ?Sized>(bytes: &[u8], shapes: &S) -> String {
    if is_envelope(bytes) {
        return dump_envelope(bytes);
    }
    let mut dump = Dump { bytes, shapes, at: 0, out: String::new() };
    let result = match view::root(bytes, shapes) {
        Ok(Root::Container(container)) => dump.container(&container, 0, "").map(drop),
        Ok(Root::Scalar(slot)) => dump.scalar(&slot),
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        let _ = writeln!(dump.out, "damaged: {error}");
    }
    dump.gap(bytes.len(), 0);
    dump.out
}

fn dump_envelope(bytes: &[u8]) -> String {
    let shapes: &[Shape] = &[];
    let mut dump = Dump { bytes, shapes, at: 0, out: String::new() };
    let envelope = match Envelope::parse(bytes) {
        Ok(envelope) => envelope,
        Err(error) => {
            let _ = writeln!(dump.out, "damaged: {error}");
            dump.gap(bytes.len(), 0);
            return dump.out;
        }
    };
    let fits = if envelope.checksum_fits(bytes) { "which fits" } else { "which does not fit" };
    let head = format!("envelope: {} keys, {} bytes of tables", envelope.key_count, envelope.tables.len());
    dump.line(0, 8, 0, &head);
    dump.line(8, ENVELOPE_HEAD_SIZE, 0, &format!("checksum, {fits}"));
    match envelope.shapes() {
        Ok(shapes) => {
            let lists: Vec<String> = shapes
                .iter()
                .enumerate()
                .map(|(id, shape)| format!("{id}: {}", shape.names().join(", ")))
                .collect();
            dump.line(
                ENVELOPE_HEAD_SIZE,
                envelope.record_offset(),
                0,
                &format!("shapes {}", lists.join("; ")),
            );
            let _ = writeln!(dump.out, "the record, from byte {} on:", envelope.record_offset());
            dump.out += &self::dump(envelope.record, &shapes);
        }
        Err(error) => {
            let _ = writeln!(dump.out, "damaged: {error}");
            dump.gap(bytes.len(), 0);
        }
    }
    dump.out
}

struct Dump<'a, S: ?Sized> {
    bytes: &'a [u8],
    shapes: &'a S,
    /// All bytes before this offset are in the dump.
    at: usize,
    out: String,
}

impl<S: Shapes + ?Sized> Dump<'_, S> {
    /// Adds a line for the bytes from `start` to `end`, after lines for any bytes before it that
    /// have none yet.
    fn line(&mut self, start: usize, end: usize, level: usize, meaning: &str) {
        self.gap(start, level);
        let from = self.at.max(start);
        let part = self.bytes.get(from..end).unwrap_or_default();
        let shown = if part.len() > PART_SIZE_MAX { part.get(..LINE_SIZE).unwrap_or_default() } else { part };
        let mut rest =
            if part.len() > shown.len() { format!(" ({} bytes in all)", part.len()) } else { String::new() };
        let mut text = meaning;
        for (index, bytes) in shown.chunks(LINE_SIZE).enumerate() {
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let offset = from + index * LINE_SIZE;
            let line =
                format!("{offset:5}  {:48}  {:indent$}{text}{rest}", hex.join(" "), "", indent = 2 * level);
            self.out += line.trim_end();
            self.out.push('\n');
            text = "";
            rest.clear();
        }
        if shown.is_empty() {
            let _ = writeln!(self.out, "{start:5}  {:48}  {:indent$}{text}", "", "", indent = 2 * level);
        }
        self.at = self.at.max(end.min(self.bytes.len()));
    }

    fn gap(&mut self, end: usize, level: usize) {
        if self.at < end.min(self.bytes.len()) {
            self.line(self.at, end, level, "unused");
        }
    }

    fn scalar(&mut self, slot: &Slot<'_>) -> Result<()> {
        self.line(0, SCALAR_HEAD_SIZE, 0, "a scalar; its tag");
        self.payload(slot, SCALAR_HEAD_SIZE, self.bytes.len(), 0, "")
    }

    /// Adds a payload of any kind. `start` is the first byte of its size, if that comes before it,
    /// otherwise its own.
    fn payload(
        &mut self,
        slot: &Slot<'_>,
        start: usize,
        end: usize,
        level: usize,
        label: &str,
    ) -> Result<()> {
        let meaning = format!("{label}{}", describe(slot));
        let Some(inner) = slot.payload_container(self.bytes, self.shapes)? else {
            self.line(start, end, level, &meaning);
            return Ok(());
        };
        self.line(start, inner.start as usize, level, &meaning);
        self.container(&inner, level + 1, "")?;
        if let Slot::Heap { tag: tag::NDARRAY, payload, offset } = *slot {
            let array = payload::ndarray(self.bytes, self.shapes, offset, payload.len() as u32)?;
            self.line(array.data_offset as usize, end, level + 1, "data");
        }
        Ok(())
    }

    /// Adds a container with its content. Returns its end.
    fn container(&mut self, container: &Container, level: usize, label: &str) -> Result<u32> {
        let (start, slots) = (container.start as usize, container.slots as usize);
        let width = 1 << container.width_log2;
        let what = match container.kind {
            Kind::Shaped => format!("dict of shape {}, slots of {width}", container.shape),
            Kind::Keyed => format!("dict with its keys, {} entries, slots of {width}", container.len()),
            Kind::PackedInts => format!("list of {} packed ints of {width}", container.count),
            Kind::PackedFloats => format!("list of {} packed floats", container.count),
            kind => format!("{} of {}, slots of {width}", name_of(kind), container.count),
        };
        self.line(start, slots, level, &format!("{label}{what}"));
        if level as u32 >= DEPTH_MAX {
            return Ok(container.heap);
        }
        if container.kind.is_packed() {
            self.packed(container, level + 1)?;
            return Ok(container.heap);
        }
        for first in (0..container.count).step_by(BLOCK_SLOTS as usize) {
            self.block(container, first, level + 1);
        }
        self.index(container, level + 1);
        self.heap(container, level + 1)
    }

    fn packed(&mut self, container: &Container, level: usize) -> Result<()> {
        let per_line = (LINE_SIZE >> container.width_log2) as u32;
        for first in (0..container.count).step_by(per_line as usize) {
            let last = container.count.min(first + per_line);
            let mut values = Vec::new();
            for index in first..last {
                values.push(describe(&container.slot(self.bytes, self.shapes, index)?));
            }
            let start = container.position(first).0;
            let size = ((last - first) as usize) << container.width_log2;
            self.line(start, start + size, level, &values.join(", "));
        }
        Ok(())
    }

    fn block(&mut self, container: &Container, first: u32, level: usize) {
        let (tags, slots) = container.position(first);
        let end = container.count.min(first + BLOCK_SLOTS);
        self.line(tags, slots, level, "tags");
        for index in first..end {
            let (_, slot_offset) = container.position(index);
            let label = self.label(container, index);
            let meaning = match container.slot(self.bytes, self.shapes, index) {
                Ok(Slot::Container(inner)) => format!("a container at {}", inner.start),
                Ok(slot) if container.tag(self.bytes, index) >= Some(tag::HEAP) => {
                    let (payload, size) = extent(&slot);
                    let at = if payload == 0 { self.offset_of(container, index) } else { payload };
                    format!("{} of {size} bytes at {at}", type_of(&slot))
                }
                Ok(slot) => describe(&slot),
                Err(error) => format!("damaged: {error}"),
            };
            self.line(
                slot_offset,
                slot_offset + (1 << container.width_log2),
                level,
                &format!("{label}{meaning}"),
            );
        }
    }

    fn index(&mut self, container: &Container, level: usize) {
        let (start, end) = (container.index_start() as usize, container.heap as usize);
        for (place, at) in (start..end).step_by(8).enumerate() {
            let meaning = match keyed::index_entry(self.bytes, container, place as u32) {
                Ok((hash, entry)) => format!("index: hash {hash:08x}, entry {entry}"),
                Err(error) => format!("damaged: {error}"),
            };
            self.line(at, at + 8, level, &meaning);
        }
    }

    fn heap(&mut self, container: &Container, level: usize) -> Result<u32> {
        let mut walker = Walker::new(*container);
        loop {
            let index = walker.index();
            let Some(slot) = walker.next(self.bytes, self.shapes)? else { break };
            let label = self.label(container, index);
            if let Slot::Container(inner) = slot {
                let end = self.container(&inner, level, &label)?;
                walker.consumed(end)?;
            } else if container.tag(self.bytes, index) >= Some(tag::HEAP) {
                let start = self.offset_of(container, index);
                let start = if container.width_log2 == 3 { start.min(walker.end() as usize) } else { start };
                self.payload(&slot, start, walker.end() as usize, level, &label)?;
            }
        }
        Ok(walker.end())
    }

    /// The offset of a slot's heap entry.
    fn offset_of(&self, container: &Container, index: u32) -> usize {
        container.start as usize
            + (container.bits(self.bytes, index).unwrap_or_default() & 0xFFFF_FFFF) as usize
    }

    fn label(&self, container: &Container, index: u32) -> String {
        match container.kind {
            Kind::Shaped => {
                let name =
                    self.shapes.shape(container.shape).and_then(|shape| shape.name(index)).unwrap_or("?");
                format!("{name}: ")
            }
            Kind::Keyed if index.is_multiple_of(2) => format!("key {}: ", index / 2),
            Kind::Keyed => format!("value {}: ", index / 2),
            _ => format!("[{index}]: "),
        }
    }
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::List => "list",
        Kind::Tuple => "tuple",
        Kind::Set => "set",
        Kind::FrozenSet => "frozenset",
        _ => "dict",
    }
}

/// Offset and size of a payload; the offset is 0 if the slot does not have it.
fn extent(slot: &Slot<'_>) -> (usize, usize) {
    match slot {
        Slot::Str(text) => (0, text.len()),
        Slot::Heap { payload, offset, .. } => (*offset as usize, payload.len()),
        _ => (0, 0),
    }
}

fn type_of(slot: &Slot<'_>) -> &'static str {
    match slot {
        Slot::Str(_) => "str",
        Slot::Heap { tag, .. } => match *tag {
            tag::STR_SURROGATES => "str with surrogates",
            tag::BYTES => "bytes",
            tag::BYTEARRAY => "bytearray",
            tag::BIGINT => "int",
            tag::DECIMAL => "Decimal",
            tag::COMPLEX => "complex",
            tag::UUID => "UUID",
            tag::TIMEDELTA => "timedelta",
            tag::TIME => "time",
            tag::AWARE => "datetime",
            tag::NDARRAY => "array",
            tag::REGISTERED => "object of a registered class",
            tag::PICKLE => "pickle",
            tag::OVERFLOW => "value lying apart",
            _ => "?",
        },
        _ => "?",
    }
}

/// A short description of a value.
fn describe(slot: &Slot<'_>) -> String {
    match slot {
        Slot::Absent => "absent".into(),
        Slot::None => "None".into(),
        Slot::Bool(true) => "True".into(),
        Slot::Bool(false) => "False".into(),
        Slot::Int(value) => format!("int {value}"),
        Slot::Float(value) => format!("float {value:?}"),
        Slot::Date(ordinal) => format!("date, ordinal {ordinal}"),
        Slot::Datetime(value) => format!("datetime, {} us, fold {}", value >> 1, value & 1),
        Slot::Str(text) => format!("str {}", shortened(text)),
        Slot::Container(container) => format!("a container at {}", container.start),
        Slot::Heap { payload, .. } => match describe_payload(slot) {
            Some(text) => format!("{} {text}", type_of(slot)),
            None => format!("{} of {} bytes", type_of(slot), payload.len()),
        },
    }
}

fn describe_payload(slot: &Slot<'_>) -> Option<String> {
    let Slot::Heap { tag, payload, .. } = *slot else { return None };
    match tag {
        tag::STR_SURROGATES => Some(shortened(payload)),
        tag::DECIMAL => payload::decimal(payload).map(Into::into),
        tag::COMPLEX => payload::complex(payload).map(|(real, imaginary)| format!("{real:?} {imaginary:?}")),
        tag::TIMEDELTA => payload::timedelta(payload)
            .map(|delta| format!("{} days, {} s, {} us", delta.days, delta.seconds, delta.micros)),
        tag::TIME => payload::time(payload)
            .map(|time| format!("{} us, fold {}{}", time.micros, u8::from(time.fold), zone_text(time.zone))),
        tag::AWARE => payload::aware(payload).map(|aware| {
            let (fold, zone) = (u8::from(aware.fold), zone_text(Some(aware.zone)));
            format!("{} us, fold {fold}, UTC offset {} us{zone}", aware.local, aware.offset)
        }),
        tag::OVERFLOW => payload::overflow(payload).map(|overflow| {
            format!("tag {:#04x}, blob {}, {} bytes", overflow.tag, overflow.blob, overflow.size)
        }),
        _ => None,
    }
}

fn zone_text(zone: Option<payload::Zone<'_>>) -> String {
    match zone {
        None => String::new(),
        Some(payload::Zone::Fixed { offset, name }) => format!(", zone {offset} us {name:?}"),
        Some(payload::Zone::Key(key)) => format!(", zone {key}"),
    }
}

fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    if text.chars().count() <= TEXT_SIZE_MAX {
        return format!("{text:?}");
    }
    let begin: String = text.chars().take(TEXT_SIZE_MAX).collect();
    format!("{begin:?}...")
}

const _: () = assert!(ROOT_HEAD_SIZE <= LINE_SIZE, "a head stands in one line");
