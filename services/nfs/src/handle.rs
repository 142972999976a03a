//! File handles: what a client holds instead of a path (DESIGN §5).
//!
//! ```text
//! version 1 | mount id 12 | inode 8 | generation 8 | parent hint 8 | MAC 16   = 53 bytes
//! ```
//!
//! The MAC is keyed BLAKE3 over all before it, cut to 128 bits. It makes a handle unforgeable; that it is not carried to
//! another mount or machine is then a matter of comparing. Nothing in it depends on a process or a name, so it survives
//! restarts and renames.

use nas_types::fs::{NodeId, NodeRef};
use nas_types::id::{ID_CHARS, MountId};
use subtle::ConstantTimeEq as _;

const VERSION: u8 = 1;
const MAC_BYTES: usize = 16;
const BODY_BYTES: usize = 1 + ID_CHARS + 3 * 8;
/// Length of every handle.
pub(crate) const HANDLE_BYTES: usize = BODY_BYTES + MAC_BYTES;
const _: () = assert!(HANDLE_BYTES <= crate::wire::args::HANDLE_BYTES_MAX);

/// Why bytes are no handle of ours; the rule of the refusal's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandleError {
    #[error("wrong length")]
    Length,
    #[error("unknown version")]
    Version,
    #[error("the MAC does not match")]
    Mac,
    #[error("no mount id inside")]
    Mount,
}

impl HandleError {
    /// Stable word for the record.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Length => "handle.length",
            Self::Version => "handle.version",
            Self::Mac => "handle.mac",
            Self::Mount => "handle.mount",
        }
    }
}

/// Seals and opens handles.
pub(crate) struct HandleKey([u8; 32]);

impl HandleKey {
    /// From the Door's key, so that no other use of that key can ever make a handle.
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(blake3::derive_key("nas-nfs file handle v1", key))
    }

    fn mac(&self, body: &[u8]) -> [u8; MAC_BYTES] {
        let hash = blake3::keyed_hash(&self.0, body);
        *hash.as_bytes().first_chunk().expect("because a hash has 32 bytes")
    }

    /// The handle of `node` in `mount`.
    pub(crate) fn seal(&self, mount: MountId, node: NodeRef) -> [u8; HANDLE_BYTES] {
        let mut handle = [0; HANDLE_BYTES];
        handle[0] = VERSION;
        handle[1..1 + ID_CHARS].copy_from_slice(mount.chars().as_bytes());
        let numbers = [node.id.ino, node.id.generation, node.parent_hint];
        for (place, number) in handle[1 + ID_CHARS..BODY_BYTES].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        let mac = self.mac(&handle[..BODY_BYTES]);
        handle[BODY_BYTES..].copy_from_slice(&mac);
        handle
    }

    /// What `handle` names, if this key sealed it.
    pub(crate) fn open(&self, handle: &[u8]) -> Result<(MountId, NodeRef), HandleError> {
        let handle: &[u8; HANDLE_BYTES] = handle.try_into().map_err(|_| HandleError::Length)?;
        if handle[0] != VERSION {
            return Err(HandleError::Version);
        }
        let (body, mac) = handle.split_at(BODY_BYTES);
        if !bool::from(self.mac(body).ct_eq(mac)) {
            return Err(HandleError::Mac);
        }
        let chars = std::str::from_utf8(&body[1..1 + ID_CHARS]).map_err(|_| HandleError::Mount)?;
        let mount = format!("{}{chars}", MountId::TAG).parse().map_err(|_| HandleError::Mount)?;
        let number = |at: usize| {
            let place = 1 + ID_CHARS + at * 8;
            u64::from_be_bytes(*body[place..].first_chunk().expect("because the body holds three numbers"))
        };
        let id = NodeId { ino: number(0), generation: number(1) };
        Ok((mount, NodeRef { id, parent_hint: number(2) }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(ino: u64, generation: u64, parent_hint: u64) -> NodeRef {
        NodeRef { id: NodeId { ino, generation }, parent_hint }
    }

    proptest! {
        /// Goal: a handle opens to what was sealed, and after any one flipped bit to nothing.
        #[test]
        fn sealed_and_tampered(ino: u64, generation: u64, hint: u64, byte in 0..HANDLE_BYTES, bit in 0..8_u8) {
            let key = HandleKey::new(&[7; 32]);
            let mount = MountId::random();
            let mut handle = key.seal(mount, node(ino, generation, hint));
            prop_assert_eq!(key.open(&handle), Ok((mount, node(ino, generation, hint))));
            handle[byte] ^= 1 << bit;
            prop_assert!(key.open(&handle).is_err());
        }

        /// Goal: no bytes panic, none open.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(HandleKey::new(&[7; 32]).open(&bytes).is_err());
        }
    }

    /// Goal: another box's key opens nothing; a cut or longer handle is refused.
    #[test]
    fn foreign_key_and_lengths() {
        let key = HandleKey::new(&[1; 32]);
        let handle = key.seal(MountId::random(), node(1, 2, 3));
        assert_eq!(HandleKey::new(&[2; 32]).open(&handle), Err(HandleError::Mac));
        assert_eq!(key.open(&handle[..HANDLE_BYTES - 1]), Err(HandleError::Length));
        assert_eq!(key.open(&[]), Err(HandleError::Length));
    }
}
