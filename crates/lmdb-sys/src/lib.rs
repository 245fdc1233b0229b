//! Declares the part of LMDB's C interface that the store calls.
//!
//! Types, constants and functions are those of `lmdb/lmdb.h`, which also documents them. The
//! library behind them makes some of its system calls in another way than LMDB does (`system.c`).
//! So an environment that uses locks needs [`pellucid_new_context`] before it is opened.
#![allow(non_camel_case_types, missing_docs, reason = "the names are those of lmdb.h, which describes them")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::RawFd;

pub const MDB_NOSUBDIR: c_uint = 0x4000;
pub const MDB_NOSYNC: c_uint = 0x1_0000;
pub const MDB_RDONLY: c_uint = 0x2_0000;
pub const MDB_NOTLS: c_uint = 0x20_0000;
pub const MDB_NOLOCK: c_uint = 0x40_0000;
pub const MDB_NORDAHEAD: c_uint = 0x80_0000;
pub const MDB_CREATE: c_uint = 0x4_0000;
pub const MDB_CURRENT: c_uint = 0x40;
pub const MDB_RESERVE: c_uint = 0x1_0000;
pub const MDB_APPEND: c_uint = 0x2_0000;

pub const MDB_KEYEXIST: c_int = -30799;
pub const MDB_NOTFOUND: c_int = -30798;
pub const MDB_PAGE_NOTFOUND: c_int = -30797;
pub const MDB_CORRUPTED: c_int = -30796;
pub const MDB_PANIC: c_int = -30795;
pub const MDB_VERSION_MISMATCH: c_int = -30794;
pub const MDB_INVALID: c_int = -30793;
pub const MDB_MAP_FULL: c_int = -30792;
pub const MDB_READERS_FULL: c_int = -30790;
pub const MDB_TXN_FULL: c_int = -30788;
pub const MDB_CURSOR_FULL: c_int = -30787;
pub const MDB_MAP_RESIZED: c_int = -30785;
pub const MDB_INCOMPATIBLE: c_int = -30784;
pub const MDB_BAD_TXN: c_int = -30782;

pub type MDB_cursor_op = c_uint;
pub const MDB_FIRST: MDB_cursor_op = 0;
pub const MDB_LAST: MDB_cursor_op = 6;
pub const MDB_NEXT: MDB_cursor_op = 8;
pub const MDB_PREV: MDB_cursor_op = 12;
pub const MDB_SET: MDB_cursor_op = 15;
pub const MDB_SET_KEY: MDB_cursor_op = 16;
pub const MDB_SET_RANGE: MDB_cursor_op = 17;

pub type MDB_dbi = c_uint;

