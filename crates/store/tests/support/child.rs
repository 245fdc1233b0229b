//! Another process that works on a database. The tests start this program and send commands, line
//! by line.
//!
//! Each line is a command, each answer a line: "ok", the requested value, or "error" with the
//! variant's name and message.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a child that panics fails its test")]

use std::io::{BufRead, Write};
use std::time::Duration;

use pellucid_record::key::KeyEncoder;
use pellucid_record::view::{Root, Slot, root};
use pellucid_record::{Encoder, Shapes};
use pellucid_store::engine::lmdb::{LmdbEngine, LmdbOptions};
use pellucid_store::engine::{Engine, ReadTxn};
use pellucid_store::{Mode, OpenOptions, Range, Snapshot, Store, StoreError, Transaction};

#[derive(Default)]
struct Child {
    store: Option<Store>,
    transaction: Option<Transaction>,
    snapshot: Option<Snapshot>,
    readers: Vec<Box<dyn ReadTxn>>,
}

fn main() {
    let mut child = Child::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match child.run(&words) {
            Ok(answer) => answer,
            Err(error) => {
                let variant = format!("{error:?}");
                let variant = variant.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
                format!("error {variant} {error}")
            }
        };
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}

fn key(text: &str) -> Vec<u8> {
    let mut encoder = KeyEncoder::new();
    encoder.str(text.as_bytes());
    encoder.as_bytes().to_vec()
}

fn record(text: &str) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.str(text.as_bytes());
    encoder.take()
}

fn text(record: &[u8]) -> String {
    match root(record, &Vec::new()).unwrap() {
        Root::Scalar(Slot::Str(text)) => String::from_utf8(text.to_vec()).unwrap(),
        _ => panic!("not a str"),
    }
}

fn found(snapshot: &Snapshot, table: &str, name: &str) -> Result<String, StoreError> {
    let table = snapshot.table(table)?.unwrap();
    let cell = snapshot.get(table, &key(name))?;
    Ok(cell.map_or("none".to_owned(), |cell| text(&cell.record)))
}

