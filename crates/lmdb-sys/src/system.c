/* LMDB with other system calls, and with functions that it lacks.
 *
 * This file includes mdb.c, which is as its authors wrote it, behind macros that replace three of the system calls it makes:
 *
 * - fcntl: on Linux LMDB's locks are open file description locks, on a descriptor that the caller opened. POSIX locks, which LMDB
 *   asks for, belong to the process: it loses all of them when any code in it closes any descriptor of the lock file, as a
 *   backup of the folder does. Other processes then take its readers for dead and overwrite the pages that these read.
 *   The descriptor of the locks is another one than that of the map: a forked child inherits the map, and with it the open file that was
 *   mapped, and would keep that one's locks after its parent's death.
 * - open: the lock file is one that the caller opened before, never a symbolic link to it.
 * - pwrite, pwritev: a short write goes on. Linux writes at most 0x7ffff000 bytes in one call, and a disk that is nearly full takes a
 *   part; the write behind that says ENOSPC, where LMDB would say EIO. And what pwritev writes is noted: the pages of a transaction.
 *
 * Behind it, functions read LMDB's state and change its pages, its list of free pages and its table of readers. docs/internals/lmdb.md
 * says why, and what an update of LMDB has to verify again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lmdb.h"

#ifdef __linux__
#define MDB_USE_PWRITEV 1
#undef F_GETLK
#undef F_SETLK
#undef F_SETLKW
#define F_GETLK F_OFD_GETLK
#define F_SETLK F_OFD_SETLK
#define F_SETLKW F_OFD_SETLKW
#endif

/* Pages one behind the other. */
struct pellucid_run {
	size_t first, count;
};

/* No transaction writes more runs, or they are not known. */
enum { PELLUCID_RUNS_MAX = 1 << 16 };

/* What is kept for an environment, as its user context. */
struct pellucid_context {
	/* The descriptor that the caller opened of the lock file, or -1. */
	int lock_descriptor;
	/* What this process's write transactions have written since it was last asked. Guarded by LMDB's writer lock. */
	struct pellucid_run *runs;
	size_t run_count, run_room;
};

struct pellucid_context *pellucid_new_context(int lock_descriptor)
{
	struct pellucid_context *context = calloc(1, sizeof *context);

	if (context)
		context->lock_descriptor = lock_descriptor;
	return context;
}

/* After the environment is closed. */
void pellucid_free_context(struct pellucid_context *context)
{
	if (context)
		free(context->runs);
	free(context);
}

static struct pellucid_context *pellucid_context_of(const MDB_env *env)
{
	return mdb_env_get_userctx((MDB_env *)env);
}

static int pellucid_lock_descriptor(const MDB_env *env)
{
	const struct pellucid_context *context = pellucid_context_of(env);

	return context ? context->lock_descriptor : -1;
}

/* Note that pages are written. If there is no memory for it, they are forgotten. */
static void pellucid_note_run(struct pellucid_context *context, size_t first, size_t count)
{
	struct pellucid_run *last = context->runs + context->run_count;

	if (context->run_count && last[-1].first + last[-1].count == first) {
		last[-1].count += count;
		return;
	}
	if (context->run_count == context->run_room) {
		size_t room = context->run_room ? 2 * context->run_room : 64;
		struct pellucid_run *runs =
			room > PELLUCID_RUNS_MAX ? NULL : realloc(context->runs, room * sizeof *runs);
		if (!runs)
			return;
		context->runs = runs;
		context->run_room = room;
		last = runs + context->run_count;
	}
	last->first = first;
	last->count = count;
	context->run_count++;
}

static int pellucid_open(const MDB_env *env, int is_lock_file, const char *path, int flags, mode_t mode)
{
	struct stat held, found;
	int descriptor;

	if (!is_lock_file)
		return open(path, flags | O_CLOEXEC, mode);
	if (fstat(pellucid_lock_descriptor(env), &held) != 0)
		return -1;
	descriptor = open(path, (flags & ~O_CREAT) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (descriptor < 0)
		return -1;
	/* Else another file has got the name since the caller opened it. */
	if (fstat(descriptor, &found) == 0 && found.st_dev == held.st_dev && found.st_ino == held.st_ino)
		return descriptor;
	close(descriptor);
	errno = ESTALE;
	return -1;
}

static ssize_t pellucid_pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
	size_t done = 0;

	while (done < size) {
		ssize_t count = pwrite(descriptor, (const char *)bytes + done, size - done, offset + (off_t)done);
		if (count > 0) {
			done += (size_t)count;
		} else if (count == 0) {
			errno = ENOSPC;
			return -1;
		} else if (errno != EINTR) {
			return -1;
		}
	}
	return (ssize_t)done;
}

#ifdef MDB_USE_PWRITEV
static ssize_t pellucid_pwritev_once(int descriptor, const struct iovec *parts, int count, off_t offset)
{
	ssize_t written = pwritev(descriptor, parts, count, offset);
	size_t total = 0, skipped;
	int part;

	if (written < 0)
		return written;
	/* What is left of a short write, part by part. */
	skipped = (size_t)written;
	for (part = 0; part < count; part++) {
		size_t size = parts[part].iov_len;
		if (skipped < size) {
			const char *rest = (const char *)parts[part].iov_base + skipped;
			if (pellucid_pwrite(descriptor, rest, size - skipped, offset + (off_t)(total + skipped)) < 0)
				return -1;
			skipped = size;
		}
		skipped -= size;
		total += size;
	}
	return (ssize_t)total;
}

