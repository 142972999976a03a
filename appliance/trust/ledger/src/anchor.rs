//! The head of the chain kept outside the database, in an append-only text file, so that a cut tail is found and not only an edit.
//! (A service of its own, with its own user and key, comes later; the lines stay the same.)

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use nas_types::failpoint;
use nas_types::time::Timestamp;

use crate::{Head, LedgerError};

/// Longest line: a time, a word, three numbers and three hashes.
const LINE_BYTES_MAX: u64 = 384;
/// The word that marks an accepted loss.
const ACCEPTED: &str = "accepted";

/// A loss of records that the owner accepted: what was anchored is not in the ledger, and the box goes on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// When it was accepted.
    pub time: Timestamp,
    /// The newest anchored head that the ledger still held: what follows it may be lost.
    pub kept: Head,
    /// The anchored head that the ledger did not hold: up to here records are lost.
    pub lost: Head,
    /// The record that says so: the chain is anchored by it from then on.
    pub record: Head,
}

/// The anchor file, open for appending. One line each: `<time ms> <count> <hash>`, and for an accepted loss
/// `<time ms> accepted <record> <hash> <lost> <hash> <kept> <hash>`, after which the count may be lower than before.
/// (A program that does not know the second kind still finds the loss.)
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
        let last = tail[..whole].split(|b| *b == b'\n').rev().find_map(parse).map(|line| match line {
            Line::Head(time, head) => (time, head),
            Line::Accepted(loss) => (loss.time, loss.record),
        });
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
        self.append(&format!("{} {} {}", time.0, head.seq, head.hash_hex()))?;
        self.last = Some((time, head));
        Ok(())
    }

    /// Appends an accepted loss, durably: the count goes on from the record that tells of it.
    pub fn accept(&mut self, loss: &Loss) -> Result<(), LedgerError> {
        let part = |head: Head| format!("{} {}", head.seq, head.hash_hex());
        let Loss { time, kept, lost, record } = *loss;
        self.append(&format!("{} {ACCEPTED} {} {} {}", time.0, part(record), part(lost), part(kept)))?;
        self.last = Some((time, record));
        Ok(())
    }

    /// Everything that was anchored since the last accepted loss, oldest first. Reads the whole file.
    pub fn heads(&self) -> Result<Vec<Head>, LedgerError> {
        let mut heads = Vec::new();
        self.lines(|line| match line {
            Line::Head(_, head) => heads.push(head),
            Line::Accepted(loss) => heads = vec![loss.record],
        })?;
        Ok(heads)
    }

    /// Every accepted loss, oldest first. Reads the whole file.
    pub fn losses(&self) -> Result<Vec<Loss>, LedgerError> {
        let mut losses = Vec::new();
        self.lines(|line| {
            if let Line::Accepted(loss) = line {
                losses.push(loss);
            }
        })?;
        Ok(losses)
    }

    fn lines(&self, mut each: impl FnMut(Line)) -> Result<(), LedgerError> {
        let fail = |source| LedgerError::File { doing: "reading the anchor", path: self.path.clone(), source };
        let mut reader = BufReader::new(File::open(&self.path).map_err(fail)?);
        let (mut line, mut whole) = (Vec::new(), true);
        loop {
            line.clear();
            if (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(fail)? == 0 {
                return Ok(());
            }
            // What is longer is no line of ours, and neither is its rest.
            let ended = line.strip_suffix(b"\n");
            if let Some(line) = ended.filter(|_| whole).and_then(parse) {
                each(line);
            }
            whole = ended.is_some();
        }
    }

    fn append(&mut self, line: &str) -> Result<(), LedgerError> {
        let line = format!("{}{line}\n", if self.torn { "\n" } else { "" });
        self.torn = true;
        failpoint::hit("ledger.anchor.before");
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| LedgerError::File {
            doing: "appending to the anchor",
            path: self.path.clone(),
            source,
        })?;
        failpoint::hit("ledger.anchor.after");
        self.torn = false;
        Ok(())
    }
}

/// A line of the file.
enum Line {
    Head(Timestamp, Head),
    Accepted(Loss),
}

fn parse(line: &[u8]) -> Option<Line> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ').peekable();
    let time = Timestamp(words.next()?.parse().ok()?);
    let accepted = words.next_if_eq(&ACCEPTED).is_some();
    let mut head = || Head::from_hex(words.next()?.parse().ok()?, words.next()?);
    let line = match accepted {
        true => Line::Accepted(Loss { time, record: head()?, lost: head()?, kept: head()? }),
        false => Line::Head(time, head()?),
    };
    words.next().is_none().then_some(line)
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

    /// Goal: an accepted loss lets the count fall once, is found again for ever, and is a foreign line to a program of before.
    #[test]
    fn accepted_losses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("anchor.log");
        let mut anchor = Anchor::open(&path).unwrap();
        [3, 5, 9].into_iter().for_each(|n| anchor.push(Timestamp(1), head(n, 1)).unwrap());
        let loss = Loss { time: Timestamp(2), kept: head(5, 1), lost: head(9, 1), record: head(7, 2) };
        anchor.accept(&loss).unwrap();
        assert!(matches!(anchor.push(Timestamp(3), head(6, 2)), Err(LedgerError::AnchorFalls { last: 7, count: 6 })));
        assert_eq!(Anchor::open(&path).unwrap().last(), Some(head(7, 2)));
        anchor.push(Timestamp(3), head(8, 3)).unwrap();
        let anchor = Anchor::open(&path).unwrap();
        assert_eq!((anchor.last(), anchor.last_time()), (Some(head(8, 3)), Some(Timestamp(3))));
        assert_eq!((anchor.losses().unwrap(), anchor.heads().unwrap()), (vec![loss], vec![head(7, 2), head(8, 3)]));
        let largest = Head { seq: u64::MAX, hash: [255; 32] };
        let mut anchor = anchor;
        let huge = Loss { time: Timestamp(i64::MIN), kept: largest, lost: largest, record: largest };
        anchor.accept(&huge).unwrap();
        assert_eq!(Anchor::open(&path).unwrap().losses().unwrap(), [loss, huge]);
    }
}