impl Child {
    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn run(&mut self, words: &[&str]) -> Result<String, StoreError> {
        match words {
            ["open", path, mode, wait] => {
                let mode = match *mode {
                    "r" => Mode::Read,
                    "w" => Mode::Write,
                    "n" => Mode::New,
                    _ => Mode::Create,
                };
                let timeout = Duration::from_millis(wait.parse().unwrap());
                self.store =
                    Some(Store::open(path, &OpenOptions { mode, timeout, ..OpenOptions::default() })?);
            }
            ["warnings"] => {
                let warnings = self.store().warnings()?;
                return Ok(warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
            }
            ["begin", wait] => {
                self.transaction = Some(self.store().begin(Duration::from_millis(wait.parse().unwrap()))?);
            }
            ["commit"] => self.transaction.take().unwrap().commit()?,
            ["abort"] => self.transaction = None,
            ["snapshot"] => self.snapshot = Some(self.store().snapshot()?),
            // Without a store, which would open the file a second time.
            ["crowd", path, count] => {
                let engine = LmdbEngine::open(path.as_ref(), LmdbOptions::default()).unwrap();
                for _ in 0..count.parse().unwrap() {
                    self.readers.push(engine.begin_read().unwrap());
                }
            }
            ["forget"] => self.snapshot = None,
            ["close"] => {
                self.snapshot = None;
                self.store().close();
            }
            ["exit"] => std::process::exit(0),
            ["flood", table, first] => self.flood(table, first.parse().unwrap())?,
            ["rewrite", table, rows, first] => {
                self.rewrite(table, rows.parse().unwrap(), first.parse().unwrap())?;
            }
            ["sync"] => self.store().sync()?,
            ["turn", table] => return self.turn(table),
            // The number of readers in all processes, without those of dead ones.
            ["readers"] => return Ok(self.store().stats()?.readers.to_string()),
            ["check"] => {
                let findings = self.store().check()?;
                return Ok(format!("{findings:?}"));
            }
            ["shape", id] => {
                let snapshot = self.store().snapshot()?;
                let shape = snapshot.dictionary().shape(id.parse().unwrap());
                return Ok(shape.map_or("none".to_owned(), |shape| shape.names().join(",")));
            }
            ["get", table, name] => {
                let snapshot = self.snapshot.clone().map_or_else(|| self.store().snapshot(), Ok)?;
                return found(&snapshot, table, name);
            }
            // In a new snapshot, though the child may keep an older one.
            ["newest", table, name] => return found(&self.store().snapshot()?, table, name),
            _ => return self.change(words),
        }
        Ok("ok".to_owned())
    }

    /// Write all rows of a table anew for ever, each time with a checkpoint, and report each turn.
    fn rewrite(&self, table: &str, rows: u64, first: u64) -> Result<(), StoreError> {
        for turn in first.. {
            let mut transaction = self.store().begin(Duration::from_secs(20))?;
            let table = transaction.table(table)?.unwrap();
            for number in 0..rows {
                let text = format!("{turn:06} {number} ").repeat(20);
                transaction.put(table, &key(&format!("row{number:05}")), b"", &record(&text), &[])?;
            }
            transaction.commit()?;
            self.store().sync()?;
            println!("{turn}");
            std::io::stdout().flush().unwrap();
        }
        Ok(())
    }

    /// The turn in which the rows of the snapshot were written, or which row is of another one.
    fn turn(&self, table: &str) -> Result<String, StoreError> {
        let snapshot = self.snapshot.as_ref().unwrap();
        let table = snapshot.table(table)?.unwrap();
        let mut scan = snapshot.scan(table, &Range::ALL, false)?;
        let mut found = None;
        let mut number = 0;
        while let Some(row) = scan.next()? {
            let text = text(row.record);
            let turn: u64 = text.split(' ').next().unwrap().parse().unwrap();
            let turn = *found.get_or_insert(turn);
            if text != format!("{turn:06} {number} ").repeat(20) {
                return Ok(format!("row {number} is not of turn {turn}"));
            }
            number += 1;
        }
        Ok(found.unwrap_or(0).to_string())
    }

    fn change(&mut self, words: &[&str]) -> Result<String, StoreError> {
        let transaction = self.transaction.as_mut().unwrap();
        match words {
            ["create", table] => {
                transaction.create_table(table)?;
            }
            ["admit", table, names] => {
                let table = transaction.table(table)?.unwrap();
                let names: Vec<&str> = names.split(',').collect();
                return Ok(transaction.admit(table, &names)?.to_string());
            }
            ["put", table, name, value] => {
                let table = transaction.table(table)?.unwrap();
                transaction.put(table, &key(name), b"", &record(value), &[])?;
            }
            _ => panic!("unknown command {words:?}"),
        }
        Ok("ok".to_owned())
    }

    /// Commit one transaction after the other for ever, and report each.
    fn flood(&mut self, table: &str, first: u64) -> Result<(), StoreError> {
        for number in first.. {
            let mut transaction = self.store().begin(Duration::from_secs(20))?;
            let id = match transaction.table(table)? {
                Some(id) => id,
                None => transaction.create_table(table)?,
            };
            // Rows that are overwritten, added and deleted, and a blob: all have the number.
            let value = number.to_string();
            for name in ["left", "right"] {
                transaction.put(id, &key(name), b"", &record(&value), &[])?;
            }
            transaction.put(id, &key(&format!("row{number:09}")), b"", &record(&value.repeat(40)), &[])?;
            if let Some(old) = number.checked_sub(30) {
                transaction.delete(id, &key(&format!("row{old:09}")))?;
            }
            transaction.commit()?;
            println!("{number}");
            std::io::stdout().flush().unwrap();
        }
        Ok(())
    }
}
