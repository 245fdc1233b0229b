//! Helpers of the store's tests: a scratch folder, repeatable random numbers, another process.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod words;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pellucid_store::Store;

/// A user who owns nothing.
pub const NOBODY: u32 = 65_534;

/// A folder for one test, deleted afterwards.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pellucid-test-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of the files in it.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Random numbers from a seed (xorshift64*). A failing test prints the seed; `PELLUCID_SEED`
/// repeats it.
pub struct Chance(u64);

impl Chance {
    pub fn from_seed(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A seed from the environment, else from the clock; printed, and shown when the test fails.
    pub fn new(test: &str) -> Self {
        let seed =
            std::env::var("PELLUCID_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
                u64::from(now.subsec_nanos()) ^ now.as_secs()
            });
        println!("{test}: repeat with PELLUCID_SEED={seed}");
        Self::from_seed(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn bytes(&mut self, size: usize) -> Vec<u8> {
        (0..size).map(|_| self.next() as u8).collect()
    }

    /// True with probability 1/n.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Another process that executes commands on a database.
pub struct Child {
    process: std::process::Child,
    answers: std::io::BufReader<std::process::ChildStdout>,
}

impl Child {
    pub fn new() -> Self {
        Self::from(std::process::Command::new(env!("CARGO_BIN_EXE_pellucid-store-child")))
    }

    /// The same program, started by a user without rights if we can become one. For that it is
    /// copied to a place where such a user can start it.
    pub fn without_rights(scratch: &Scratch) -> Self {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        use std::os::unix::process::CommandExt;
        let copy = scratch.path("child");
        if !copy.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_pellucid-store-child"), &copy).unwrap();
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = std::process::Command::new(&copy);
        // Root has all permissions.
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY);
        }
        Self::from(command)
    }

    /// Start it through a shell that runs a command first.
    pub fn through_shell(before: &str) -> Self {
        let mut command = std::process::Command::new("sh");
        let program = env!("CARGO_BIN_EXE_pellucid-store-child");
        command.arg("-c").arg(format!("{before}; exec '{program}'"));
        Self::from(command)
    }

    pub fn from(mut command: std::process::Command) -> Self {
        use std::process::Stdio;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = loop {
            match command.spawn() {
                // A program that was just copied may still be open for writing in a child that
                // another thread has forked meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                spawned => break spawned.unwrap(),
            }
        };
        let answers = std::io::BufReader::new(process.stdout.take().unwrap());
        Self { process, answers }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Send a command without waiting for its answer.
    pub fn tell(&mut self, line: &str) {
        use std::io::Write;
        let stdin = self.process.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    /// Its next line; empty when it has ended.
    pub fn hear(&mut self) -> String {
        use std::io::BufRead;
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// Send commands that must succeed.
    pub fn must(&mut self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.ask(line), "ok", "{line}");
        }
    }

    /// Kill it with SIGKILL, and wait until it is gone.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Put a row in a transaction of its own, into a table that is made if it is missing.
pub fn put(store: &Store, table: &str, name: &str, value: &str) {
    let mut transaction = store.begin(Duration::from_secs(10)).unwrap();
    let id = match transaction.table(table).unwrap() {
        Some(id) => id,
        None => transaction.create_table(table).unwrap(),
    };
    transaction.put(id, &key(name), b"", &record(value), &[]).unwrap();
    transaction.commit().unwrap();
}

/// A key code of a str.
pub fn key(text: &str) -> Vec<u8> {
    let mut encoder = pellucid_record::key::KeyEncoder::new();
    encoder.str(text.as_bytes());
    encoder.as_bytes().to_vec()
}

/// A record of a str.
pub fn record(text: &str) -> Vec<u8> {
    let mut encoder = pellucid_record::Encoder::new();
    encoder.str(text.as_bytes());
    encoder.take()
}
