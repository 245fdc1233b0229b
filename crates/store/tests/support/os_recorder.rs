//! Records file writes and syncs, and builds images of what a power cut may leave.
//!
//! This program's own `pwrite`, `fdatasync` and others replace those of the C library, for
//! everything linked into it, including the engine. They do the system call, and look at the files
//! of one folder before and after it. So it is known what each page held at each moment, and since
//! when the disk must have it. An image of a moment has every page as it was at some moment since
//! its last sync, and torn pages made of several.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

use crate::support::Chance;

const PAGE: usize = 4096;
/// A disk writes this many bytes atomically.
const SECTOR: usize = 512;
/// The atomic unit of memory that is written to during a sync, as the log is: a sector on its way
/// to the disk may include parts that were stored a moment later.
const LINE: usize = 64;

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

/// Everything that was seen of a folder.
#[derive(Default)]
pub struct Recorder {
    folder: PathBuf,
    folder_id: u64,
    /// Which names led to which files, and the time of each moment.
    moments: Vec<(BTreeMap<String, u64>, Instant)>,
    files: HashMap<u64, History>,
    folder_syncs: Vec<Sync>,
}

/// The content of a file, with the moments of its changes.
#[derive(Default)]
struct History {
    newest: Vec<u8>,
    sizes: Vec<(usize, usize)>,
    pages: HashMap<usize, Vec<(usize, Vec<u8>)>>,
    syncs: Vec<Sync>,
    synced_pages: Vec<SyncedPage>,
}

/// A page that the disk has since one moment, at least as new as it was at another one.
struct SyncedPage {
    page: usize,
    held_at: usize,
    since: usize,
}

/// A sync: the last moment before it and the first one after it.
#[derive(Clone, Copy)]
struct Sync {
    begin: usize,
    end: usize,
}

fn lock() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Start to record a folder.
pub fn start(folder: &Path) {
    let folder_id = std::fs::metadata(folder).unwrap().ino();
    *lock() = Some(Recorder { folder: folder.to_owned(), folder_id, ..Recorder::default() });
    look();
}

/// Store the current content of the files. Returns the number of this moment.
pub fn look() -> usize {
    lock().as_mut().unwrap().look()
}

/// Stop, and return the record.
pub fn stop() -> Recorder {
    lock().take().unwrap()
}

impl Recorder {
    fn look(&mut self) -> usize {
        let moment = self.moments.len();
        let mut names = BTreeMap::new();
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            // The engine's lock file has no meaning after a restart. A file that is gone now was
            // there a moment ago.
            let Ok(file) = std::fs::File::open(entry.path()) else { continue };
            let id = file.metadata().unwrap().ino();
            if !name.ends_with("-lock") {
                let mut held = Vec::new();
                std::io::Read::read_to_end(&mut &file, &mut held).unwrap();
                self.files.entry(id).or_default().note(moment, held);
                names.insert(name, id);
            }
        }
        self.moments.push((names, Instant::now()));
        moment
    }

    /// The number of moments.
    pub fn count(&self) -> usize {
        self.moments.len()
    }

    /// The time of a moment.
    pub fn time(&self, moment: usize) -> Instant {
        self.moments[moment].1
    }

    /// The moment up to which the disk has the content of the file whose name ends so, seen from a
    /// later moment.
    pub fn synced_until(&self, suffix: &str, moment: usize) -> Option<usize> {
        let (names, _) = &self.moments[moment];
        let (_, id) = names.iter().find(|(name, _)| name.ends_with(suffix))?;
        let named_at = self.moments.iter().position(|(names, _)| names.values().any(|named| named == id))?;
        let sync = last(&self.folder_syncs, moment).filter(|sync| sync.begin >= named_at);
        sync.and_then(|_| last(&self.files[id].syncs, moment)).map(|sync| sync.begin)
    }

    /// Whether some content of this file is not synced at a moment.
    pub fn is_unsynced(&self, name: &str, moment: usize) -> bool {
        let Some(history) = self.moments[moment].0.get(name).and_then(|id| self.files.get(id)) else {
            return false;
        };
        let base = last(&history.syncs, moment).map_or(0, |sync| sync.begin);
        let is_later = |(at, _): &(usize, Vec<u8>)| *at > base && *at <= moment;
        history.pages.values().any(|versions| versions.iter().any(is_later))
    }

    /// The size of a file at a moment, or 0.
    pub fn size(&self, name: &str, moment: usize) -> usize {
        self.moments[moment].0.get(name).map_or(0, |id| self.files[id].size_at(moment))
    }

    /// Whether any part of this file was ever synced.
    pub fn is_ever_synced(&self, name: &str) -> bool {
        let mut ids = self.moments.iter().filter_map(|(names, _)| names.get(name));
        ids.any(|id| !self.files[id].syncs.is_empty() || !self.files[id].synced_pages.is_empty())
    }

    /// Build, in another folder, what a power cut at a moment may leave.
    pub fn leave(&self, moment: usize, chance: &mut Chance, target: &Path) -> String {
        let base = last(&self.folder_syncs, moment).map_or(0, |sync| sync.begin);
        let listed = if chance.one_in(2) { moment } else { base + chance.below(moment - base + 1) };
        let mut told = format!("moment {moment}, names as at {listed}");
        for (name, id) in &self.moments[listed].0 {
            let manner = chance.below(6);
            let is_mapped = name.ends_with("-log");
            let image = self.files[id].image(moment, manner, is_mapped, chance);
            let _ = write!(told, "; {name}: {} bytes, manner {manner}", image.len());
            std::fs::write(target.join(name), image).unwrap();
        }
        keep_unsynced_file(target);
        told
    }
}

