//! The duplicate-request cache: a retransmitted call gets the reply of its original and is not run again.
//!
//! It is keyed by mount, xid, procedure and a digest of the arguments, not by connection: clients retransmit exactly
//! when they had to reconnect. A duplicate that comes while its original still runs waits for that one's reply, because
//! the original's own connection may be gone. Every source has room of its own, so no client can push out what another
//! one still needs. It lives in memory; after a restart the Door's exclusive CREATE verifier is what is left.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Instant;

use lru::LruCache;
use nas_types::id::MountId;
use parking_lot::Mutex;

use crate::limits::{REPLAY_ENTRIES_MAX, REPLAY_REPLY_BYTES_MAX, REPLAY_SOURCES_MAX, REPLAY_TTL, REPLAY_WAITERS_MAX};

/// Whose calls are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// Calls through a mount.
    Mount(MountId),
    /// MNT, before there is a mount.
    Peer(IpAddr),
}

/// Bytes of the arguments that are hashed. Beyond the head of a WRITE their length is enough: a new call with an old
/// xid, the same place in the same file and the same head is no accident that happens.
const DIGEST_BYTES: usize = 1024;

/// One call of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    xid: u32,
    program: u32,
    procedure: u32,
    args: [u8; 16],
}

impl CallKey {
    pub(crate) fn new(xid: u32, program: u32, procedure: u32, args: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(args.len() as u64).to_be_bytes());
        hasher.update(&args[..args.len().min(DIGEST_BYTES)]);
        let digest = hasher.finalize();
        Self { xid, program, procedure, args: *digest.as_bytes().first_chunk().expect("because a hash has 32 bytes") }
    }
}

enum State<W> {
    Running { waiters: Vec<W> },
    Done { at: Instant, reply: Vec<u8> },
}

/// What to do with a call that came.
#[derive(Debug)]
pub(crate) enum Begin<W> {
    /// It is new: run it, then call [`Running::end`].
    Run(W),
    /// Its reply is known.
    Replay(W, Vec<u8>),
    /// Its original is running and will answer.
    Waiting,
}

type OfSource<W> = LruCache<CallKey, State<W>>;

/// The cache. `W` is where a reply goes.
pub(crate) struct Replays<W> {
    sources: Mutex<LruCache<Source, OfSource<W>>>,
}

impl<W> Replays<W> {
    pub(crate) fn new() -> Self {
        let max = const { NonZeroUsize::new(REPLAY_SOURCES_MAX).expect("because the limit is not zero") };
        Self { sources: Mutex::new(LruCache::new(max)) }
    }

    /// A call came at `now`.
    pub(crate) fn begin(&self, source: Source, key: CallKey, now: Instant, waiter: W) -> Begin<W> {
        let mut sources = self.sources.lock();
        let of_source = sources.get_or_insert_mut(source, || {
            let max = const { NonZeroUsize::new(REPLAY_ENTRIES_MAX).expect("because the limit is not zero") };
            LruCache::new(max)
        });
        match of_source.get_mut(&key) {
            Some(State::Running { waiters }) => {
                if waiters.len() == REPLAY_WAITERS_MAX {
                    // The oldest one's connection is the least likely to be there still.
                    waiters.remove(0);
                }
                waiters.push(waiter);
                Begin::Waiting
            }
            Some(State::Done { at, reply }) if now.duration_since(*at) < REPLAY_TTL => {
                Begin::Replay(waiter, reply.clone())
            }
            Some(State::Done { .. }) | None => {
                of_source.put(key, State::Running { waiters: Vec::new() });
                Begin::Run(waiter)
            }
        }
    }

    /// The guard of a call for which [`Begin::Run`] was said.
    pub(crate) fn running(&self, source: Source, key: CallKey) -> Running<'_, W> {
        Running { replays: self, source, key, ended: false }
    }

    /// Remembers `reply`, or forgets the call when there is none, and returns who waited for it.
    fn end(&self, source: Source, key: CallKey, now: Instant, reply: Option<&[u8]>) -> Vec<W> {
        let mut sources = self.sources.lock();
        let Some(of_source) = sources.peek_mut(&source) else { return Vec::new() };
        let done = reply.filter(|reply| reply.len() <= REPLAY_REPLY_BYTES_MAX);
        let old = match done {
            Some(reply) => of_source.put(key, State::Done { at: now, reply: reply.to_vec() }),
            None => of_source.pop(&key),
        };
        match old {
            Some(State::Running { waiters }) => waiters,
            Some(State::Done { .. }) | None => Vec::new(),
        }
    }
}