/* Some pages at a time: Linux may cache what one call writes as one large page, and a later write of 4 KiB to that takes the longer,
 * the larger it is. */
static ssize_t pellucid_pwritev(int descriptor, const struct iovec *parts, int count, off_t offset)
{
	enum { AT_ONCE = 16 };
	ssize_t total = 0;
	int part;

	for (part = 0; part < count; part += AT_ONCE) {
		int some = count - part < AT_ONCE ? count - part : AT_ONCE;
		ssize_t written = pellucid_pwritev_once(descriptor, parts + part, some, offset + (off_t)total);
		if (written < 0)
			return written;
		total += written;
	}
	return total;
}
#endif

/* Each of these is used where `env` is the environment, and `open` where `which` is the kind of file. */
#define open(path, flags, mode) pellucid_open(env, which == MDB_O_LOCKS, path, flags, mode)
#define pwrite(descriptor, bytes, size, offset) pellucid_pwrite(descriptor, bytes, size, offset)
#ifdef MDB_USE_PWRITEV
/* Only mdb_page_flush does this, and it writes nothing but pages that the transaction has allocated. */
#define pwritev(descriptor, parts, count, offset) pellucid_write_pages(env, descriptor, parts, count, offset)
static ssize_t pellucid_write_pages(
	const MDB_env *env, int descriptor, const struct iovec *parts, int count, off_t offset);
#endif
#ifdef F_OFD_SETLK
#define fcntl(descriptor, ...) \
	fcntl((descriptor) == env->me_lfd ? pellucid_lock_descriptor(env) : (descriptor), __VA_ARGS__)
#endif

#include "mdb.c"

#ifdef MDB_USE_PWRITEV
static ssize_t pellucid_write_pages(
	const MDB_env *env, int descriptor, const struct iovec *parts, int count, off_t offset)
{
	ssize_t written = pellucid_pwritev(descriptor, parts, count, offset);
	struct pellucid_context *context = pellucid_context_of(env);

	if (written > 0 && context)
		pellucid_note_run(context, (size_t)offset / env->me_psize, (size_t)written / env->me_psize);
	return written;
}
#endif

/* How many pages the file will have when this transaction, or the innermost one in it, is committed. */
size_t pellucid_txn_pages(const MDB_txn *txn)
{
	while (txn->mt_child)
		txn = txn->mt_child;
	return txn->mt_next_pgno;
}

/* Whether a page may be written to by a transaction as it is, as mdb_page_touch has it. */
static int pellucid_is_touched(const MDB_txn *txn, const MDB_page *page)
{
	const MDB_ID2 *dirty = txn->mt_u.dirty_list;
	unsigned at;

	if (!F_ISSET(MP_FLAGS(page), P_DIRTY))
		return 0;
	if (!txn->mt_parent)
		return 1;
	at = mdb_mid2l_search((MDB_ID2L)dirty, page->mp_pgno);
	return at <= dirty[0].mid && dirty[at].mid == page->mp_pgno && dirty[at].mptr == page;
}

/* Write the changed pages of a transaction ahead of its commit once it has more than `most` of them, except for those that the cursors
 * are on, and have the system send them to the disk: so the memory for them is bounded, and the commit waits for few. What LMDB does
 * itself, as soon as it has as many changed pages as it can count. Call it where mdb_cursor_put may be called. */
int pellucid_write_ahead(MDB_cursor *mc, MDB_val *key, MDB_val *data, unsigned most)
{
	MDB_txn *txn = mc->mc_txn;
	unsigned room;
	int rc;

	if (txn->mt_parent || txn->mt_flags & MDB_TXN_BLOCKED || txn->mt_u.dirty_list[0].mid <= most)
		return MDB_SUCCESS;
	/* mdb_page_spill asks for it, and mdb_page_flush adds to it. */
	room = txn->mt_dirty_room;
	txn->mt_dirty_room = 0;
	rc = mdb_page_spill(mc, key, data);
	txn->mt_dirty_room += room;
#ifdef SYNC_FILE_RANGE_WRITE
	/* The commit's sync sees what goes wrong. */
	if (rc == MDB_SUCCESS && !(txn->mt_env->me_flags & MDB_NOSYNC))
		(void)sync_file_range(txn->mt_env->me_fd, 0, 0, SYNC_FILE_RANGE_WRITE);
#endif
	return rc;
}

/* Reserve room for a value at the end of a tree: what mdb_cursor_put does with MDB_APPEND and MDB_RESERVE where the cursor stands on
 * the last entry, the key is greater, and the page has room and is this transaction's already. It looks for the place each time, at
 * every page that was changed, which takes ten times as long. MDB_NOTFOUND where it has to do it. */
