//! Calls of the operating system that the standard library does not offer.
//!
//! Among them: fork handlers, file locks on bytes, the kind of a file system, reserving disk space.
//! The crate's unsafe code is in `sys`, `engine/lmdb` and `txn/pin.rs` alone.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static AT_FORK: Once = Once::new();

/// Descriptors whose locks belong to one process alone. A fork copies them with their locks, which
/// would then outlive the parent: the child closes them at once.
static OWN_DESCRIPTORS: Descriptors = Descriptors::new();

/// A list of descriptors in blocks. Without a lock, because a fork handler must not wait for
/// another thread; never freed.
struct Descriptors {
    places: [AtomicI32; 256],
    more: OnceLock<Box<Self>>,
}

impl Descriptors {
    const fn new() -> Self {
        Self { places: [const { AtomicI32::new(-1) }; 256], more: OnceLock::new() }
    }

    /// Replace one descriptor by another; -1 is none. Returns whether the old one was there.
    fn swap(&self, old: RawFd, new: RawFd) -> bool {
        let swap = |place: &AtomicI32| {
            place.load(Ordering::Relaxed) == old
                && place.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        self.blocks().any(|block| block.places.iter().any(swap))
    }

    /// Find a free place for a descriptor, or make one.
    fn add(&self, descriptor: RawFd) {
        while !self.swap(-1, descriptor) {
            let last = self.blocks().last().unwrap_or(self);
            last.more.get_or_init(|| Box::new(Self::new()));
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |block| block.more.get().map(|more| &**more))
    }
}

/// How many forks there are between this process and the one that loaded the library. Objects of
/// another generation belong to a parent process and must not be touched.
#[inline]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// A number of the calling thread that no other thread has or will have. The standard library's own
/// needs an atomic addition to read it, several times for each written row.
#[must_use]
pub fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Whether the calling thread is the process's first one. True if the system does not say.
#[must_use]
pub fn is_first_thread() -> bool {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes nothing and cannot fail.
    let is_first = u32::try_from(unsafe { libc::gettid() }) == Ok(std::process::id());
    #[cfg(not(target_os = "linux"))]
    let is_first = true;
    is_first
}

/// Install the fork handlers.
pub(crate) fn watch_forks() {
    AT_FORK.call_once(|| at_fork(nothing, nothing, new_generation));
}

/// Have functions called at each fork: before it, and after it in the parent and in the child, all
/// three by the thread that forks.
pub(crate) fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: the three handlers are functions with the right signature that live as long as the
    // process. Failure (no memory) is reported by the return value and costs only fork detection.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    debug_assert_eq!(failed, 0, "no memory for fork handlers");
}

extern "C" fn nothing() {}

