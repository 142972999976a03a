//! The head of the chain kept outside the database, in an append-only text file, so that a cut tail is found and not only an edit.
//! (A service of its own, with its own user and key, comes later; the lines stay the same.)

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use nas_types::failpoint;
use nas_types::time::Timestamp;

use crate::{Head, LedgerError};

/// Longest line: three numbers and a hash.
const LINE_BYTES_MAX: u64 = 256;

/// The anchor file, open for appending. One line each: `<time ms> <count> <hash>`.
#[derive(Debug)]
pub struct Anchor {
    path: PathBuf,
    file: File,
    last: Option<(Timestamp, Head)>,
    /// The last append failed and may have left part of a line.
    torn: bool,
}

impl Anchor {
    /// Opens or creates it. A line torn by a power cut is left and ignored.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let fail = |source| LedgerError::File { doing: "opening the anchor", path: path.to_owned(), source };
        let fresh = !path.exists();
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(fail)?;
        if fresh {
            sync_dir(path).map_err(fail)?;
        }
        let length = file.metadata().map_err(fail)?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(4 * LINE_BYTES_MAX))).map_err(fail)?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail).map_err(fail)?;
        // Only a line with its newline was written whole.
        let whole = tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if whole < tail.len() {
            // Close the torn line, so that the next one stands alone.
            file.write_all(b"\n").and_then(|()| file.sync_data()).map_err(fail)?;
        }
        let last = tail[..whole].split(|b| *b == b'\n').rev().find_map(parse);
        Ok(Self { path: path.to_owned(), file, last, torn: false })
    }

    /// What was anchored last.
    #[must_use]
    pub fn last(&self) -> Option<Head> {
        self.last.map(|(_, head)| head)
    }

    /// When that was.
    #[must_use]
    pub fn last_time(&self) -> Option<Timestamp> {
        self.last.map(|(time, _)| time)
    }

    /// Appends the head, durably. Refuses a falling count and another hash for the same count; the same head again is not repeated.
    pub fn push(&mut self, time: Timestamp, head: Head) -> Result<(), LedgerError> {
        if let Some(last) = self.last() {
            if head.seq < last.seq {
                return Err(LedgerError::AnchorFalls { last: last.seq, count: head.seq });
            }
            if head.seq == last.seq {
                return if head == last { Ok(()) } else { Err(LedgerError::AnchorForks { seq: head.seq }) };
            }
        }
        let fresh_line = if self.torn { "\n" } else { "" };
        let line = format!("{fresh_line}{} {} {}\n", time.0, head.seq, head.hash_hex());
        self.torn = true;
        failpoint::hit("ledger.anchor.before");
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| LedgerError::File {
            doing: "appending to the anchor",
            path: self.path.clone(),
            source,
        })?;
        failpoint::hit("ledger.anchor.after");
        (self.last, self.torn) = (Some((time, head)), false);
        Ok(())
    }
}

fn parse(line: &[u8]) -> Option<(Timestamp, Head)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (time, seq, hash) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
    words.next().is_none().then_some(())?;
    Some((Timestamp(time), Head::from_hex(seq, hash)?))
}

fn sync_dir(path: &Path) -> std::io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seq: u64, byte: u8) -> Head {
        Head { seq, hash: [byte; 32] }
    }

    /// Goal: the count never falls, also across a restart and after a torn line.
    #[test]
    fn refuses_to_fall() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("anchor.log");
        let mut anchor = Anchor::open(&path).unwrap();
        assert_eq!(anchor.last(), None);
        anchor.push(Timestamp(1), head(5, 1)).unwrap();
        anchor.push(Timestamp(2), head(5, 1)).unwrap();
        assert!(matches!(anchor.push(Timestamp(3), head(4, 1)), Err(LedgerError::AnchorFalls { last: 5, count: 4 })));
        assert!(matches!(anchor.push(Timestamp(3), head(5, 2)), Err(LedgerError::AnchorForks { seq: 5 })));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        // A power cut in the middle of the next line.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"9 99 abc").unwrap();
        let mut anchor = Anchor::open(&path).unwrap();
        assert_eq!(anchor.last(), Some(head(5, 1)));
        anchor.push(Timestamp(4), head(6, 3)).unwrap();
        let anchor = Anchor::open(&path).unwrap();
        assert_eq!((anchor.last(), anchor.last_time()), (Some(head(6, 3)), Some(Timestamp(4))));
    }

    /// Goal: only the end of a long file is read, and the newest line is still found.
    #[test]
    fn long_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("anchor.log");
        let lines: String = (1..=100).map(|n| format!("{n} {n} {}\n", head(n, 7).hash_hex())).collect();
        std::fs::write(&path, lines).unwrap();
        assert_eq!(Anchor::open(&path).unwrap().last(), Some(head(100, 7)));
    }
}