int pellucid_append(MDB_cursor *mc, MDB_val *key, MDB_val *data)
{
	MDB_page *page;
	MDB_node *last;
	MDB_val last_key;
	unsigned level, count;
	size_t size;

	if ((mc->mc_flags & (C_INITIALIZED | C_DEL | C_SUB)) != C_INITIALIZED ||
	    mc->mc_txn->mt_flags & (MDB_TXN_BLOCKED | MDB_TXN_RDONLY) || mc->mc_db->md_flags & MDB_DUPSORT)
		return MDB_NOTFOUND;
	for (level = 0; level < mc->mc_snum; level++)
		if (mc->mc_ki[level] + 1U != NUMKEYS(mc->mc_pg[level]))
			return MDB_NOTFOUND;
	page = mc->mc_pg[mc->mc_top];
	size = NODESIZE + key->mv_size + data->mv_size;
	if (!IS_LEAF(page) || IS_LEAF2(page) || !pellucid_is_touched(mc->mc_txn, page) ||
	    key->mv_size - 1 >= ENV_MAXKEY(mc->mc_txn->mt_env) || data->mv_size > MAXDATASIZE ||
	    size > mc->mc_txn->mt_env->me_nodemax || EVEN(size) + sizeof(indx_t) > SIZELEFT(page))
		return MDB_NOTFOUND;
	count = NUMKEYS(page);
	last = NODEPTR(page, count - 1);
	last_key.mv_size = NODEKSZ(last);
	last_key.mv_data = NODEKEY(last);
	if (mc->mc_dbx->md_cmp(key, &last_key) <= 0)
		return MDB_NOTFOUND;
	if (mdb_node_add(mc, count, key, data, 0, MDB_RESERVE) != MDB_SUCCESS)
		return MDB_NOTFOUND;
	mc->mc_ki[mc->mc_top]++;
	mc->mc_db->md_entries++;
	return MDB_SUCCESS;
}

/* Pages that belong to no tree and that LMDB will not use: values are written to them before the transaction that puts these into a
 * tree. To LMDB, and to all that accounts for pages, they are free pages of a version that never comes, so that no transaction takes
 * them: the list of free pages has them under the greatest number of all. */
static size_t pellucid_never = SIZE_MAX;

/* A cursor on the list of free pages, on the entry of the reserved ones. MDB_NOTFOUND where there are none. */
static int pellucid_find_reserve(MDB_txn *txn, MDB_cursor *mc, MDB_val *key, MDB_val *list)
{
	if (txn->mt_flags & MDB_TXN_BLOCKED)
		return MDB_BAD_TXN;
	key->mv_size = sizeof pellucid_never;
	key->mv_data = &pellucid_never;
	mdb_cursor_init(mc, txn, FREE_DBI, NULL);
	return mdb_cursor_get(mc, key, list, MDB_SET);
}

/* The list of reserved pages: their count, then their numbers, descending. It is valid until the transaction writes. */
int pellucid_get_reserve(MDB_txn *txn, MDB_val *list)
{
	MDB_cursor mc;
	MDB_val key;

	return pellucid_find_reserve(txn, &mc, &key, list);
}

/* Replace the list of reserved pages; an empty one is deleted. */
int pellucid_set_reserve(MDB_txn *txn, MDB_val *list)
{
	MDB_cursor mc;
	MDB_val key, old;
	int rc;

	if (txn->mt_parent)
		return MDB_BAD_TXN;
	rc = pellucid_find_reserve(txn, &mc, &key, &old);
	if (rc == MDB_SUCCESS)
		rc = mdb_cursor_del(&mc, 0);
	if (rc != MDB_SUCCESS && rc != MDB_NOTFOUND)
		return rc;
	if (list->mv_size <= sizeof(pgno_t))
		return MDB_SUCCESS;
	mdb_cursor_init(&mc, txn, FREE_DBI, NULL);
	return mdb_cursor_put(&mc, &key, list, 0);
}

/* Take pages that are free, or new ones at the end of the file, one behind the other. Nothing is written to them: the file may be shorter
 * than they are far. */
int pellucid_take_pages(MDB_txn *txn, unsigned count, size_t *first)
{
	MDB_cursor mc;
	MDB_page *page;
	MDB_ID2 *dirty;
	unsigned at;
	int rc;

	if (txn->mt_parent || txn->mt_flags & MDB_TXN_BLOCKED || count < 2)
		return MDB_BAD_TXN;
	mdb_cursor_init(&mc, txn, MAIN_DBI, NULL);
	rc = mdb_page_alloc(&mc, (int)count, &page);
	if (rc != MDB_SUCCESS)
		return rc;
	*first = page->mp_pgno;
	/* LMDB would write them. */
	dirty = txn->mt_u.dirty_list;
	at = mdb_mid2l_search(dirty, page->mp_pgno);
	if (at > dirty[0].mid || dirty[at].mptr != page) {
		txn->mt_flags |= MDB_TXN_ERROR;
		return MDB_PROBLEM;
	}
	memmove(dirty + at, dirty + at + 1, (dirty[0].mid - at) * sizeof *dirty);
	dirty[0].mid--;
	txn->mt_dirty_room++;
	page->mp_flags = P_OVERFLOW;
	page->mp_pages = count;
	mdb_dpage_free(txn->mt_env, page);
	return MDB_SUCCESS;
}

/* Free pages, for transactions that come when no reader has an older version. */
int pellucid_give_pages(MDB_txn *txn, size_t first, unsigned count)
{
	if (txn->mt_parent || txn->mt_flags & MDB_TXN_BLOCKED)
		return MDB_BAD_TXN;
	return mdb_midl_append_range(&txn->mt_free_pgs, first, count);
}