/// A log has the inode of a file that may not be on the disk yet. Here the file has another inode
/// than where it was written.
fn keep_unsynced_file(target: &Path) {
    for entry in std::fs::read_dir(target).unwrap() {
        let log = entry.unwrap().path();
        let Some(file) = log.to_str().and_then(|name| name.strip_suffix("-log")) else { continue };
        let mut image = std::fs::read(&log).unwrap();
        if let Ok(metadata) = std::fs::metadata(file)
            && image.len() >= 48
            && image[40..48] != [0; 8]
        {
            image[40..48].copy_from_slice(&metadata.ino().to_le_bytes());
            std::fs::write(&log, image).unwrap();
        }
    }
}

fn last(syncs: &[Sync], moment: usize) -> Option<Sync> {
    syncs.iter().rev().find(|sync| sync.end <= moment).copied()
}

impl History {
    fn note(&mut self, moment: usize, held: Vec<u8>) {
        if self.sizes.last().is_none_or(|(_, size)| *size != held.len()) {
            self.sizes.push((moment, held.len()));
        }
        for (page, bytes) in held.chunks(PAGE).enumerate() {
            let before = self.newest.chunks(PAGE).nth(page).unwrap_or_default();
            if before != bytes {
                let mut whole = bytes.to_vec();
                whole.resize(PAGE, 0);
                self.pages.entry(page).or_default().push((moment, whole));
            }
        }
        self.newest = held;
    }

    fn note_synced(&mut self, offset: usize, size: usize, held_at: usize, since: usize) {
        let pages = offset / PAGE..(offset + size).div_ceil(PAGE);
        self.synced_pages.extend(pages.map(|page| SyncedPage { page, held_at, since }));
    }

    fn size_at(&self, moment: usize) -> usize {
        self.sizes.iter().rev().find(|(from, _)| *from <= moment).map_or(0, |(_, size)| *size)
    }

    /// The file as a power cut may leave it: each page as it was at some moment since it was
    /// synced.
    fn image(&self, moment: usize, manner: usize, is_mapped: bool, chance: &mut Chance) -> Vec<u8> {
        let base = last(&self.syncs, moment).map(|sync| sync.begin);
        // In one manner everything is as it was at one moment: writes reached the disk in order.
        let at = base.unwrap_or(0) + chance.below(moment - base.unwrap_or(0) + 1);
        let size = match manner {
            0 => base.map_or(0, |base| self.size_at(base)),
            1 | 4 => self.size_at(moment),
            _ => self.size_at(at),
        };
        let mut image = vec![0; size];
        let torn = chance.below(size.div_ceil(PAGE).max(1));
        for (page, place) in image.chunks_mut(PAGE).enumerate() {
            let versions = self.versions(page, base, moment);
            let (oldest, newest) = (versions[0].1, versions[versions.len() - 1].1);
            let in_order =
                versions.iter().rev().find(|(from, _)| *from <= at).map_or(oldest, |(_, bytes)| *bytes);
            let any = |chance: &mut Chance| chance.below(versions.len());
            let whole = if manner == 2 { versions[any(chance)].1 } else { newest };
            for (number, sector) in place.chunks_mut(SECTOR).enumerate() {
                let mut next = None;
                let from = match manner {
                    0 => oldest,
                    1 | 2 => whole,
                    3 => {
                        let index = any(chance);
                        next = versions.get(index + 1).filter(|_| is_mapped);
                        versions[index].1
                    }
                    4 if page == torn && chance.one_in(2) => oldest,
                    4 => newest,
                    _ => in_order,
                };
                for (line, part) in sector.chunks_mut(LINE).enumerate() {
                    let from = next.filter(|_| chance.one_in(2)).map_or(from, |(_, bytes)| *bytes);
                    let begin = number * SECTOR + line * LINE;
                    part.copy_from_slice(&from[begin..begin + part.len()]);
                }
            }
        }
        image
    }

