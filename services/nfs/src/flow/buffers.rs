//! Buffers that are used again, so that a steady load allocates nothing.

use parking_lot::Mutex;

use crate::limits::FREE_BUFFER_BYTES_MAX;

#[derive(Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A free list bounded by bytes.
#[derive(Default)]
pub(crate) struct Buffers {
    free: Mutex<Free>,
}

impl Buffers {
    /// An empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut free = self.free.lock();
        let buffer = free.buffers.pop().unwrap_or_default();
        free.bytes -= buffer.capacity();
        buffer
    }

    /// Gives a buffer back. It is dropped when enough are free.
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        let mut free = self.free.lock();
        if buffer.capacity() > 0 && free.bytes + buffer.capacity() <= FREE_BUFFER_BYTES_MAX {
            buffer.clear();
            free.bytes += buffer.capacity();
            free.buffers.push(buffer);
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
            buffers.give(vec![1; FREE_BUFFER_BYTES_MAX / 4]);
        }
        assert!(buffers.free.lock().bytes <= FREE_BUFFER_BYTES_MAX);
        let buffer = buffers.take();
        assert!(buffer.is_empty() && buffer.capacity() >= FREE_BUFFER_BYTES_MAX / 4);
        assert_eq!(buffers.free.lock().buffers.len(), 3);
    }
}
