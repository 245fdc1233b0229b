//! The memory limit of the control group that this process is in: the size of its container.
//!
//! The system ends a process of a group that takes more, without an error that it could handle. A
//! limit of any group above holds as well, so the least of all of them counts.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::os;

/// The name of the environment variable with the path of a file whose number is used instead, for
/// tests.
const FILE_VARIABLE: &str = "PELLUCID_MEMORY_LIMIT_FILE";
/// How long a limit that was read is used, in milliseconds.
const READ_INTERVAL: u64 = 1000;
/// Version 1 shows a group without a limit by a number near 2^63.
const NO_LIMIT: u64 = 1 << 60;

/// How many bytes of memory the processes of this group may take together. `None` without a limit,
/// or if the system does not tell.
pub(crate) fn memory_limit() -> Option<u64> {
    static KNOWN: AtomicU64 = AtomicU64::new(u64::MAX);
    static READ_AT: AtomicU64 = AtomicU64::new(0);
    let now = os::ticks().max(1);
    let read_at = READ_AT.load(Ordering::Acquire);
    if read_at == 0 || now.saturating_sub(read_at) >= READ_INTERVAL {
        KNOWN.store(read_limit().unwrap_or(u64::MAX), Ordering::Relaxed);
        READ_AT.store(now, Ordering::Release);
    }
    Some(KNOWN.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
}

/// `usual` bytes, or at most this part of the group's limit, if there is one.
pub(crate) fn at_most(usual: u64, part: u64) -> u64 {
    memory_limit().map_or(usual, |limit| usual.min(limit / part))
}

/// Whether the group has too little memory for what the system reads ahead around each page: it may
/// be some megabytes, which take the place of pages that are in use.
pub(crate) fn is_small() -> bool {
    const SMALL: u64 = 1 << 30;
    memory_limit().is_some_and(|limit| limit < SMALL)
}

fn read_limit() -> Option<u64> {
    if let Some(path) = std::env::var_os(FILE_VARIABLE) {
        return limit_in(Path::new(&path));
    }
    if !cfg!(target_os = "linux") {
        return None;
    }
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    least_limit(&groups, &mounts)
}

/// The limit that a file has. `None` for "max".
fn limit_in(path: &Path) -> Option<u64> {
    let limit = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Some(limit).filter(|limit| *limit < NO_LIMIT)
}

/// The least limit of the groups of a process, and of all groups above them. The arguments are the
/// contents of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn least_limit(groups: &str, mounts: &str) -> Option<u64> {
    let of_mount = |line: &str| {
        let hierarchy = Hierarchy::of_mount(line)?;
        let group = groups.lines().find_map(|line| hierarchy.group_in(line))?;
        hierarchy.least_limit(group)
    };
    mounts.lines().filter_map(of_mount).min()
}

/// Where a tree of groups is mounted.
struct Hierarchy {
    /// The group that is seen at the mount point.
    root: String,
    mount_point: PathBuf,
    is_second_version: bool,
}

impl Hierarchy {
    /// "35 31 0:32 /root /mount/point rw - cgroup cgroup rw,memory", if it has limits of memory.
    fn of_mount(line: &str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_second_version = match (kind.next()?, kind.nth(1)?) {
            ("cgroup2", _) => true,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => false,
            _ => return None,
        };
        let mut place = place.split(' ').skip(3);
        let (root, mount_point) = (place.next()?.to_owned(), PathBuf::from(place.next()?));
        Some(Self { root, mount_point, is_second_version })
    }

    /// The process's group, from a line such as `4:memory:/group` or `0::/group`.
    fn group_in<'g>(&self, line: &'g str) -> Option<&'g str> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let is_ours = if self.is_second_version {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|controller| controller == "memory")
        };
        is_ours.then_some(group)
    }

    fn least_limit(&self, group: &str) -> Option<u64> {
        // In a container, the mount may begin at the container's own group.
        let below = Path::new(group).strip_prefix(&self.root).unwrap_or(Path::new(""));
        let file = if self.is_second_version { "memory.max" } else { "memory.limit_in_bytes" };
        let groups = below.ancestors().map(|group| self.mount_point.join(group).join(file));
        groups.filter_map(|path| limit_in(&path)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let folder = std::env::temp_dir().join(format!("pellucid-groups-{}", std::process::id()));
        let set = |group: &str, file: &str, limit: &str| {
            std::fs::create_dir_all(folder.join(group)).unwrap();
            std::fs::write(folder.join(group).join(file), limit).unwrap();
        };
        let mount = |root: &str, of: &str| format!("35 31 0:32 {root} {} rw - {of}\n", folder.display());
        let first = |root| mount(root, "cgroup cgroup rw,cpu,memory");
        let (second, other) = (|root| mount(root, "cgroup2 cgroup2 rw"), mount("/", "cgroup cgroup rw,pids"));
        let groups = "5:pids:/x\n4:cpu,memory:/a/b\n0::/c/d\n";
        assert_eq!(least_limit(groups, &first("/")), None, "there is none");
        set("a/b", "memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(least_limit(groups, &first("/")), None);
        set("a", "memory.limit_in_bytes", "100000000\n");
        assert_eq!(least_limit(groups, &first("/")), Some(100_000_000));
        set("a/b", "memory.limit_in_bytes", "50000000\n");
        assert_eq!(least_limit(groups, &first("/")), Some(50_000_000));
        assert_eq!(least_limit(groups, &first("/a/b")), None, "the files of another group");
        set("", "memory.limit_in_bytes", "70000000\n");
        assert_eq!(least_limit(groups, &first("/a/b")), Some(70_000_000), "in a container");
        assert_eq!(least_limit(groups, &other), None);
        set("c/d", "memory.max", "max\n");
        set("c", "memory.max", "60000000\n");
        assert_eq!(least_limit(groups, &second("/")), Some(60_000_000));
        assert_eq!(least_limit(groups, &(first("/") + &second("/"))), Some(50_000_000));
        for broken in ["", "x", "1 2 3 - cgroup2", "- cgroup2 a b", " - cgroup a memory"] {
            assert_eq!(least_limit(groups, broken), None);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