/* Put a value that was written to pages of the reserve, behind the head of the first of them. */
int pellucid_put_placed(MDB_cursor *mc, MDB_val *key, size_t first, size_t size)
{
	MDB_val data, old, wanted = *key;
	MDB_page *page;
	MDB_node *node;
	pgno_t number = first;
	int rc;

	if (mc->mc_txn->mt_parent)
		return MDB_BAD_TXN;
	/* What the key has is freed as LMDB does it. */
	rc = mdb_cursor_get(mc, &wanted, &old, MDB_SET);
	if (rc == MDB_SUCCESS)
		rc = mdb_cursor_del(mc, 0);
	if (rc != MDB_SUCCESS && rc != MDB_NOTFOUND)
		return rc;
	data.mv_size = sizeof number;
	data.mv_data = &number;
	rc = mdb_cursor_put(mc, key, &data, 0);
	if (rc != MDB_SUCCESS)
		return rc;
	page = mc->mc_pg[mc->mc_top];
	node = NODEPTR(page, mc->mc_ki[mc->mc_top]);
	if (!IS_LEAF(page) || NODEKSZ(node) != key->mv_size || memcmp(NODEKEY(node), key->mv_data, key->mv_size) ||
	    node->mn_flags || NODEDSZ(node) != sizeof number || memcmp(NODEDATA(node), &number, sizeof number)) {
		mc->mc_txn->mt_flags |= MDB_TXN_ERROR;
		return MDB_PROBLEM;
	}
	/* This is the node of a value on pages of its own. */
	node->mn_flags |= F_BIGDATA;
	SETDSZ(node, size);
	mc->mc_db->md_overflow_pages += OVPAGES(size, mc->mc_txn->mt_env->me_psize);
	return MDB_SUCCESS;
}

/* Let go of the version that a read transaction reads, and keep all that it knows of it. */
void pellucid_park(MDB_txn *txn)
{
	MDB_reader *reader = txn->mt_u.reader;

	if (reader)
		reader->mr_txnid = (txnid_t)-1;
}

/* Read that version again, if no newer one was committed. Otherwise the transaction stays parked, and this returns 0. The order of
 * store and load is that of mdb_txn_renew0: a writer that does not see this reader yet frees no page of the newest version. */
int pellucid_unpark(MDB_txn *txn)
{
	MDB_reader *reader = txn->mt_u.reader;
	MDB_txninfo *info = txn->mt_env->me_txns;

	if (!reader || reader->mr_pid != txn->mt_env->me_pid || reader->mr_txnid != (txnid_t)-1)
		return 0;
	reader->mr_txnid = txn->mt_txnid;
	if (info->mti_txnid == txn->mt_txnid)
		return 1;
	reader->mr_txnid = (txnid_t)-1;
	return 0;
}

/* Have a read transaction's place show another version than it reads, for a reader that has no place. Nothing may be read in it. */
void pellucid_set_reader_version(MDB_txn *txn, size_t version)
{
	if (txn->mt_u.reader)
		txn->mt_u.reader->mr_txnid = version;
}

/* Where the file is mapped. */
const void *pellucid_map(const MDB_env *env)
{
	return env->me_map;
}

/* Whether a cursor stands in a leaf where an entry of this size may be put. `size` is what it takes there. */
static int pellucid_may_put(const MDB_cursor *mc, const MDB_val *key, size_t data_size, size_t *size)
{
	const MDB_env *env = mc->mc_txn->mt_env;

	if ((mc->mc_flags & (C_INITIALIZED | C_DEL | C_SUB)) != C_INITIALIZED ||
	    mc->mc_txn->mt_flags & (MDB_TXN_BLOCKED | MDB_TXN_RDONLY) || mc->mc_db->md_flags & MDB_DUPSORT ||
	    !IS_LEAF(mc->mc_pg[mc->mc_top]) || IS_LEAF2(mc->mc_pg[mc->mc_top]) || key->mv_size - 1 >= ENV_MAXKEY(env) ||
	    data_size > MAXDATASIZE)
		return 0;
	*size = NODESIZE + key->mv_size + data_size;
	if (*size > env->me_nodemax)
		*size = NODESIZE + key->mv_size + sizeof(pgno_t);
	*size = EVEN(*size) + sizeof(indx_t);
	return 1;
}

/* Move the entries of a leaf from `at` on, which is not the first or behind the last, to a new leaf. The cursor has no place afterwards. */
static int pellucid_split_at(MDB_cursor *mc, unsigned at, MDB_val *key, size_t data_size)
{
	MDB_env *env = mc->mc_txn->mt_env;
	MDB_val data, other;
	MDB_page *page, *copy;
	MDB_node *node;
	unsigned next, count;
	int rc;

	data.mv_size = data_size;
	data.mv_data = NULL;
	if ((rc = mdb_page_spill(mc, key, &data)) != MDB_SUCCESS || (rc = mdb_cursor_touch(mc)) != MDB_SUCCESS)
		return rc;
	page = mc->mc_pg[mc->mc_top];
	count = NUMKEYS(page);
	if ((copy = malloc(env->me_psize)) == NULL)
		return ENOMEM;
	memcpy(copy, page, env->me_psize);
	for (next = count; next > at; next--) {
		mc->mc_ki[mc->mc_top] = next - 1;
		mdb_node_del(mc, 0);
	}
	mc->mc_ki[mc->mc_top] = at;
	for (next = at; next < count && rc == MDB_SUCCESS; next++) {
		node = NODEPTR(copy, next);
		other.mv_size = NODEKSZ(node);
		other.mv_data = NODEKEY(node);
		data.mv_size = NODEDSZ(node);
		data.mv_data = NODEDATA(node);
		if (next == at)
			rc = mdb_page_split(mc, &other, &data, P_INVALID, node->mn_flags | MDB_APPEND);
		else
			rc = mdb_node_add(mc, next - at, &other, &data, 0, node->mn_flags);
	}
	mc->mc_flags &= ~(C_INITIALIZED | C_EOF);
	free(copy);
	if (rc != MDB_SUCCESS)
		mc->mc_txn->mt_flags |= MDB_TXN_ERROR;
	return rc;
}

