//! Which refusals are recorded (DESIGN §4): the first per (source, rule, path prefix, minute); the rest is counted. Memory is bounded, and
//! callers without a lease share one source and a fixed ring: nobody fills the ledger.

use std::collections::HashMap;

use nas_types::time::Timestamp;

/// Most different refusals followed within one minute. Beyond, they are counted together.
pub const REFUSAL_KEYS_MAX: usize = 4096;
/// Most different prefixes of one source that are recorded within one minute. Whoever is refused chooses the names; beyond
/// this its refusals are told apart by their rule only.
pub const REFUSAL_PREFIXES_MAX: usize = 32;
/// Slots of the ring that keeps what callers without authority tried.
pub const REFUSAL_RING_SLOTS: u16 = 256;
/// Components of a path that tell refusals apart.
pub const REFUSAL_PREFIX_PARTS: usize = 3;
/// Bytes of such a prefix.
const PREFIX_BYTES_MAX: usize = 256;

/// Who was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A run or a principal that proved who it is, by its printed id.
    Known(String),
    /// Anyone else.
    Unauthenticated,
}

/// What makes two refusals the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Who.
    pub source: Source,
    /// Rule that refused.
    pub rule: String,
    /// First components of the path, as bytes.
    pub prefix: Vec<u8>,
}

/// What to do with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// Append a record.
    pub record: bool,
    /// Write its detail into this slot of the ring (unauthenticated callers only).
    pub ring_slot: Option<u16>,
}

/// Refusals of one minute that were counted, the recorded one included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// Start of the minute.
    pub minute: Timestamp,
    /// What they had in common; `None` for those beyond [`REFUSAL_KEYS_MAX`].
    pub key: Option<Key>,
    /// How many.
    pub count: u64,
}

/// The aggregator.
#[derive(Debug, Default)]
pub struct Refusals {
    minute: i64,
    counts: HashMap<Key, u64>,
    prefixes: HashMap<Source, usize>,
    overflow: u64,
    ring_next: u16,
    finished: Vec<Counted>,
}

/// The first components of the bytes of a relative path.
#[must_use]
pub fn prefix_of(path: &[u8]) -> &[u8] {
    let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    let end = slashes.take(REFUSAL_PREFIX_PARTS).nth(REFUSAL_PREFIX_PARTS - 1).unwrap_or(path.len());
    &path[..end.min(PREFIX_BYTES_MAX)]
}

impl Refusals {
    /// Notes a refusal at `now`. `path` is the bytes of a relative path, empty when there is none.
    pub fn note(&mut self, now: Timestamp, source: Source, rule: &str, path: &[u8]) -> Noted {
        self.roll(now);
        let known = source != Source::Unauthenticated;
        let ring_slot = (!known).then(|| {
            let slot = self.ring_next;
            self.ring_next = (slot + 1) % REFUSAL_RING_SLOTS;
            slot
        });
        // Whoever proved nothing chooses its path too, so the path does not tell such refusals apart.
        let prefix = if known { prefix_of(path).to_vec() } else { Vec::new() };
        let mut key = Key { source, rule: rule.to_owned(), prefix };
        if !self.counts.contains_key(&key) && self.prefixes.get(&key.source).is_some_and(|n| *n >= REFUSAL_PREFIXES_MAX)
        {
            key.prefix.clear();
        }
        if let Some(count) = self.counts.get_mut(&key) {
            *count += 1;
            return Noted { record: false, ring_slot };
        }
        if self.counts.len() >= REFUSAL_KEYS_MAX {
            self.overflow += 1;
            // The first one over the limit is recorded, so that the flood itself is on record.
            return Noted { record: self.overflow == 1, ring_slot };
        }
        if known {
            *self.prefixes.entry(key.source.clone()).or_default() += 1;
        }
        self.counts.insert(key, 1);
        Noted { record: true, ring_slot }
    }

    /// Counts of minutes that are over, to be added up in the ledger. Single refusals are left out: their record says it all.
    pub fn drain(&mut self, now: Timestamp) -> Vec<Counted> {
        self.roll(now);
        std::mem::take(&mut self.finished)
    }

