"""How do tests make the system fail where it seldom does?

A library stands between a process and the system. The tests say, in that process, what happens to calls
for files whose names end in a word: `fault("fdatasync", ".pel-log", errno.EIO)`, which is about syncs of a
part of the file as well, while "whole" is about the others, and "written" comes behind a write of
several parts. `after=3` lets three calls pass. It works without any rights and on every file
system.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

FAULTS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { STOP = -1, DIE = -2, WAIT = -3 };
static struct rule {
    char suffix[64];
    volatile int action;
    volatile int count;
    /* So many calls are made before the action. */
    volatile int passed;
} rules[11];
static const char *calls[11] = {"open",  "mmap",  "fallocate", "fdatasync", "whole",
                                "write", "clock", "read",      "room",      "system", "written"};
static volatile unsigned long long covered;
static volatile long long clock_at, clock_ahead;

static struct rule *rule_of(const char *call) {
    for (int i = 0; i < 11; i++)
        if (!strcmp(calls[i], call)) return &rules[i];
    return 0;
}

/* For the tests: what happens to these calls from now on, but the first `after`. 0: they are counted. */
void fault(const char *call, const char *suffix, int action, int after) {
    struct rule *rule = rule_of(call);
    rule->action = 0;
    rule->passed = after;
    strncpy(rule->suffix, suffix, sizeof rule->suffix - 1);
    rule->action = action;
}
int fault_count(const char *call) { return rule_of(call)->count; }
/* The sequence number up to which the log was acknowledged when a sync of it began that has ended well. */
unsigned long long fault_covered(void) { return covered; }
/* What the wall clock says from now on, in seconds; it steps back by one with every look. */
void fault_clock(long long seconds) { clock_at = seconds; }
/* By how many seconds the clock is ahead that ages of snapshots are taken from, and that none waits for. */
void fault_uptime(long long seconds) { clock_ahead = seconds; }

static int meets(const char *call, const char *path) {
    struct rule *rule = rule_of(call);
    size_t size = strlen(path), end = strlen(rule->suffix);
    if (!end || size < end || strcmp(path + size - end, rule->suffix)) return 0;
    __sync_fetch_and_add(&rule->count, 1);
    if (rule->passed > 0 && __sync_fetch_and_sub(&rule->passed, 1) > 0) return 0;
    while (rule->action == WAIT) usleep(1000);
    int action = rule->action;
    if (action == STOP) {
        rule->action = 0;
        kill(getpid(), SIGSTOP);
        return 0;
    }
    if (action == DIE) kill(getpid(), SIGKILL);
    if (action > 0) errno = action;
    return action;
}

static int meets_file(const char *call, int file) {
    char link[32], path[4096];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = file < 0 ? -1 : readlink(link, path, sizeof path - 1);
    errno = saved;
    if (size < 0) return 0;
    path[size] = 0;
    return meets(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAILS(call, file) if (meets_file(call, file) > 0) return

#define OPEN(name)                                       \
    int name(const char *path, int flags, ...) {         \
        va_list rest;                                    \
        va_start(rest, flags);                           \
        int mode = va_arg(rest, int);                    \
        va_end(rest);                                    \
        if (meets("open", path) > 0) return -1;          \
        return REAL(name)(path, flags, mode);            \
    }
OPEN(open)
OPEN(open64)

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    FAILS("mmap", file) MAP_FAILED;
    return REAL(mmap)(at, size, protection, flags, file, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    FAILS("mmap", file) MAP_FAILED;
    return REAL(mmap)(at, size, protection, flags, file, offset);
}
int fallocate(int file, int mode, off_t offset, off_t size) {
    FAILS("fallocate", file) -1;
    return REAL(fallocate)(file, mode, offset, size);
}
int fallocate64(int file, int mode, off_t offset, off_t size) { return fallocate(file, mode, offset, size); }
int posix_fallocate(int file, off_t offset, off_t size) {
    int action = meets_file("fallocate", file);
    return action > 0 ? action : REAL(posix_fallocate)(file, offset, size);
}
int posix_fallocate64(int file, off_t offset, off_t size) { return posix_fallocate(file, offset, size); }

/* The room on the disk that any file lies on: with an action, none. */
#define ROOM(name, type)                                                             \
    int name(int file, struct type *out) {                                           \
        int failed = ((int (*)(int, struct type *))dlsym(RTLD_NEXT, #name))(file, out); \
        if (rule_of("room")->action > 0) out->f_bavail = 0;                          \
        return failed;                                                               \
    }
ROOM(fstatvfs, statvfs)
ROOM(fstatvfs64, statvfs64)

static int synced(int file, int (*sync)(int)) {
    unsigned long long sequence = 0;
    (void)!pread(file, &sequence, sizeof sequence, 64);
    FAILS("whole", file) -1;
    FAILS("fdatasync", file) -1;
    int failed = sync(file);
    struct rule *rule = rule_of("fdatasync");
    if (!failed && strstr(rule->suffix, "-log") && sequence > covered) covered = sequence;
    return failed;
}
/* The same of a part of a file, through its map. */
int msync(void *at, size_t size, int flags) {
    unsigned long long sequence = 0, start, end, offset;
    char *line = 0, path[4096];
    size_t room = 0;
    int action = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    struct rule *rule = rule_of("fdatasync");
    path[0] = 0;
    while (maps && getline(&line, &room, maps) > 0) {
        path[0] = 0;
        if (sscanf(line, "%llx-%llx %*s %llx %*s %*s %4095[^\n]", &start, &end, &offset, path) < 3) continue;
        if (start > (size_t)at || end <= (size_t)at) continue;
        if (!offset) sequence = ((volatile unsigned long long *)start)[8];
        action = meets("fdatasync", path);
        break;
    }
    free(line);
    if (maps) fclose(maps);
    if (action > 0) return errno = action, -1;
    int failed = REAL(msync)(at, size, flags);
    if (!failed && strstr(rule->suffix, "-log") && strstr(path, "-log") && sequence > covered)
        covered = sequence;
    return failed;
}
int fdatasync(int file) { return synced(file, REAL(fdatasync)); }
int fsync(int file) { return synced(file, REAL(fsync)); }
/* Of all of the file system that a file lies on. */
int syncfs(int file) {
    FAILS("system", file) -1;
    return REAL(syncfs)(file);
}

#define READ(name)                                                \
    ssize_t name(int file, void *to, size_t size, off_t at) {     \
        FAILS("read", file) -1;                                   \
        return REAL(name)(file, to, size, at);                    \
    }
READ(pread)
READ(pread64)

#define WRITE(name, ...)                                 \
    ssize_t name(int file, __VA_ARGS__) {                \
        FAILS("write", file) -1;
WRITE(pwrite, const void *from, size_t size, off_t at) return REAL(pwrite)(file, from, size, at); }
WRITE(pwrite64, const void *from, size_t size, off_t at) return REAL(pwrite)(file, from, size, at); }
WRITE(writev, const struct iovec *from, int n) return REAL(writev)(file, from, n); }
WRITE(pwritev, const struct iovec *from, int n, off_t at)
    ssize_t size = REAL(pwritev)(file, from, n, at);
    meets_file("written", file);
    return size;
}
ssize_t pwritev64(int file, const struct iovec *from, int n, off_t at) { return pwritev(file, from, n, at); }

int clock_gettime(clockid_t which, struct timespec *out) {
    int failed = REAL(clock_gettime)(which, out);
    if (which == CLOCK_REALTIME && clock_at) out->tv_sec = clock_at--, out->tv_nsec = 0;
    if (which == CLOCK_MONOTONIC_COARSE) out->tv_sec += clock_ahead;
    return failed;
}
"""

# What a process that runs under the library says first.
PRELUDE = """
import ctypes, errno
library = ctypes.CDLL(None)
library.fault_covered.restype = ctypes.c_ulonglong
library.fault_clock.argtypes = library.fault_uptime.argtypes = [ctypes.c_longlong]
STOP, DIE, WAIT, COUNT = -1, -2, -3, 0
def fault(call, suffix, action, after=0):
    library.fault(call.encode(), suffix.encode(), action, after)
def fault_count(call):
    return library.fault_count(call.encode())
"""


def build(folder: Path) -> str:
    """Make the library; what to preload."""
    (folder / "faults.c").write_text(FAULTS)
    compiler = os.environ.get("CC", "cc").split()
    library = folder / "faults.so"
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, folder / "faults.c", "-ldl"], check=True)
    return str(library)


def until(is_so: Callable[[], object], what: str) -> None:
    """Wait for something that must come."""
    for _ in range(20_000):
        if is_so():
            return
        time.sleep(0.001)
    raise AssertionError(f"{what} did not come")


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
