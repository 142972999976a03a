//! Buffers that are used again, so that a steady load allocates nothing.
//!
//! Small and large ones are kept apart: what a request counts against its connection's budget is the length of its
//! bytes, so a small reply must not hold a large buffer.

use parking_lot::Mutex;

use crate::limits::{FREE_BUFFER_BYTES_MAX, REQUEST_BYTES_MIN};

/// Up to this capacity a buffer is small: the least that any request counts.
pub(crate) const SMALL_BYTES_MAX: usize = REQUEST_BYTES_MIN;

#[derive(Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Free {
    fn take(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop()?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= FREE_BUFFER_BYTES_MAX / 2 {
            buffer.clear();
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}

/// Two free lists, each bounded by bytes.
#[derive(Default)]
pub(crate) struct Buffers {
    small: Mutex<Free>,
    large: Mutex<Free>,
}

impl Buffers {
    /// An empty buffer for at most `len` bytes.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let free = if len <= SMALL_BYTES_MAX { &self.small } else { &self.large };
        free.lock().take().unwrap_or_default()
    }

    /// Gives a buffer back. It is dropped when enough are free.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        match buffer.capacity() {
            0 => {}
            1..=SMALL_BYTES_MAX => self.small.lock().give(buffer),
            _ => self.large.lock().give(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: free buffers never hold more than their limit, and come back empty.
    #[test]
    fn bounded() {
        let buffers = Buffers::default();
        for _ in 0..5 {
            buffers.give(vec![1; FREE_BUFFER_BYTES_MAX / 8]);
        }
        assert!(buffers.large.lock().bytes <= FREE_BUFFER_BYTES_MAX / 2);
        let buffer = buffers.take(SMALL_BYTES_MAX + 1);
        assert!(buffer.is_empty() && buffer.capacity() >= FREE_BUFFER_BYTES_MAX / 8);
        assert_eq!(buffers.large.lock().buffers.len(), 3);
    }

    /// Goal: who asks for little never gets a large buffer.
    #[test]
    fn small_and_large_are_apart() {
        let buffers = Buffers::default();
        buffers.give(Vec::with_capacity(1 << 20));
        assert!(buffers.take(SMALL_BYTES_MAX).capacity() <= SMALL_BYTES_MAX);
        assert!(buffers.take(SMALL_BYTES_MAX + 1).capacity() >= 1 << 20);
    }
}