    /// The possible contents of a page, oldest first, each with the moment at which it began.
    fn versions(&self, page: usize, base: Option<usize>, moment: usize) -> Vec<(usize, &[u8])> {
        static ZEROS: [u8; PAGE] = [0; PAGE];
        let known = self.pages.get(&page).map_or(&[][..], |versions| versions);
        let synced = self.synced_pages.iter().filter(|synced| synced.page == page && synced.since <= moment);
        let base = base.max(synced.map(|synced| synced.held_at).max());
        let before = known.iter().rev().find(|(from, _)| base.is_some_and(|base| *from <= base));
        let mut found = vec![before.map_or((0, &ZEROS[..]), |(from, bytes)| (*from, &bytes[..]))];
        let later = known.iter().filter(|(from, _)| *from <= moment && base.is_none_or(|base| *from > base));
        found.extend(later.map(|(from, bytes)| (*from, &bytes[..])));
        found
    }
}

/// The effect of a call on a file.
enum Call {
    Write { offset: usize, size: usize },
    Sync,
    SyncPart { offset: usize, size: usize },
}

/// Look, make the call, look again; only for files in the folder.
fn around(descriptor: c_int, call: &Call, act: impl FnOnce() -> isize) -> isize {
    let id = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).map(|metadata| metadata.ino()).ok();
    let is_synchronous = || flags_of(descriptor) & libc::O_DSYNC != 0;
    around_file(id, call, is_synchronous, act)
}

fn around_file(
    id: Option<u64>,
    call: &Call,
    is_synchronous: impl FnOnce() -> bool,
    act: impl FnOnce() -> isize,
) -> isize {
    let is_known = |id: &u64| lock().as_ref().is_some_and(|recorder| recorder.knows(*id));
    let Some(id) = id.filter(is_known) else { return act() };
    let begin = lock().as_mut().map(Recorder::look);
    let result = act();
    let mut recorder = lock();
    let (Some(recorder), Some(begin)) = (recorder.as_mut(), begin) else { return result };
    let end = recorder.look();
    let sync = Sync { begin, end };
    if result < 0 {
        return result;
    }
    match call {
        Call::Sync if id == recorder.folder_id => recorder.folder_syncs.push(sync),
        Call::Sync => recorder.files.entry(id).or_default().syncs.push(sync),
        Call::SyncPart { offset, size } => {
            recorder.files.entry(id).or_default().note_synced(*offset, *size, begin, end);
        }
        Call::Write { offset, size } if is_synchronous() => {
            recorder.files.entry(id).or_default().note_synced(*offset, *size, end, end);
        }
        Call::Write { .. } => {}
    }
    result
}

impl Recorder {
    fn knows(&self, id: u64) -> bool {
        id == self.folder_id
            || self.moments.last().is_some_and(|(names, _)| names.values().any(|named| *named == id))
            || {
                let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
                entries
                    .filter(|entry| !entry.file_name().to_string_lossy().ends_with("-lock"))
                    .any(|entry| entry.metadata().is_ok_and(|metadata| metadata.ino() == id))
            }
    }
}

/// The file that is mapped at an address, and the offset in it.
fn mapped_at(address: usize) -> Option<(u64, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let (start, end) = fields.first()?.split_once('-')?;
        let (start, end) = (number(start)?, number(end)?);
        let offset = number(fields.get(2)?)?;
        (start..end).contains(&address).then_some(())?;
        Some((fields.get(4)?.parse().ok()?, offset + (address - start)))
    })
}

fn flags_of(descriptor: c_int) -> c_int {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| c_int::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0)
}

// Replace the C library's functions, under both of the names that each of them has there.

/// `pwrite`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, size: size_t, offset: off_t) -> ssize_t {
    let call = Call::Write { offset: offset.max(0) as usize, size };
    // SAFETY: the system call requires what the caller has promised.
    around(fd, &call, || unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, size, offset) as isize })
}

/// `pwrite64`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, size: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the same function.
    unsafe { pwrite(fd, bytes, size, offset) }
}

/// `pwritev`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    let call = Call::Write { offset: offset.max(0) as usize, size: 0 };
    // SAFETY: what the caller has promised is what the system call asks for.
    around(fd, &call, || unsafe { libc::syscall(libc::SYS_pwritev, fd, parts, count, offset, 0) as isize })
}

/// `pwritev64`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the same function.
    unsafe { pwritev(fd, parts, count, offset) }
}

/// `fdatasync`.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the call has no memory to do with.
    around(fd, &Call::Sync, || unsafe { libc::syscall(libc::SYS_fdatasync, fd) as isize }) as c_int
}

/// `fsync`.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: the call has no memory to do with.
    around(fd, &Call::Sync, || unsafe { libc::syscall(libc::SYS_fsync, fd) as isize }) as c_int
}

/// `msync`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(address: *mut c_void, size: size_t, flags: c_int) -> c_int {
    let (id, offset) = mapped_at(address as usize).unzip();
    let call = Call::SyncPart { offset: offset.unwrap_or(0), size };
    // SAFETY: what the caller has promised is what the system call asks for.
    let act = || unsafe { libc::syscall(libc::SYS_msync, address, size, flags) as isize };
    around_file(id, &call, || true, act) as c_int
}
