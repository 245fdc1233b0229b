//! Other processes: their command lines, and whether they live.

const COMMAND_SIZE_MAX: usize = 120;

/// The command line of a process, for messages. Empty if it cannot be read.
pub(crate) fn command_of(process: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let mut command = words.join(" ").trim().replace(char::is_control, " ");
    if command.len() > COMMAND_SIZE_MAX {
        let end = (0..=COMMAND_SIZE_MAX).rev().find(|end| command.is_char_boundary(*end)).unwrap_or(0);
        command.truncate(end);
        command.push_str("...");
    }
    command
}

/// Whether a process of this PID namespace has ended, including one that its parent has not waited
/// for yet.
pub(crate) fn is_dead(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => {
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            matches!(state, Some('Z' | 'X'))
        }
        // If the system cannot tell, assume that the process lives.
        Err(error) => {
            error.kind() == std::io::ErrorKind::NotFound && std::fs::metadata("/proc/self/stat").is_ok()
        }
    }
}

/// This process's PID and start time as one number.
pub(crate) fn own_number() -> u64 {
    let pid = std::process::id();
    u64::from(pid) | began(pid).unwrap_or(0) << 32
}

/// When a process started, if the system says so.
pub(crate) fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The 20th field after the command, which may contain any characters.
    stat.rsplit(") ").next()?.split(' ').nth(19)?.parse::<u64>().ok().map(|ticks| ticks & 0xFFFF_FFFF)
}