/* Split a full leaf behind the entry that the cursor stands on, if a greater key belongs there and in front of the next one. LMDB
 * splits in the middle: ascending keys in front of others would leave each leaf half full. Split here, they fill the leaf, as those at
 * its end do. The cursor has no place afterwards. */
int pellucid_split_behind(MDB_cursor *mc, MDB_val *key, size_t data_size)
{
	MDB_val other;
	MDB_page *page;
	MDB_node *node;
	unsigned at, next;
	size_t size;

	if (mc->mc_flags & C_EOF || !pellucid_may_put(mc, key, data_size, &size))
		return MDB_SUCCESS;
	page = mc->mc_pg[mc->mc_top];
	at = mc->mc_ki[mc->mc_top] + 1U;
	if (at >= NUMKEYS(page) || size <= SIZELEFT(page))
		return MDB_SUCCESS;
	for (next = 0; next < 2; next++) {
		node = NODEPTR(page, at - 1 + next);
		other.mv_size = NODEKSZ(node);
		other.mv_data = NODEKEY(node);
		if (next ? mc->mc_dbx->md_cmp(key, &other) >= 0 : mc->mc_dbx->md_cmp(key, &other) <= 0)
			return MDB_SUCCESS;
	}
	return pellucid_split_at(mc, at, key, data_size);
}

/* Make room for a key that comes behind those put before it, so that `room` bytes stay free in each leaf that they fill, and no leaf is
 * split in the middle. Where the key comes behind all others of a leaf that is full to there, it is put into a new one, its data
 * reserved. MDB_NOTFOUND where mdb_cursor_put has to put it. */
int pellucid_put_ascending(MDB_cursor *mc, MDB_val *key, MDB_val *data, size_t room)
{
	MDB_val found;
	MDB_page *page;
	size_t size;
	unsigned at;
	int exact = 0, rc;

	if (mc->mc_db->md_root == P_INVALID || mc->mc_txn->mt_flags & MDB_TXN_BLOCKED || mc->mc_flags & C_SUB ||
	    key->mv_size - 1 >= ENV_MAXKEY(mc->mc_txn->mt_env))
		return MDB_NOTFOUND;
	rc = mdb_cursor_set(mc, key, &found, MDB_SET, &exact);
	if (rc != MDB_NOTFOUND)
		return rc == MDB_SUCCESS ? MDB_NOTFOUND : rc;
	if (!pellucid_may_put(mc, key, data->mv_size, &size))
		return MDB_NOTFOUND;
	page = mc->mc_pg[mc->mc_top];
	at = mc->mc_ki[mc->mc_top];
	if (at == 0 || size + room <= SIZELEFT(page))
		return MDB_NOTFOUND;
	if (at < NUMKEYS(page)) {
		rc = pellucid_split_at(mc, at, key, data->mv_size);
		return rc == MDB_SUCCESS ? MDB_NOTFOUND : rc;
	}
	if (NODESIZE + key->mv_size + data->mv_size > mc->mc_txn->mt_env->me_nodemax)
		return MDB_NOTFOUND;
	if ((rc = mdb_page_spill(mc, key, data)) != MDB_SUCCESS || (rc = mdb_cursor_touch(mc)) != MDB_SUCCESS)
		return rc;
	rc = mdb_page_split(mc, key, data, P_INVALID, MDB_RESERVE | MDB_APPEND);
	if (rc == MDB_SUCCESS)
		mc->mc_db->md_entries++;
	else
		mc->mc_txn->mt_flags |= MDB_TXN_ERROR;
	return rc;
}

/* Whether a list of free pages, as the file has it, lies in the file, and has page numbers of this version that descend. */
static int pellucid_is_free_list(const MDB_txn *txn, const MDB_val *list)
{
	const MDB_env *env = txn->mt_env;
	const pgno_t *pages = list->mv_data;
	size_t start = (size_t)((const char *)list->mv_data - env->me_map), at;

	/* A changed page is outside of the map. */
	if ((const char *)list->mv_data >= env->me_map && start < env->me_mapsize &&
	    (start > txn->mt_next_pgno * env->me_psize || list->mv_size > txn->mt_next_pgno * env->me_psize - start))
		return 0;
	if (list->mv_size < sizeof *pages || list->mv_size / sizeof *pages <= pages[0])
		return 0;
	for (at = 1; at <= pages[0]; at++)
		if (pages[at] < NUM_METAS || pages[at] >= (at == 1 ? txn->mt_next_pgno : pages[at - 1]))
			return 0;
	return 1;
}

