//! Record marking (RFC 5531 §11): whole records out of a byte stream.
//!
//! A record mark is an unauthenticated promise. It is checked against the limit at once, and memory grows with the bytes
//! that really came, never with what was announced.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::limits::{FRAGMENTS_MAX, READ_AHEAD_BYTES, RECORD_BYTES_MAX};

const LAST_FRAGMENT: u32 = 1 << 31;
/// A record's buffer starts with at most this many bytes and then doubles.
const FIRST_RESERVE_BYTES: usize = 16 << 10;

/// Why no record comes any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The record is over the limit.
    #[error("a record is longer than {RECORD_BYTES_MAX} bytes")]
    TooLong,
    /// The record has too many fragments.
    #[error("a record has more than {FRAGMENTS_MAX} fragments")]
    TooManyFragments,
    /// The stream ended inside a record.
    #[error("the connection ended inside a record")]
    Cut,
    /// The stream failed.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
}

/// Splits a stream into records.
#[derive(Debug)]
pub(crate) struct RecordReader<R> {
    stream: R,
    ahead: Vec<u8>,
    at: usize,
}

impl<R: AsyncRead + Unpin> RecordReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, ahead: Vec::new(), at: 0 }
    }

    fn buffered(&self) -> usize {
        self.ahead.len() - self.at
    }

    /// Waits until a byte of the next record is there; `false` when the stream ended instead.
    pub(crate) async fn ready(&mut self) -> Result<bool, RecordError> {
        if self.buffered() > 0 {
            return Ok(true);
        }
        self.ahead.clear();
        self.at = 0;
        self.ahead.reserve(READ_AHEAD_BYTES);
        // `take` bounds the buffer to what it has already, so it never grows.
        let read = (&mut self.stream).take(READ_AHEAD_BYTES as u64).read_buf(&mut self.ahead).await?;
        Ok(read > 0)
    }

    /// Reads one whole record into `record`, which is emptied first.
    pub(crate) async fn read(&mut self, record: &mut Vec<u8>) -> Result<(), RecordError> {
        record.clear();
        for _ in 0..FRAGMENTS_MAX {
            let mark = self.mark().await?;
            let len = usize::try_from(mark & !LAST_FRAGMENT).map_err(|_| RecordError::TooLong)?;
            let end = record.len().checked_add(len).filter(|end| *end <= RECORD_BYTES_MAX);
            self.fragment(record, end.ok_or(RecordError::TooLong)?).await?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(());
            }
        }
        Err(RecordError::TooManyFragments)
    }

    async fn mark(&mut self) -> Result<u32, RecordError> {
        let mut mark = [0; 4];
        for byte in &mut mark {
            if !self.ready().await? {
                return Err(RecordError::Cut);
            }
            *byte = self.ahead[self.at];
            self.at += 1;
        }
        Ok(u32::from_be_bytes(mark))
    }

    /// Reads until `record` has `end` bytes: first what was read ahead, then straight from the stream.
    async fn fragment(&mut self, record: &mut Vec<u8>, end: usize) -> Result<(), RecordError> {
        while record.len() < end {
            let missing = end - record.len();
            let buffered = self.buffered().min(missing);
            if buffered > 0 {
                record.extend_from_slice(&self.ahead[self.at..self.at + buffered]);
                self.at += buffered;
            } else if missing < READ_AHEAD_BYTES {
                // The rest is small: read ahead, other records may follow it.
                if !self.ready().await? {
                    return Err(RecordError::Cut);
                }
            } else {
                if record.len() == record.capacity() {
                    record.reserve_exact(missing.min(record.len().max(FIRST_RESERVE_BYTES)));
                }
                let room = missing.min(record.capacity() - record.len());
                if (&mut self.stream).take(room as u64).read_buf(record).await? == 0 {
                    return Err(RecordError::Cut);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
        let mark = u32::try_from(bytes.len()).unwrap() | if last { LAST_FRAGMENT } else { 0 };
        [&mark.to_be_bytes(), bytes].concat()
    }

    fn read_all(stream: &[u8]) -> (Vec<Vec<u8>>, Option<RecordError>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut reader = RecordReader::new(stream);
            let mut records = Vec::new();
            loop {
                match reader.ready().await {
                    Ok(true) => {}
                    Ok(false) => return (records, None),
                    Err(error) => return (records, Some(error)),
                }
                let mut record = Vec::new();
                if let Err(error) = reader.read(&mut record).await {
                    return (records, Some(error));
                }
                records.push(record);
            }
        })
    }

    /// Goal: records come out whole, however they were cut into fragments, also when larger than the read-ahead.
    #[test]
    fn fragments_are_joined() {
        let large: Vec<u8> = (0..300_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut stream = fragment(b"ab", false);
        stream.extend(fragment(b"", false));
        stream.extend(fragment(b"cd", true));
        stream.extend(fragment(&large[..100_000], false));
        stream.extend(fragment(&large[100_000..], true));
        stream.extend(fragment(b"", true));
        let (records, error) = read_all(&stream);
        assert!(error.is_none());
        assert_eq!(records, [b"abcd".to_vec(), large, Vec::new()]);
    }

    /// Goal: an announced length costs nothing until bytes come, and one over the limit is refused by its mark alone.
    #[test]
    fn marks_are_not_believed() {
        let (_, error) = read_all(&0xffff_ffff_u32.to_be_bytes());
        assert!(matches!(error, Some(RecordError::TooLong)), "{error:?}");
        let two_halves = [fragment(&vec![0; RECORD_BYTES_MAX], false), fragment(b"x", true)].concat();
        assert!(matches!(read_all(&two_halves).1, Some(RecordError::TooLong)));
        let empty: Vec<u8> = (0..=FRAGMENTS_MAX).flat_map(|_| fragment(b"", false)).collect();
        assert!(matches!(read_all(&empty).1, Some(RecordError::TooManyFragments)));

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let announced = [&(LAST_FRAGMENT | 1_000_000).to_be_bytes()[..], &[7; 10]].concat();
        let mut record = Vec::new();
        let result = runtime.block_on(RecordReader::new(&announced[..]).read(&mut record));
        assert!(matches!(result, Err(RecordError::Cut)));
        assert!(record.capacity() <= FIRST_RESERVE_BYTES * 2, "{} bytes reserved for 10", record.capacity());
    }

    proptest! {
        /// Goal: no byte stream panics or makes a record over the limit.
        #[test]
        fn any_stream(stream in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let (records, _) = read_all(&stream);
            prop_assert!(records.iter().map(Vec::len).sum::<usize>() <= stream.len());
        }
    }
}