extern "C" fn new_generation() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for place in OWN_DESCRIPTORS.blocks().flat_map(|block| &block.places) {
        let descriptor = place.swap(-1, Ordering::Relaxed);
        if descriptor >= 0 {
            // SAFETY: the descriptor was registered by its owner, an object of the parent's
            // generation which never uses or closes it in this process (`OwnFile` checks the
            // generation).
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Close this descriptor in forked children.
pub(crate) fn close_in_children(descriptor: RawFd) {
    OWN_DESCRIPTORS.add(descriptor);
}

/// Stop doing so: the owner closes this descriptor itself.
pub(crate) fn no_longer_close_in_children(descriptor: RawFd) {
    OWN_DESCRIPTORS.swap(descriptor, -1);
}

/// Begin to write these bytes of a file to its disk, without waiting. Does nothing where the system
/// has no such call.
pub(crate) fn begin_sync(file: &File, bytes: Range<u64>) {
    #[cfg(target_os = "linux")]
    {
        let (start, size) = (bytes.start.cast_signed(), (bytes.end - bytes.start).cast_signed());
        // SAFETY: the descriptor is open during the call, which touches no memory. It does not
        // wait; the next sync gets the errors, as for anything that the system writes by itself.
        unsafe { libc::sync_file_range(file.as_raw_fd(), start, size, libc::SYNC_FILE_RANGE_WRITE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, bytes);
}

/// Bytes that this user may still write on a file's disk. `Unsupported` if its file system does not
/// tell.
pub(crate) fn room_beside(file: &File) -> io::Result<u64> {
    let statvfs = statvfs(file)?;
    if statvfs.f_blocks == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    #[allow(clippy::unnecessary_cast, reason = "the fields have other types elsewhere")]
    Ok((statvfs.f_bavail as u64).saturating_mul(statvfs.f_frsize as u64))
}

fn statvfs(file: &File) -> io::Result<libc::statvfs> {
    let mut buffer = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the descriptor is open while `file` is borrowed, and the buffer has the size that the
    // call fills.
    let failed = unsafe { libc::fstatvfs(file.as_raw_fd(), buffer.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the whole structure.
    Ok(unsafe { buffer.assume_init() })
}

/// Whether a hole of a file takes room when it is only read through a map, so that a reader on a
/// full file system is ended by SIGBUS: on a tmpfs, or perhaps on one below an overlay.
#[cfg(target_os = "linux")]
pub(crate) fn has_holes_that_take_room(file: &File) -> io::Result<bool> {
    let mut buffer = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open while `file` is borrowed, and the buffer has the size that the
    // call fills.
    if unsafe { libc::fstatfs(file.as_raw_fd(), buffer.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the whole structure.
    let kind = unsafe { buffer.assume_init() }.f_type;
    Ok(kind == libc::TMPFS_MAGIC || kind == libc::OVERLAYFS_SUPER_MAGIC)
}

/// Not known of other systems.
#[cfg(not(target_os = "linux"))]
pub(crate) fn has_holes_that_take_room(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// Whether an error says that the disk is full, or the user's quota used up.
pub(crate) fn is_of_room(error: &io::Error) -> bool {
    matches!(system_number(error), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

/// The system's number of an error, also of one that stands for it and says more.
#[must_use]
pub fn system_number(error: &io::Error) -> Option<i32> {
    let is_reserved = || error.kind() == io::ErrorKind::StorageFull;
    error.raw_os_error().or_else(|| is_reserved().then_some(libc::ENOSPC))
}

/// Whether this user may create files in the folder of a file.
pub(crate) fn may_create_beside(file: &Path) -> bool {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(folder) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: the name is NUL-terminated and lives during the call, which keeps nothing.
    unsafe { libc::access(folder.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// Prefetch the cache line at an address.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; the processor ignores addresses that are not mapped.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetch the cache line at an address into the second cache. A processor fetches more lines at a
/// time that way.
#[inline]
pub(crate) fn prefetch_many(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Ask the system for large pages, for memory of at least one such page. Random accesses in a
/// million rows' memory then hit the processor's TLB, and only one page fault is needed for two
/// megabytes.
pub(crate) fn prefer_large_pages<T>(memory: &[T]) {
    const LARGE: usize = 2 << 20;
    #[cfg(target_os = "linux")]
    if std::mem::size_of_val(memory) >= LARGE {
        let page = page_size();
        let start = memory.as_ptr().addr().next_multiple_of(page);
        let end = (memory.as_ptr().addr() + std::mem::size_of_val(memory)) / page * page;
        // SAFETY: whole pages inside of memory that is ours; the call is a hint and does not change
        // their content.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// The page size of maps.
pub(crate) fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: the call only returns a number.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(1 << 16)
    })
}

/// Write all of a file once more, unchanged: after a failed sync the system considers the pages
/// that it has lost as written, so another sync would succeed without writing them.
pub(crate) fn write_again(file: &File) -> io::Result<()> {
    const PART_SIZE: u64 = 1 << 20;
    let size = file.metadata()?.len();
    let mut part = Vec::new();
    let mut at = 0;
    while at < size {
        part.resize((size - at).min(PART_SIZE) as usize, 0);
        file.read_exact_at(&mut part, at)?;
        file.write_all_at(&part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Sync the names in a folder to the disk. If the folder cannot be opened, because this user may
/// not read it or no descriptor is left, sync the whole file system of a file in it instead.
pub(crate) fn sync_names(folder: &Path, file: &File) -> io::Result<()> {
    match File::open(folder) {
        Ok(folder) => folder.sync_all(),
        Err(error) => sync_file_system(file, error),
    }
}

#[cfg(target_os = "linux")]
fn sync_file_system(file: &File, _why: io::Error) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` is borrowed.
    let failed = unsafe { libc::syncfs(file.as_raw_fd()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(_file: &File, why: io::Error) -> io::Result<()> {
    Err(why)
}

/// Give a file this size, and allocate its blocks.
#[cfg(target_os = "linux")]
pub(crate) fn allocate(file: &File, size: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` is borrowed.
    let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size.cast_signed()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// On other systems the file grows as it is written.
#[cfg(not(target_os = "linux"))]
pub(crate) fn allocate(file: &File, size: u64) -> io::Result<()> {
    if file.metadata()?.len() < size { file.set_len(size) } else { Ok(()) }
}

/// Try to lock one byte of a file for this open file (not for the process), or unlock it.
///
/// This lock is independent of `flock`, so one file can have both.
#[cfg(target_os = "linux")]
pub(crate) fn lock_byte(file: &File, offset: i64, is_locked: bool) -> io::Result<bool> {
    set_lock(file, &byte_lock(offset, if is_locked { libc::F_WRLCK } else { libc::F_UNLCK }))
}

/// As `lock_byte`, shared with other open files. It needs no more than the right to read the file.
#[cfg(target_os = "linux")]
pub(crate) fn share_byte(file: &File, offset: i64) -> io::Result<bool> {
    set_lock(file, &byte_lock(offset, libc::F_RDLCK))
}

/// Not called on other systems.
#[cfg(not(target_os = "linux"))]
pub(crate) fn share_byte(_file: &File, _offset: i64) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether locks on bytes of a file are independent of its `flock`, and seen by all processes. On a
/// network file system each `flock` is a lock on all bytes.
pub(crate) fn has_byte_locks(file: &File) -> bool {
    cfg!(target_os = "linux") && matches!(network_file_system(file), Ok(None))
}

#[cfg(target_os = "linux")]
fn set_lock(file: &File, lock: &libc::flock) -> io::Result<bool> {
    // SAFETY: the descriptor is open while `file` is borrowed; the call reads the structure and
    // keeps nothing.
    let failed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, std::ptr::from_ref(lock)) };
    if failed == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Release all byte locks of this open file.
#[cfg(target_os = "linux")]
pub(crate) fn unlock_all_bytes(file: &File) -> io::Result<bool> {
    let mut lock = byte_lock(0, libc::F_UNLCK);
    // To the end, wherever that is.
    lock.l_len = 0;
    set_lock(file, &lock)
}

/// On other systems closing the file does it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn unlock_all_bytes(_file: &File) -> io::Result<bool> {
    Ok(true)
}

/// Lock a byte that another process had locked, if it is free now.
#[cfg(target_os = "linux")]
pub(crate) fn seize_byte(file: &File, offset: i64) -> io::Result<bool> {
    lock_byte(file, offset, true)
}

#[cfg(target_os = "linux")]
fn byte_lock(offset: i64, kind: libc::c_int) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: offset, l_len: 1, l_pid: 0 }
}

/// Whether a byte of a file is locked through another open file.
pub(crate) fn is_byte_locked(file: &File, offset: i64) -> io::Result<bool> {
    is_any_byte_locked(file, offset..offset + 1)
}

/// Whether any of some bytes of a file is locked through another open file.
pub(crate) fn is_any_byte_locked(file: &File, offsets: Range<i64>) -> io::Result<bool> {
    Ok(locked_bytes(file, offsets)?.is_some())
}

/// Some of these bytes of a file that are locked through another open file, if any are.
#[cfg(target_os = "linux")]
pub(crate) fn locked_bytes(file: &File, offsets: Range<i64>) -> io::Result<Option<Range<i64>>> {
    if offsets.is_empty() {
        return Ok(None);
    }
    let mut lock = byte_lock(offsets.start, libc::F_WRLCK);
    lock.l_len = offsets.end - offsets.start;
    // SAFETY: the descriptor is open while `file` is borrowed; the call reads and fills the
    // structure and keeps nothing.
    let failed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    if lock.l_type == libc::F_UNLCK as i16 {
        return Ok(None);
    }
    // A lock without a length goes on to the end of all files.
    let end = if lock.l_len == 0 { i64::MAX } else { lock.l_start.saturating_add(lock.l_len) };
    Ok(Some(lock.l_start.max(offsets.start)..end.min(offsets.end)))
}

/// Other systems cannot tell.
#[cfg(not(target_os = "linux"))]
pub(crate) fn locked_bytes(_file: &File, _offsets: Range<i64>) -> io::Result<Option<Range<i64>>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Other systems have no such lock.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lock_byte(_file: &File, _offset: i64, _is_locked: bool) -> io::Result<bool> {
    Ok(true)
}

/// Other systems cannot tell, so every process is assumed to live.
#[cfg(not(target_os = "linux"))]
pub(crate) fn seize_byte(_file: &File, _offset: i64) -> io::Result<bool> {
    Ok(false)
}

/// Reserve disk space for a part of a file, and extend the file to it. False if the file system
/// does not support that, so that files have to be written when they are created.
#[cfg(target_os = "linux")]
pub(crate) fn reserve(file: &File, offset: u64, size: u64) -> io::Result<bool> {
    // SAFETY: the descriptor is open while `file` is borrowed.
    let failed = unsafe { libc::fallocate(file.as_raw_fd(), 0, offset.cast_signed(), size.cast_signed()) };
    if failed == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(false),
        _ => Err(error),
    }
}

/// Have all running threads of all processes complete the stores that they have made, before what
/// they read next. Takes some milliseconds. False if the system cannot.
#[cfg(target_os = "linux")]
pub(crate) fn memory_barrier() -> bool {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: the call has no pointers and no conditions.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0 }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn memory_barrier() -> bool {
    false
}

/// Milliseconds of a clock that all processes of this machine share: since it started, except for
/// the time that it slept.
pub(crate) fn ticks() -> u64 {
    // A read of one row may take less than asking an exact clock.
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours to be filled.
    unsafe { libc::clock_gettime(CLOCK, &raw mut now) };
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}

/// Give back the room of a part of a file, which reads as zeros from then on. Does nothing where
/// the file system does not support it.
#[cfg(target_os = "linux")]
pub(crate) fn punch(file: &File, offset: u64, size: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open while `file` is borrowed.
    let failed = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset.cast_signed(), size.cast_signed()) };
    if failed == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(()),
        _ => Err(error),
    }
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
pub(crate) fn punch(_file: &File, _offset: u64, _size: u64) -> io::Result<()> {
    Ok(())
}

/// Write all parts, one after the other, from an offset on.
pub(crate) fn write_all_at(file: &File, mut parts: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    const PARTS_MAX: libc::c_int = 16;
    while parts.iter().any(|part| !part.is_empty()) {
        let count = libc::c_int::try_from(parts.len()).unwrap_or(PARTS_MAX).min(PARTS_MAX);
        // SAFETY: an `IoSlice` is an `iovec` (its documentation says so), and the bytes that they
        // borrow live during the call; the descriptor is open while `file` is borrowed.
        let written =
            unsafe { libc::pwritev(file.as_raw_fd(), parts.as_ptr().cast(), count, offset.cast_signed()) };
        match usize::try_from(written) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            Ok(written) => {
                IoSlice::advance_slices(&mut parts, written);
                offset += written as u64;
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Have the system begin to write a part of a file to the disk. A hint: nothing relies on it.
pub(crate) fn begin_write(file: &File, offset: u64, size: u64) {
    #[cfg(target_os = "linux")]
    // SAFETY: the descriptor is open while `file` is borrowed.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset.cast_signed(),
            size.cast_signed(),
            libc::SYNC_FILE_RANGE_WRITE,
        );
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, size);
}

/// Other systems do not guarantee it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn reserve(_file: &File, _offset: u64, _size: u64) -> io::Result<bool> {
    Ok(false)
}

/// Whether a part of a file was never written. False if the file system does not say.
#[cfg(target_os = "linux")]
pub(crate) fn is_hole(file: &File, start: u64, end: u64) -> bool {
    // SAFETY: the descriptor is open while `file` is borrowed; its position is not used.
    let data = unsafe { libc::lseek(file.as_raw_fd(), start.cast_signed(), libc::SEEK_DATA) };
    match u64::try_from(data) {
        Ok(data) => data >= end,
        // No data after the start at all.
        Err(_) => io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO),
    }
}

/// Not called on other systems.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_hole(_file: &File, _start: u64, _end: u64) -> bool {
    false
}

/// The PID namespace of this process, usually its container's; 0 if the system does not say. Not
/// cached: a child may have another one.
pub(crate) fn pid_namespace() -> u32 {
    // "pid:[4026531836]"
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let number = link.to_str().and_then(|link| link.strip_prefix("pid:[")?.strip_suffix(']'));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The name of a network file system, if a file is on one.
#[cfg(target_os = "linux")]
pub(crate) fn network_file_system(file: &File) -> io::Result<Option<&'static str>> {
    let mut buffer = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open while `file` is borrowed, and the buffer has the size that the
    // call fills.
    let failed = unsafe { libc::fstatfs(file.as_raw_fd(), buffer.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the whole structure.
    let statfs = unsafe { buffer.assume_init() };
    #[allow(
        clippy::cast_sign_loss,
        reason = "a magic number of 32 bits, in a field of other types elsewhere"
    )]
    Ok(network_name(statfs.f_type as u32))
}

/// On other systems the numbers have no meaning.
#[cfg(not(target_os = "linux"))]
pub(crate) fn network_file_system(_file: &File) -> io::Result<Option<&'static str>> {
    Ok(None)
}

/// Names for the magic numbers of statfs(2).
fn network_name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => "SMB",
        0x0102_1997 => "9P",
        0x00C3_6400 => "Ceph",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x0BD0_0BD0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x7375_7245 => "Coda",
        0x564C => "NCP",
        0x4750_4653 => "GPFS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{OpenOptions, Range, Store, StoreError, TableId, Wanted};

    const WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn there_is_a_place_for_every_descriptor() {
        let descriptors = Descriptors::new();
        for descriptor in 0..1000 {
            descriptors.add(descriptor);
        }
        assert_eq!(descriptors.blocks().count(), 4);
        for descriptor in (0..1000).rev() {
            assert!(descriptors.swap(descriptor, -1), "{descriptor}");
        }
        assert!(!descriptors.swap(5, -1), "it is gone");
        descriptors.add(5);
        assert_eq!(descriptors.blocks().count(), 4, "places are used again");
    }

    #[test]
    fn knows_network_file_systems_by_their_magic_numbers() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xEF53), None, "ext4 is not one");
        assert_eq!(network_name(0x0102_1994), None, "tmpfs is not one");
    }

    /// Run a closure in a forked child. Returns whether it ended without a panic.
    fn in_child(work: impl FnOnce()) -> bool {
        // SAFETY: the child does what is under test and leaves by `_exit`; it runs no destructor or
        // handler of the parent's, and the code under test has to avoid other threads' locks.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "no room for a child");
        if pid == 0 {
            let is_done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_done)) };
        }
        let mut status = 0;
        // SAFETY: `pid` is our child, and `status` is ours to fill.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        waited == pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    fn key(text: &str) -> Vec<u8> {
        let mut encoder = pellucid_record::key::KeyEncoder::new();
        encoder.str(text.as_bytes());
        encoder.as_bytes().to_vec()
    }

    fn put(store: &Store, table: TableId, text: &str) {
        let mut transaction = store.begin(WAIT).unwrap();
        transaction.put(table, &key(text), b"", b"\x91\x04\x05", &[]).unwrap();
        transaction.commit().unwrap();
    }

    fn new_store(name: &str) -> (Store, TableId, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("pellucid-fork-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let store = Store::open(&path, &OpenOptions::default()).unwrap();
        let mut transaction = store.begin(WAIT).unwrap();
        let table = transaction.create_table("t").unwrap();
        transaction.commit().unwrap();
        put(&store, table, "before");
        (store, table, path)
    }

    #[test]
    fn a_child_opens_the_database_anew_and_leaves_the_parents_alone() {
        let (store, table, path) = new_store("anew");
        let snapshot = store.snapshot().unwrap();
        let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
        assert!(in_child(|| {
            let forked = |what| move |error: &StoreError| matches!(error, StoreError::Forked { what: w } if *w == what);
            assert!(snapshot.get(table, &key("before")).is_err_and(|error| forked("snapshot")(&error)));
            assert!(snapshot.tables().is_err());
            assert!(scan.next().is_err());
            drop(snapshot.clone());
            let own = store.snapshot().unwrap();
            assert!(own.get(table, &key("before")).unwrap().is_some());
            put(&store, table, "child");
            assert_eq!(store.snapshot().unwrap().count(table).unwrap(), 2);
            // A grandchild as well.
            assert!(in_child(|| {
                assert!(own.get(table, &key("before")).is_err());
                put(&store, table, "grandchild");
            }));
            store.close();
        }));
        assert_eq!(snapshot.count(table).unwrap(), 1, "the parent's snapshot is untouched");
        assert!(scan.next().unwrap().is_some() && scan.next().unwrap().is_none());
        assert_eq!(store.snapshot().unwrap().count(table).unwrap(), 3);
        put(&store, table, "after");
        assert_eq!(store.check().unwrap(), []);
        drop((scan, snapshot, store));
        let mut lock = path.clone().into_os_string();
        lock.push("-lock");
        assert!(!std::path::Path::new(&lock).exists(), "the children do not count as openers any more");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_child_cannot_use_the_parents_transaction_and_waits_for_it() {
        let (store, table, path) = new_store("waits");
        let mut transaction = store.begin(WAIT).unwrap();
        transaction.put(table, &key("parent"), b"", b"\x91\x04\x06", &[]).unwrap();
        let parent = std::process::id();
        assert!(in_child(|| {
            let put = transaction.put(table, &key("child"), b"", b"\x91\x04\x06", &[]);
            assert!(matches!(put, Err(StoreError::Forked { what: "transaction" })));
            assert!(matches!(transaction.commit(), Err(StoreError::Forked { .. })));
            transaction.abort();
            let busy = store.begin(Duration::from_millis(20)).err();
            let is_parent = matches!(
                &busy,
                Some(StoreError::Busy { wanted: Wanted::Write, holders, .. }) if holders.iter().any(|h| h.pid == parent)
            );
            assert!(is_parent, "{busy:?}");
        }));
        transaction.put(table, &key("later"), b"", b"\x91\x04\x06", &[]).unwrap();
        transaction.commit().unwrap();
        assert_eq!(store.snapshot().unwrap().count(table).unwrap(), 3, "the child's abort was not ours");
        drop((transaction, store));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_database_in_memory_stays_with_the_parent() {
        let store = Store::memory().unwrap();
        assert!(in_child(|| {
            assert!(matches!(store.snapshot(), Err(StoreError::Forked { .. })));
        }));
        assert!(store.snapshot().is_ok());
    }

    #[test]
    fn forks_while_other_threads_are_busy_with_the_database() {
        let (store, table, path) = new_store("busy");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        put(&store, table, "x");
                        assert!(store.snapshot().unwrap().get(table, &key("x")).unwrap().is_some());
                        drop(Store::open(&path, &OpenOptions::default()).unwrap());
                    }
                });
            }
            let are_well = (0..20).all(|_| {
                in_child(|| {
                    assert!(store.snapshot().unwrap().get(table, &key("before")).unwrap().is_some());
                    put(&store, table, "child");
                })
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(are_well);
        });
        assert_eq!(store.check().unwrap(), []);
        drop(store);
        std::fs::remove_file(path).unwrap();
    }
}