/* Load the whole list of free pages that no reader can see, as mdb_page_alloc loads an entry of it when it runs out of pages. Until the
 * transaction ends, pages are taken from all of them, the lowest first. `count` is how many there are. */
int pellucid_load_free(MDB_txn *txn, size_t *count)
{
	MDB_env *env = txn->mt_env;
	MDB_cursor mc;
	MDB_cursor_op op = MDB_FIRST;
	MDB_val key, list;
	txnid_t last = env->me_pglast, oldest;
	size_t at;
	unsigned size;
	int rc;

	if (txn->mt_parent || txn->mt_flags & MDB_TXN_BLOCKED)
		return MDB_BAD_TXN;
	env->me_pgoldest = oldest = mdb_find_oldest(txn);
	mdb_cursor_init(&mc, txn, FREE_DBI, NULL);
	if (last) {
		last++;
		key.mv_size = sizeof last;
		key.mv_data = &last;
		op = MDB_SET_RANGE;
	}
	for (;; op = MDB_NEXT) {
		rc = mdb_cursor_get(&mc, &key, &list, op);
		if (rc == MDB_NOTFOUND)
			break;
		if (rc != MDB_SUCCESS)
			return rc;
		if (key.mv_size != sizeof last)
			return MDB_CORRUPTED;
		memcpy(&last, key.mv_data, sizeof last);
		/* The reserve is under the greatest number of all. */
		if (oldest <= last)
			break;
		if (!pellucid_is_free_list(txn, &list))
			return MDB_CORRUPTED;
		size = (unsigned)((pgno_t *)list.mv_data)[0];
		if (!env->me_pghead) {
			if ((env->me_pghead = mdb_midl_alloc((int)size)) == NULL)
				return ENOMEM;
		} else if ((rc = mdb_midl_need(&env->me_pghead, size)) != 0) {
			return rc;
		}
		env->me_pglast = last;
		mdb_midl_xmerge(env->me_pghead, list.mv_data);
	}
	*count = env->me_pghead ? env->me_pghead[0] : 0;
	/* A page that is free twice would be used twice. */
	for (at = 2; at <= *count; at++)
		if (env->me_pghead[at] >= env->me_pghead[at - 1]) {
			txn->mt_flags |= MDB_TXN_ERROR;
			return MDB_CORRUPTED;
		}
	return MDB_SUCCESS;
}

/* The loaded free pages: their count, then their numbers, descending. NULL if none are loaded. It is valid until a page is taken or
 * loaded. */
const size_t *pellucid_free_list(const MDB_txn *txn)
{
	return txn->mt_env->me_pghead;
}

/* Keep only these of the loaded free pages, which descend. The caller adds the others again before the transaction commits or has another
 * in it: LMDB deletes the entries that they were loaded from. */
int pellucid_keep_free(MDB_txn *txn, const size_t *pages, size_t count)
{
	pgno_t *list = txn->mt_env->me_pghead;

	if (txn->mt_parent || txn->mt_flags & MDB_TXN_BLOCKED || !list || count > list[0])
		return MDB_BAD_TXN;
	list[0] = count;
	memcpy(list + 1, pages, count * sizeof *list);
	return MDB_SUCCESS;
}

/* Add pages, which were loaded and not kept: their count, then their numbers, descending. */
int pellucid_add_free(MDB_txn *txn, const size_t *pages)
{
	MDB_env *env = txn->mt_env;
	int rc = MDB_BAD_TXN;

	if (!txn->mt_parent && !(txn->mt_flags & MDB_TXN_BLOCKED) && env->me_pghead)
		rc = mdb_midl_need(&env->me_pghead, (unsigned)pages[0]);
	if (rc == MDB_SUCCESS)
		mdb_midl_xmerge(env->me_pghead, (pgno_t *)pages);
	else
		txn->mt_flags |= MDB_TXN_ERROR;
	return rc;
}

/* Make the file end before the free pages at its end, of those that are loaded. Returns how many these were. */
size_t pellucid_cut_free(MDB_txn *txn)
{
	pgno_t *list = txn->mt_env->me_pghead;
	size_t cut = 0;

	if (txn->mt_parent || txn->mt_flags & MDB_TXN_BLOCKED || !list)
		return 0;
	while (cut < list[0] && list[cut + 1] + 1 == txn->mt_next_pgno) {
		txn->mt_next_pgno--;
		cut++;
	}
	list[0] -= cut;
	memmove(list + 1, list + 1 + cut, list[0] * sizeof *list);
	return cut;
}

/* Whether `count` pages one behind the other are loaded that come before `before`: mdb_page_alloc takes the lowest. */
int pellucid_has_free(const MDB_txn *txn, size_t count, size_t before)
{
	const pgno_t *list = txn->mt_env->me_pghead;
	size_t at;

	if (!list || count == 0)
		return 0;
	for (at = list[0]; at >= count; at--)
		if (list[at - (count - 1)] == list[at] + count - 1)
			return list[at] + count <= before;
	return 0;
}

/* Copy the page of a key, and those above it, if one of them is not below `from`: the copies are on the lowest free pages. `large` is where
 * the key's value begins if it has pages of its own, else 0. */
