//! The log's format: a header, then records in the order in which they reached the disk.
//!
//! Each record is a head of 24 bytes (kind, offset, length; little endian) and, for writes and markers, `length` bytes.
//! It is written by one process and read by another of the same build, so the version only guards against a stale server.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

/// First bytes of a log.
pub const MAGIC: [u8; 8] = *b"naspwr01";

const HEAD_BYTES: u64 = 24;

/// One thing that happened on the disk, or beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes were written.
    Write,
    /// The disk was told to make everything before this durable.
    Flush,
    /// A range was discarded: it reads as zeros now.
    Discard,
    /// The test said something.
    Marker,
}

impl Kind {
    const fn code(self) -> u64 {
        match self {
            Self::Write => 1,
            Self::Flush => 2,
            Self::Discard => 3,
            Self::Marker => 4,
        }
    }

    const fn from_code(code: u64) -> Option<Self> {
        match code {
            1 => Some(Self::Write),
            2 => Some(Self::Flush),
            3 => Some(Self::Discard),
            4 => Some(Self::Marker),
            _ => None,
        }
    }
}

/// A record without its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// What happened.
    pub kind: Kind,
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub length: u64,
    /// Where in the log file its bytes begin.
    pub payload: u64,
}

/// Appends records.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    /// Begins a log in an empty file.
    ///
    /// # Errors
    /// What the file said.
    pub fn new(mut file: File) -> io::Result<Self> {
        file.write_all(&MAGIC)?;
        Ok(Self(file))
    }

    /// Appends one record; it is in the operating system's hands when this returns.
    ///
    /// # Errors
    /// What the file said. The log is useless then.
    pub fn append(&mut self, kind: Kind, offset: u64, length: u64, payload: &[u8]) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES as usize];
        head[..8].copy_from_slice(&kind.code().to_le_bytes());
        head[8..16].copy_from_slice(&offset.to_le_bytes());
        head[16..].copy_from_slice(&length.to_le_bytes());
        self.0.write_all(&head)?;
        self.0.write_all(payload)
    }
}

/// Reads all heads of a log. A last record that was cut off (the server was killed) is left out.
///
/// # Errors
/// `InvalidData` when it is no log of this version.
pub fn read_index(file: &File) -> io::Result<Vec<Record>> {
    let invalid = |message: &str| io::Error::new(io::ErrorKind::InvalidData, message.to_owned());
    let end = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let mut magic = [0; MAGIC.len()];
    reader.read_exact(&mut magic).map_err(|_| invalid("no header"))?;
    if magic != MAGIC {
        return Err(invalid("another version's header"));
    }
    let (mut records, mut at) = (Vec::new(), MAGIC.len() as u64);
    while at + HEAD_BYTES <= end {
        let mut head = [0; HEAD_BYTES as usize];
        reader.read_exact(&mut head)?;
        let field = |from: usize| {
            u64::from_le_bytes(head[from..from + 8].try_into().expect("because the slice has eight bytes"))
        };
        let kind = Kind::from_code(field(0)).ok_or_else(|| invalid("a record of unknown kind"))?;
        let record = Record { kind, offset: field(8), length: field(16), payload: at + HEAD_BYTES };
        let stored = if matches!(kind, Kind::Write | Kind::Marker) { record.length } else { 0 };
        at = record.payload + stored;
        if at > end {
            break;
        }
        let stored = i64::try_from(stored).map_err(|_| invalid("a record of absurd length"))?;
        reader.seek_relative(stored)?;
        records.push(record);
    }
    Ok(records)
}
