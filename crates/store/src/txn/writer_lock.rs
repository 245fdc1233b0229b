//! Acquires the right to write, and reports who holds it after a timeout.
//!
//! One thread of this process at a time (`db/writer_queue.rs`), and for a database with a log one
//! process at a time (`wal/lock.rs`).

use std::time::{Duration, Instant};

use crate::db::database::Database;
use crate::db::writer_queue::{LOOK, Refused, WriterTurn};
use crate::engine::{BusyLock, FileCare, WriteTxn};
use crate::error::{Result, StoreError};

/// The engine's transaction, and this process's turn.
type Acquired = (Box<dyn WriteTxn>, WriterTurn);

/// Wait for the right to write, until the timeout passes or `go_on` returns false.
pub(crate) fn acquire(
    database: &Database,
    timeout: Duration,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Acquired> {
    let begin = Instant::now();
    let deadline =
        begin.checked_add(timeout).unwrap_or_else(|| begin + Duration::from_secs(u64::from(u32::MAX)));
    let busy = |pid| StoreError::locked(database.path.clone(), BusyLock::Writer, pid, timeout);
    let care = database.engine.file_care();
    // Another thread of this process may have its turn and wait for another process.
    let late = || busy(care.and_then(FileCare::writer).or_else(|| Some(std::process::id())));
    loop {
        let turn = database.writer_queue.enter(deadline, go_on).map_err(|refused| match refused {
            Refused::Late => late(),
            Refused::Stopped => StoreError::Stopped,
        })?;
        // Before the first commit, and so before commits at once: these need an earlier commit.
        database.mark_dirty()?;
        let until = deadline.min(Instant::now() + LOOK);
        let txn = match care {
            Some(care) => care.begin_write_until(until, timeout),
            // Within one process, whose turn it is.
            None => database.engine.begin_write().map(Some),
        };
        if let Some(txn) = txn.map_err(|error| database.error(error))? {
            return Ok((txn, turn));
        }
        if until == deadline {
            return Err(busy(care.and_then(FileCare::writer)));
        }
        // `go_on` may run code that writes, such as a signal handler: with our turn taken it would
        // wait for us.
        drop(turn);
        if !go_on() {
            return Err(StoreError::Stopped);
        }
    }
}

/// The same, without waiting: `None` if it would have to wait.
pub(crate) fn try_acquire(database: &Database, timeout: Duration) -> Result<Option<Acquired>> {
    let Some(turn) = database.writer_queue.try_enter() else { return Ok(None) };
    database.mark_dirty()?;
    let txn = match database.engine.file_care() {
        Some(care) => care.try_begin_write(timeout),
        // Within one process, whose turn it is.
        None => database.engine.begin_write().map(Some),
    };
    Ok(txn.map_err(|error| database.error(error))?.map(|txn| (txn, turn)))
}