int pellucid_move_page(MDB_cursor *mc, MDB_val *key, size_t from, size_t *large)
{
	MDB_val data, wanted = *key;
	MDB_node *node;
	pgno_t number = 0;
	unsigned level, is_far = 0;
	int rc;

	*large = 0;
	if (mc->mc_txn->mt_parent)
		return MDB_BAD_TXN;
	rc = mdb_cursor_get(mc, &wanted, &data, MDB_SET);
	if (rc != MDB_SUCCESS)
		return rc;
	for (level = 0; level < mc->mc_snum; level++)
		is_far |= mc->mc_pg[level]->mp_pgno >= from && !pellucid_is_touched(mc->mc_txn, mc->mc_pg[level]);
	if (is_far && (rc = mdb_cursor_touch(mc)) != MDB_SUCCESS)
		return rc;
	node = NODEPTR(mc->mc_pg[mc->mc_top], mc->mc_ki[mc->mc_top]);
	if (F_ISSET(node->mn_flags, F_BIGDATA))
		memcpy(&number, NODEDATA(node), sizeof number);
	*large = number;
	return MDB_SUCCESS;
}

/* Where a read transaction's place in the lock file has padding: when the transaction began, and of which version it is, since LMDB
 * leaves what an earlier one has put there. */
enum { PELLUCID_BEGUN, PELLUCID_VERSION };

static volatile uint64_t *pellucid_note_of(MDB_reader *reader)
{
	_Static_assert(sizeof(MDB_reader) >= ((sizeof(MDB_rxbody) + 7) & ~(size_t)7) + 2 * sizeof(uint64_t), "a place has no padding");
	return (volatile uint64_t *)((char *)reader + ((sizeof(MDB_rxbody) + 7) & ~(size_t)7));
}

/* Note when a read transaction began. */
void pellucid_note_begun(MDB_txn *txn, uint64_t begun)
{
	MDB_reader *reader = txn->mt_u.reader;

	if (!reader)
		return;
	pellucid_note_of(reader)[PELLUCID_BEGUN] = begun;
	pellucid_note_of(reader)[PELLUCID_VERSION] = txn->mt_txnid;
}

/* How many places of the lock file's table may have a reader. The file says it, which may be damaged, and has room for no more than
 * `me_maxreaders`. */
static unsigned pellucid_reader_count(const MDB_env *env)
{
	unsigned count = env->me_txns->mti_numreaders;

	return count < env->me_maxreaders ? count : env->me_maxreaders;
}

/* How many read transactions there are in all processes. The oldest one's version, process and begin, which is 0 if it is unknown. */
unsigned pellucid_readers(const MDB_env *env, size_t *version, int *process, uint64_t *begun)
{
	unsigned at, count, found = 0;

	*version = 0;
	*process = 0;
	*begun = 0;
	if (!env->me_txns)
		return 0;
	count = pellucid_reader_count(env);
	for (at = 0; at < count; at++) {
		MDB_reader *reader = &env->me_txns->mti_readers[at];
		txnid_t own = reader->mr_txnid;
		MDB_PID_T pid = reader->mr_pid;
		uint64_t since = pellucid_note_of(reader)[PELLUCID_VERSION] == own ? pellucid_note_of(reader)[PELLUCID_BEGUN] : 0;
		/* 0 stands in for a process that is opening the file. */
		if (pid == 0 || own == (txnid_t)-1 || own == 0)
			continue;
		if (found++ == 0 || own < *version || (own == *version && since != 0 && since < *begun)) {
			*version = own;
			*process = (int)pid;
			*begun = since;
		}
	}
	return found;
}

/* How many places of the lock file's table are taken, also by read transactions that wait to be used again. */
unsigned pellucid_taken_slots(const MDB_env *env)
{
	unsigned at, count, taken = 0;

	if (!env->me_txns)
		return 0;
	count = pellucid_reader_count(env);
	for (at = 0; at < count; at++)
		taken += env->me_txns->mti_readers[at].mr_pid != 0;
	return taken;
}

/* The versions that read transactions have, of all processes, as far as there is room for them. Returns how many there are; none is
 * known without a lock file. */
unsigned pellucid_reader_versions(const MDB_env *env, size_t *versions, unsigned room)
{
	unsigned at, count, found = 0;

	if (!env->me_txns)
		return 0;
	count = pellucid_reader_count(env);
	for (at = 0; at < count; at++) {
		const MDB_reader *reader = &env->me_txns->mti_readers[at];
		txnid_t own = reader->mr_txnid;
		if (reader->mr_pid == 0 || own == (txnid_t)-1)
			continue;
		if (found < room)
			versions[found] = own;
		found++;
	}
	return found;
}

/* The runs of pages that this process's write transactions have written since this was last called. They are valid until the
 * transaction ends or writes. */
const struct pellucid_run *pellucid_take_written(MDB_txn *txn, size_t *count)
{
	struct pellucid_context *context = pellucid_context_of(txn->mt_env);

	*count = 0;
	if (!context || txn->mt_parent)
		return NULL;
	*count = context->run_count;
	context->run_count = 0;
	return context->runs;
}

/* The first entry of the list of free pages of a version that is not below this one. It is valid until the transaction writes. */
int pellucid_next_free(MDB_txn *txn, size_t *version, MDB_val *list)
{
	MDB_cursor mc;
	MDB_val key;
	int rc;

	if (txn->mt_flags & MDB_TXN_BLOCKED)
		return MDB_BAD_TXN;
	key.mv_size = sizeof *version;
	key.mv_data = version;
	mdb_cursor_init(&mc, txn, FREE_DBI, NULL);
	rc = mdb_cursor_get(&mc, &key, list, MDB_SET_RANGE);
	if (rc == MDB_SUCCESS)
		memcpy(version, key.mv_data, sizeof *version);
	return rc;
}