/// A call that runs. Dropped without a reply, the call counts as never made and may be sent again.
pub(crate) struct Running<'a, W> {
    replays: &'a Replays<W>,
    source: Source,
    key: CallKey,
    ended: bool,
}

impl<W> Running<'_, W> {
    /// The call gave `reply`; `None`: it did nothing and the same call may be run again. Returns who waited for it.
    #[must_use]
    pub(crate) fn end(mut self, now: Instant, reply: Option<&[u8]>) -> Vec<W> {
        self.ended = true;
        self.replays.end(self.source, self.key, now, reply)
    }
}

impl<W> Drop for Running<'_, W> {
    fn drop(&mut self) {
        if !self.ended {
            drop(self.replays.end(self.source, self.key, Instant::now(), None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source::Mount(MountId::random())
    }

    fn call(xid: u32) -> CallKey {
        CallKey::new(xid, 100_003, 8, b"arguments")
    }

    /// Goal: a retransmission gets the same bytes, other calls do not, and after the window it counts as new.
    #[test]
    fn replayed_once_done() {
        let (replays, from, now) = (Replays::new(), source(), Instant::now());
        assert!(matches!(replays.begin(from, call(1), now, "first"), Begin::Run("first")));
        assert!(replays.running(from, call(1)).end(now, Some(b"reply")).is_empty());
        match replays.begin(from, call(1), now, "again") {
            Begin::Replay("again", reply) => assert_eq!(reply, b"reply"),
            other => panic!("{other:?}"),
        }
        let other_args = CallKey::new(1, 100_003, 8, b"other");
        assert!(matches!(replays.begin(from, other_args, now, "new"), Begin::Run(_)));
        assert!(matches!(replays.begin(source(), call(1), now, "foreign"), Begin::Run(_)));
        assert!(matches!(replays.begin(from, call(1), now + REPLAY_TTL, "late"), Begin::Run(_)));
    }

    /// Goal: a duplicate of a running call does not run; it is answered with the original, the newest ones first kept.
    #[test]
    fn duplicates_wait_for_the_original() {
        let (replays, from, now) = (Replays::new(), source(), Instant::now());
        assert!(matches!(replays.begin(from, call(1), now, 0), Begin::Run(0)));
        let running = replays.running(from, call(1));
        for waiter in 1..=REPLAY_WAITERS_MAX + 1 {
            assert!(matches!(replays.begin(from, call(1), now, waiter), Begin::Waiting));
        }
        let waited = running.end(now, Some(b"reply"));
        assert_eq!(waited, (2..=REPLAY_WAITERS_MAX + 1).collect::<Vec<_>>());
    }

    /// Goal: what did nothing (JUKEBOX, a crash of ours, a reply too large) may be run again under the same xid.
    #[test]
    fn no_reply_is_no_memory() {
        let (replays, from, now) = (Replays::new(), source(), Instant::now());
        for reply in [None, Some(vec![0; REPLAY_REPLY_BYTES_MAX + 1])] {
            assert!(matches!(replays.begin(from, call(1), now, ()), Begin::Run(())));
            let _ = replays.running(from, call(1)).end(now, reply.as_deref());
        }
        assert!(matches!(replays.begin(from, call(1), now, ()), Begin::Run(())));
        drop(replays.running(from, call(1)));
        assert!(matches!(replays.begin(from, call(1), now, ()), Begin::Run(())));
    }

    /// Goal: one source never has more than its entries, and fills nobody else's.
    #[test]
    fn bounded_per_source() {
        let (replays, loud, quiet, now) = (Replays::new(), source(), source(), Instant::now());
        for (from, xids) in [(quiet, 0..1), (loud, 0..u32::try_from(REPLAY_ENTRIES_MAX).unwrap() + 1)] {
            for xid in xids {
                assert!(matches!(replays.begin(from, call(xid), now, ()), Begin::Run(())));
                let _ = replays.running(from, call(xid)).end(now, Some(b"reply"));
            }
        }
        assert!(matches!(replays.begin(quiet, call(0), now, ()), Begin::Replay(..)));
        assert!(matches!(replays.begin(loud, call(1), now, ()), Begin::Replay(..)));
        assert!(matches!(replays.begin(loud, call(0), now, ()), Begin::Run(())), "the oldest was forgotten");
    }
}
