//! XDR (RFC 4506): decoding in place from a slice, encoding into a buffer that is reused.
//!
//! Lengths on the wire are checked against their limit *and* against the bytes that are there before anything is
//! sliced; decoding never allocates.

/// Bytes that are not what the protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// The bytes end inside a value.
    #[error("the message ends inside a value")]
    Short,
    /// Bytes are left after the last value.
    #[error("bytes are left after the last value")]
    Trailing,
    /// A length is over its limit.
    #[error("a length is over its limit")]
    TooLong,
    /// A union or enum has a discriminant that does not exist.
    #[error("a discriminant does not exist")]
    Discriminant,
}

/// `len` rounded up to the four-byte unit of XDR (RFC 4506 §3).
pub(crate) const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Reads values one after the other from a slice.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// All bytes that were not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<4>().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*taken))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<8>().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*taken))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Discriminant),
        }
    }

    /// Opaque of a fixed length that is a multiple of four.
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        const { assert!(N.is_multiple_of(4), "because only unpadded opaques are read here") };
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Opaque or string of at most `max` bytes. Padding bytes are skipped, whatever they hold.
    pub(crate) fn opaque(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.u32()?).map_err(|_| Malformed::TooLong)?;
        if len > max {
            return Err(Malformed::TooLong);
        }
        let taken = self.take(len)?;
        self.take(padded(len) - len)?;
        Ok(taken)
    }
}

/// Appends values to a buffer.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets everything after the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Bytes as they are, without length or padding.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("because everything we send is bounded far below 4 GiB"));
        self.raw(bytes);
        self.pad(bytes.len());
    }

    /// Zeroes that complete an opaque of `len` bytes.
    pub(crate) fn pad(&mut self, len: usize) {
        self.bytes.extend_from_slice(&[0; 3][..padded(len) - len]);
    }

    /// Appends `len` zeroes and returns them, to be filled in place.
    pub(crate) fn space(&mut self, len: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.reserve_exact(len + 4);
        self.bytes.resize(start + len, 0);
        &mut self.bytes[start..]
    }

    /// Overwrites bytes written before at `at`.
    pub(crate) fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Overwrites a value written before at `at`.
    pub(crate) fn patch_u32(&mut self, at: usize, value: u32) {
        self.patch(at, &value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a length that lies is refused before a slice is taken, and padding is part of the value.
    #[test]
    fn opaque_limits() {
        let mut buffer = Vec::new();
        Writer::new(&mut buffer).opaque(b"abcde");
        assert_eq!(buffer, b"\0\0\0\x05abcde\0\0\0");
        let mut reader = Reader::new(&buffer);
        assert_eq!(reader.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(reader.end(), Ok(()));
        assert_eq!(Reader::new(&buffer).opaque(4), Err(Malformed::TooLong));
        assert_eq!(Reader::new(&buffer[..9]).opaque(5), Err(Malformed::Short), "padding is missing");
        assert_eq!(Reader::new(&[0xff; 4]).opaque(usize::MAX), Err(Malformed::Short));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Malformed::Discriminant));
    }
}