/* Load the first entry of the list of free pages, as mdb_page_alloc does it, so that LMDB has a list that pages can be added to. If
 * all entries are too recent, there is an empty one first. */
static int pellucid_load_first(MDB_txn *txn, txnid_t oldest)
{
	MDB_env *env = txn->mt_env;
	MDB_cursor mc;
	MDB_val key, list;
	pgno_t none = 0, size;
	txnid_t first = oldest - 1;
	int rc;

	mdb_cursor_init(&mc, txn, FREE_DBI, NULL);
	rc = mdb_cursor_get(&mc, &key, &list, MDB_FIRST);
	if (rc == MDB_SUCCESS)
		memcpy(&first, key.mv_data, sizeof first);
	if (rc == MDB_NOTFOUND || (rc == MDB_SUCCESS && first >= oldest)) {
		first = oldest - 1;
		key.mv_size = sizeof first;
		key.mv_data = &first;
		list.mv_size = sizeof none;
		list.mv_data = &none;
		mdb_cursor_init(&mc, txn, FREE_DBI, NULL);
		if ((rc = mdb_cursor_put(&mc, &key, &list, MDB_NOOVERWRITE)) != MDB_SUCCESS)
			return rc;
		/* A reader has ended, and LMDB has loaded what this was to come before. */
		if (env->me_pghead || env->me_pglast)
			return MDB_NOTFOUND;
		mdb_cursor_init(&mc, txn, FREE_DBI, NULL);
		rc = mdb_cursor_get(&mc, &key, &list, MDB_FIRST);
	}
	if (rc != MDB_SUCCESS)
		return rc;
	memcpy(&size, list.mv_data, sizeof size);
	if (list.mv_size / sizeof size <= size)
		return MDB_CORRUPTED;
	if ((env->me_pghead = mdb_midl_alloc((int)size)) == NULL)
		return ENOMEM;
	env->me_pglast = first;
	mdb_midl_xmerge(env->me_pghead, list.mv_data);
	return MDB_SUCCESS;
}

/* Let a transaction that has changed nothing yet use pages that were freed by versions from `oldest` on, though there is a reader of
 * that version: the caller knows that no reader can see these pages. `pages` is the list of them, and `kept` what is left of the lists
 * of the versions that freed them, which ascend.
 *
 * LMDB takes pages from me_pghead, and deletes the entries up to me_pglast when it commits. So the pages are added to the first, and
 * taken out of entries behind the last. No entry may be loaded while it is replaced, or its pages would be there twice or not at all.
 * LMDB would do so if the oldest reader ended just now. Then this returns MDB_NOTFOUND, and the transaction can only be aborted, as
 * after any error. */
int pellucid_reuse(MDB_txn *txn, size_t oldest, const MDB_val *pages, const size_t *versions, const MDB_val *kept, size_t count)
{
	MDB_env *env = txn->mt_env;
	const pgno_t *list = pages->mv_data;
	pgno_t *all;
	size_t at;
	int rc = MDB_BAD_TXN;

	if (txn->mt_parent || txn->mt_flags & (MDB_TXN_BLOCKED | MDB_TXN_DIRTY) || env->me_pghead || env->me_pglast || oldest < 2 ||
	    count == 0 || versions[0] < oldest)
		goto fail;
	if ((rc = pellucid_load_first(txn, oldest)) != MDB_SUCCESS)
		goto fail;
	rc = ENOMEM;
	if (mdb_midl_need(&env->me_pghead, (unsigned)list[0]) != 0)
		goto fail;
	all = env->me_pghead;
	mdb_midl_xmerge(all, (pgno_t *)list);
	/* A page that is free twice would be used twice. */
	rc = MDB_CORRUPTED;
	for (at = 1; at <= all[0]; at++)
		if (all[at] < NUM_METAS || all[at] >= (at == 1 ? txn->mt_next_pgno : all[at - 1]))
			goto fail;
	for (at = 0; at < count; at++) {
		txnid_t version = versions[at];
		MDB_cursor mc;
		MDB_val key, value;
		key.mv_size = sizeof version;
		key.mv_data = &version;
		mdb_cursor_init(&mc, txn, FREE_DBI, NULL);
		rc = mdb_cursor_get(&mc, &key, &value, MDB_SET);
		if (rc == MDB_SUCCESS && kept[at].mv_size <= sizeof(pgno_t)) {
			rc = mdb_cursor_del(&mc, 0);
		} else if (rc == MDB_SUCCESS) {
			value = kept[at];
			mdb_cursor_init(&mc, txn, FREE_DBI, NULL);
			rc = mdb_cursor_put(&mc, &key, &value, 0);
		}
		if (rc == MDB_NOTFOUND)
			rc = MDB_CORRUPTED;
		if (rc != MDB_SUCCESS)
			goto fail;
	}
	rc = MDB_NOTFOUND;
	if (env->me_pglast < versions[0])
		return MDB_SUCCESS;
fail:
	txn->mt_flags |= MDB_TXN_ERROR;
	return rc;
}