#[repr(C)]
pub struct MDB_env {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct MDB_txn {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct MDB_cursor {
    _opaque: [u8; 0],
}

/// What is kept for an environment (`system.c`).
#[repr(C)]
pub struct pellucid_context {
    _opaque: [u8; 0],
}

/// Pages one after the other.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pellucid_run {
    pub first: usize,
    pub count: usize,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MDB_val {
    pub mv_size: usize,
    pub mv_data: *mut c_void,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MDB_stat {
    pub ms_psize: c_uint,
    pub ms_depth: c_uint,
    pub ms_branch_pages: usize,
    pub ms_leaf_pages: usize,
    pub ms_overflow_pages: usize,
    pub ms_entries: usize,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MDB_envinfo {
    pub me_mapaddr: *mut c_void,
    pub me_mapsize: usize,
    pub me_last_pgno: usize,
    pub me_last_txnid: usize,
    pub me_maxreaders: c_uint,
    pub me_numreaders: c_uint,
}

unsafe extern "C" {
    pub fn mdb_env_create(env: *mut *mut MDB_env) -> c_int;
    pub fn mdb_env_open(env: *mut MDB_env, path: *const c_char, flags: c_uint, mode: libc::mode_t) -> c_int;
    pub fn mdb_env_close(env: *mut MDB_env);
    pub fn mdb_env_set_userctx(env: *mut MDB_env, context: *mut c_void) -> c_int;
    pub fn mdb_env_set_mapsize(env: *mut MDB_env, size: usize) -> c_int;
    pub fn mdb_env_set_maxreaders(env: *mut MDB_env, readers: c_uint) -> c_int;
    pub fn mdb_env_set_maxdbs(env: *mut MDB_env, trees: MDB_dbi) -> c_int;
    pub fn mdb_env_get_maxkeysize(env: *mut MDB_env) -> c_int;
    pub fn mdb_env_get_fd(env: *mut MDB_env, descriptor: *mut RawFd) -> c_int;
    pub fn mdb_env_info(env: *mut MDB_env, info: *mut MDB_envinfo) -> c_int;
    pub fn mdb_env_stat(env: *mut MDB_env, stat: *mut MDB_stat) -> c_int;
    pub fn mdb_env_sync(env: *mut MDB_env, force: c_int) -> c_int;
    pub fn mdb_reader_check(env: *mut MDB_env, dead: *mut c_int) -> c_int;

    pub fn mdb_txn_begin(
        env: *mut MDB_env,
        parent: *mut MDB_txn,
        flags: c_uint,
        txn: *mut *mut MDB_txn,
    ) -> c_int;
    pub fn mdb_txn_id(txn: *mut MDB_txn) -> usize;
    pub fn mdb_txn_commit(txn: *mut MDB_txn) -> c_int;
    pub fn mdb_txn_abort(txn: *mut MDB_txn);
    pub fn mdb_txn_reset(txn: *mut MDB_txn);
    pub fn mdb_txn_renew(txn: *mut MDB_txn) -> c_int;

    pub fn mdb_dbi_open(txn: *mut MDB_txn, name: *const c_char, flags: c_uint, dbi: *mut MDB_dbi) -> c_int;
    pub fn mdb_stat(txn: *mut MDB_txn, dbi: MDB_dbi, stat: *mut MDB_stat) -> c_int;
    pub fn mdb_drop(txn: *mut MDB_txn, dbi: MDB_dbi, is_deleted: c_int) -> c_int;
    pub fn mdb_get(txn: *mut MDB_txn, dbi: MDB_dbi, key: *mut MDB_val, data: *mut MDB_val) -> c_int;
    pub fn mdb_put(
        txn: *mut MDB_txn,
        dbi: MDB_dbi,
        key: *mut MDB_val,
        data: *mut MDB_val,
        flags: c_uint,
    ) -> c_int;

    pub fn mdb_cursor_open(txn: *mut MDB_txn, dbi: MDB_dbi, cursor: *mut *mut MDB_cursor) -> c_int;
    pub fn mdb_cursor_close(cursor: *mut MDB_cursor);
    pub fn mdb_cursor_get(
        cursor: *mut MDB_cursor,
        key: *mut MDB_val,
        data: *mut MDB_val,
        operation: MDB_cursor_op,
    ) -> c_int;
    pub fn mdb_cursor_put(
        cursor: *mut MDB_cursor,
        key: *mut MDB_val,
        data: *mut MDB_val,
        flags: c_uint,
    ) -> c_int;
    pub fn mdb_cursor_del(cursor: *mut MDB_cursor, flags: c_uint) -> c_int;

    /// The number of pages that the file will have when a write transaction, with the nested
    /// transactions in it, is committed.
    pub fn pellucid_txn_pages(txn: *const MDB_txn) -> usize;

    /// Like `mdb_cursor_put` with `MDB_APPEND` and `MDB_RESERVE`, if the cursor is on the tree's
    /// last entry and the page has room for another one. Otherwise it does nothing and returns
    /// `MDB_NOTFOUND`.
    pub fn pellucid_append(cursor: *mut MDB_cursor, key: *mut MDB_val, data: *mut MDB_val) -> c_int;

    /// The reserved pages, which no transaction uses: their count, then their numbers, descending.
    pub fn pellucid_get_reserve(txn: *mut MDB_txn, list: *mut MDB_val) -> c_int;

    /// Replace that list in an outermost write transaction.
    pub fn pellucid_set_reserve(txn: *mut MDB_txn, list: *mut MDB_val) -> c_int;

    /// Take two pages or more, one after the other, out of the list of free pages, or from the end
    /// of the file. Nothing is written to them.
    pub fn pellucid_take_pages(txn: *mut MDB_txn, count: c_uint, first: *mut usize) -> c_int;

    /// Free pages that no tree has.
    pub fn pellucid_give_pages(txn: *mut MDB_txn, first: usize, count: c_uint) -> c_int;

    /// Put a value of `size` bytes that was written to pages from `first` on, after the head of the
    /// first of them.
    pub fn pellucid_put_placed(
        cursor: *mut MDB_cursor,
        key: *mut MDB_val,
        first: usize,
        size: usize,
    ) -> c_int;

    /// Let go of the version that a read transaction reads. Nothing may be read in it until
    /// `pellucid_unpark` returns 1. It may be ended.
    pub fn pellucid_park(txn: *mut MDB_txn);

    /// Read the same version again, unless a newer one was committed: then 0, and it stays parked.
    pub fn pellucid_unpark(txn: *mut MDB_txn) -> c_int;

    /// Have a read transaction's place in the lock file show another version than it reads, for a
    /// reader that has none. Nothing may be read in it.
    pub fn pellucid_set_reader_version(txn: *mut MDB_txn, version: usize);

    /// Note when a read transaction began, on any clock, in its place in the lock file.
    pub fn pellucid_note_begun(txn: *mut MDB_txn, begun: u64);

    /// How many read transactions there are in all processes; and the version of the oldest one,
    /// its process, and when that noted it to begin: 0 if it did not.
    pub fn pellucid_readers(
        env: *const MDB_env,
        version: *mut usize,
        process: *mut c_int,
        begun: *mut u64,
    ) -> c_uint;

    /// How many reader slots are taken in all processes, also by transactions that are reset.
    pub fn pellucid_taken_slots(env: *const MDB_env) -> c_uint;

    /// The address at which the file is mapped.
    pub fn pellucid_map(env: *const MDB_env) -> *const c_void;

    /// Write changed pages ahead of the commit, if an outermost transaction has more than `most` of
    /// them.
    pub fn pellucid_write_ahead(
        cursor: *mut MDB_cursor,
        key: *mut MDB_val,
        data: *mut MDB_val,
        most: c_uint,
    ) -> c_int;

    /// Split the page after the entry that the cursor is on, if it has no room for this key, which
    /// belongs there and not at the page's end. Otherwise it does nothing. The key is not put.
    pub fn pellucid_split_behind(cursor: *mut MDB_cursor, key: *mut MDB_val, data_size: usize) -> c_int;

    /// Put a new key into a leaf of its own, with room reserved for its data, if it comes after all
    /// keys of a leaf in which less than `room` bytes would be left. Otherwise return
    /// `MDB_NOTFOUND`: the leaf has room for the key, or was split so that it has.
    pub fn pellucid_put_ascending(
        cursor: *mut MDB_cursor,
        key: *mut MDB_val,
        data: *mut MDB_val,
        room: usize,
    ) -> c_int;

    /// Load the list of free pages that no reader can see: until an outermost write transaction
    /// ends, it takes the lowest of all of them. `count` is how many there are.
    pub fn pellucid_load_free(txn: *mut MDB_txn, count: *mut usize) -> c_int;

    /// The loaded free pages: their count, then their numbers, descending. Null if none are loaded.
    /// It is valid until the transaction takes or loads a page.
    pub fn pellucid_free_list(txn: *const MDB_txn) -> *const usize;

    /// Keep only these of the loaded free pages, which descend. The others have to be added again
    /// before an outermost write transaction commits, or has another one in it.
    pub fn pellucid_keep_free(txn: *mut MDB_txn, pages: *const usize, count: usize) -> c_int;

    /// Add pages that were loaded and not kept: their count, then their numbers, descending. If it
    /// fails, the transaction can only be aborted.
    pub fn pellucid_add_free(txn: *mut MDB_txn, pages: *const usize) -> c_int;

    /// Make the file end before the loaded free pages at its end, and return how many these were.
    pub fn pellucid_cut_free(txn: *mut MDB_txn) -> usize;

    /// Whether `count` loaded free pages follow each other and end at or below `before`.
    pub fn pellucid_has_free(txn: *const MDB_txn, count: usize, before: usize) -> c_int;

    /// Copy the page of a key and those above it to the lowest free pages, if one of them is not
    /// below `from`. `large` is the first page of a value with pages of its own, else 0.
    pub fn pellucid_move_page(
        cursor: *mut MDB_cursor,
        key: *mut MDB_val,
        from: usize,
        large: *mut usize,
    ) -> c_int;

    /// The user context (`mdb_env_set_userctx`) for an environment that has its locks on this
    /// descriptor of its lock file, which must stay open as long as the environment; -1 without
    /// locks. Null if there is no memory.
    pub fn pellucid_new_context(lock_descriptor: RawFd) -> *mut pellucid_context;

    /// Free it after the environment is closed.
    pub fn pellucid_free_context(context: *mut pellucid_context);

    /// The versions that read transactions of all processes have, as far as there is room for
    /// them. Returns how many there are.
    pub fn pellucid_reader_versions(env: *const MDB_env, versions: *mut usize, room: c_uint) -> c_uint;

    /// The pages that this process's write transactions have written since this was last called in
    /// an outermost one. They are valid until the transaction ends or writes.
    pub fn pellucid_take_written(txn: *mut MDB_txn, count: *mut usize) -> *const pellucid_run;

    /// The first entry of the list of free pages whose version is not below this one. It is valid
    /// until the transaction writes.
    pub fn pellucid_next_free(txn: *mut MDB_txn, version: *mut usize, list: *mut MDB_val) -> c_int;

    /// Let an outermost write transaction that has changed nothing use pages that no reader can see
    /// although they were freed by versions from `oldest` on. `kept` are the lists that are left
    /// for these versions. After `MDB_NOTFOUND` or an error, the transaction can only be aborted.
    pub fn pellucid_reuse(
        txn: *mut MDB_txn,
        oldest: usize,
        pages: *const MDB_val,
        versions: *const usize,
        kept: *const MDB_val,
        count: usize,
    ) -> c_int;
}