    fn roll(&mut self, now: Timestamp) {
        let minute = now.0.div_euclid(60_000);
        // A clock that runs back does not open a new minute, or it could be used to record again and again.
        if minute <= self.minute && minute > self.minute - 60 {
            return;
        }
        let at = Timestamp(self.minute.saturating_mul(60_000));
        let counted = self.counts.drain().filter(|(_, count)| *count > 1);
        self.prefixes.clear();
        self.finished.extend(counted.map(|(key, count)| Counted { minute: at, key: Some(key), count }));
        if self.overflow > 0 {
            self.finished.push(Counted { minute: at, key: None, count: self.overflow });
        }
        // When nobody drains, only the newest are kept.
        let excess = self.finished.len().saturating_sub(REFUSAL_KEYS_MAX);
        self.finished.drain(..excess);
        (self.minute, self.overflow) = (minute, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Source {
        Source::Known(name.to_owned())
    }
    const T: Timestamp = Timestamp(600_000);

    /// Goal: one record per (source, rule, prefix, minute), the rest counted.
    #[test]
    fn first_is_recorded() {
        let mut r = Refusals::default();
        assert!(r.note(T, known("a"), "rule", b"x/y/z/1").record);
        assert!(!r.note(T, known("a"), "rule", b"x/y/z/2").record);
        assert!(r.note(T, known("a"), "rule", b"x/y/w/2").record);
        assert!(r.note(T, known("b"), "rule", b"x/y/z/1").record);
        assert!(r.note(T, known("a"), "other", b"x/y/z/1").record);
        assert!(r.drain(T).is_empty(), "the minute is not over");
        let counted = r.drain(T.plus_ms(60_000));
        assert_eq!(counted.len(), 1);
        assert_eq!((counted[0].count, counted[0].minute), (2, T));
        assert!(r.note(T.plus_ms(60_000), known("a"), "rule", b"x/y/z/1").record);
        assert!(!r.note(T, known("a"), "rule", b"x/y/z/1").record, "a clock set back opens no new minute");
    }

    /// Goal: a flood by callers without a lease, from any path, costs one record a minute and the fixed ring.
    #[test]
    fn unauthenticated_flood() {
        let mut r = Refusals::default();
        let noted: Vec<_> =
            (0..10_000).map(|n: u32| r.note(T, Source::Unauthenticated, "no-lease", &n.to_le_bytes())).collect();
        assert_eq!(noted.iter().filter(|n| n.record).count(), 1);
        assert!(noted.iter().all(|n| n.ring_slot.is_some_and(|slot| slot < REFUSAL_RING_SLOTS)));
        assert_ne!(noted[0].ring_slot, noted[1].ring_slot);
        assert_eq!(r.drain(T.plus_ms(60_000))[0].count, 10_000);
    }

    /// Goal: a known but hostile run that invents names gets few records, and every rule it breaks one at least.
    #[test]
    fn flood_of_names() {
        let mut r = Refusals::default();
        let records = |r: &mut Refusals, rule| {
            (0..10_000).filter(|n: &usize| r.note(T, known("a"), rule, n.to_string().as_bytes()).record).count()
        };
        assert_eq!(records(&mut r, "rule"), REFUSAL_PREFIXES_MAX + 1);
        assert_eq!(records(&mut r, "other"), 1);
        assert!(r.note(T, known("b"), "rule", b"1").record, "others are not touched");
        assert!(r.note(T.plus_ms(60_000), known("a"), "rule", b"77").record, "a new minute");
    }

    /// Goal: many hostile runs cannot make memory or records grow without bound either.
    #[test]
    fn known_flood() {
        let mut r = Refusals::default();
        let n = REFUSAL_KEYS_MAX + 5000;
        let records = (0..n).filter(|n| r.note(T, known(&n.to_string()), "rule", b"x").record).count();
        assert_eq!(records, REFUSAL_KEYS_MAX + 1);
        let counted = r.drain(T.plus_ms(60_000));
        assert_eq!(counted, [Counted { minute: T, key: None, count: 5000 }]);
    }

    #[test]
    fn prefixes() {
        assert_eq!(prefix_of(b""), b"");
        assert_eq!(prefix_of(b"a/b"), b"a/b");
        assert_eq!(prefix_of(b"a/b/c"), b"a/b/c");
        assert_eq!(prefix_of(b"a/b/c/d/e"), b"a/b/c");
        assert_eq!(prefix_of(&[b'x'; 999]).len(), PREFIX_BYTES_MAX);
    }
}
