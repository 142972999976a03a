//! How many calls who may make: a bucket for each run, for the owner, and for each address without a token.
//!
//! Whose bucket it is is known once the token was looked up, so the flood of one address empties its own bucket and never that
//! of an owner who calls from the same one. The table is bounded; who does not fit in shares one bucket with all others
//! that do not.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use nas_door::DoorError;

use crate::control::Share;
use crate::limits::{RATE_BUCKETS_MAX, Rate};

/// Whose bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    /// The owner, or a run.
    Known(Share),
    /// Callers from this address that proved nothing.
    Address(IpAddr),
    /// All that did not fit in the table.
    Rest,
}

/// What a caller has left, for the headers of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    rate: Rate,
    left: u32,
    /// Until the bucket is full again.
    full_in: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Calls left, in thousandths.
    milli: u64,
    at: Instant,
}

#[derive(Default)]
struct Table {
    buckets: HashMap<Payer, Bucket>,
    /// When full buckets were last removed: it looks at all of them, so not for each call.
    swept: Option<Instant>,
}

/// Time between two looks for buckets that are full again.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// All buckets.
pub(crate) struct Rates {
    table: Mutex<Table>,
    owner: Rate,
    run: Rate,
    nobody: Rate,
}

impl Rates {
    pub(crate) fn new(owner: Rate, run: Rate, nobody: Rate) -> Self {
        Self { table: Mutex::default(), owner, run, nobody }
    }

    fn rate(&self, payer: Payer) -> Rate {
        match payer {
            Payer::Known(Share::Owner) => self.owner,
            Payer::Known(Share::Run(_)) => self.run,
            Payer::Known(Share::Nobody) | Payer::Address(_) | Payer::Rest => self.nobody,
        }
    }

    /// Takes one call from the bucket of `payer`; an empty one says when to come back.
    pub(crate) fn take(&self, payer: Payer, now: Instant) -> Result<Allowance, DoorError> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let payer = self.place(&mut table, payer, now);
        let buckets = &mut table.buckets;
        let rate = self.rate(payer);
        let mut bucket = filled(buckets.get(&payer).copied(), rate, now);
        let Some(left) = bucket.milli.checked_sub(1000) else {
            let wait_ms = (1000 - bucket.milli).div_ceil(u64::from(rate.per_second.max(1)));
            return Err(DoorError::Busy { retry_after_seconds: wait_ms.div_ceil(1000).max(1) });
        };
        bucket.milli = left;
        buckets.insert(payer, bucket);
        let missing = (u64::from(rate.burst) * 1000).saturating_sub(left);
        let full_in = Duration::from_millis(missing.div_ceil(u64::from(rate.per_second.max(1))));
        let left = u32::try_from(left / 1000).unwrap_or(u32::MAX);
        Ok(Allowance { rate, left, full_in })
    }

    /// The bucket that `payer` uses: its own, unless the table is full of those that are in use.
    fn place(&self, Table { buckets, swept }: &mut Table, payer: Payer, now: Instant) -> Payer {
        if payer == Payer::Known(Share::Owner) || buckets.contains_key(&payer) || buckets.len() < RATE_BUCKETS_MAX {
            return payer;
        }
        if swept.is_some_and(|swept| now.saturating_duration_since(swept) < SWEEP_EVERY) {
            return Payer::Rest;
        }
        *swept = Some(now);
        // A full bucket is what one who was never seen has.
        buckets.retain(|payer, bucket| {
            let rate = self.rate(*payer);
            filled(Some(*bucket), rate, now).milli < u64::from(rate.burst) * 1000
        });
        if buckets.len() < RATE_BUCKETS_MAX { payer } else { Payer::Rest }
    }
}

/// A bucket as it is at `now`.
fn filled(bucket: Option<Bucket>, rate: Rate, now: Instant) -> Bucket {
    let full = u64::from(rate.burst) * 1000;
    let Some(bucket) = bucket else { return Bucket { milli: full, at: now } };
    let ms = u64::try_from(now.saturating_duration_since(bucket.at).as_millis()).unwrap_or(u64::MAX);
    // A call per second is a thousandth of one per millisecond.
    let milli = bucket.milli.saturating_add(ms.saturating_mul(u64::from(rate.per_second))).min(full);
    // Less than a millisecond is not lost: the time stays that of the last whole one.
    let at = if ms == 0 { bucket.at } else { now };
    Bucket { milli, at }
}

impl Allowance {
    /// Says it in the headers of an answer (IETF draft-ietf-httpapi-ratelimit-headers, section 3 and 4).
    pub(crate) fn tell(self, response: &mut Response) {
        let window = self.rate.burst.div_ceil(self.rate.per_second.max(1));
        let policy = format!("\"calls\";q={};w={window}", self.rate.burst);
        let now = format!("\"calls\";r={};t={}", self.left, self.full_in.as_millis().div_ceil(1000));
        for (name, value) in [("ratelimit-policy", policy), ("ratelimit", now)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Rate = Rate { per_second: 2, burst: 3 };

    fn address(n: u32) -> Payer {
        Payer::Address(IpAddr::from(n.to_be_bytes()))
    }

    /// Goal: a burst passes, then the rate; who has nothing left is told when the next call is possible, and then it is.
    #[test]
    fn burst_then_rate() {
        let rates = Rates::new(SMALL, SMALL, SMALL);
        let start = Instant::now();
        let left: Vec<u32> = (0..3).map(|_| rates.take(address(1), start).unwrap().left).collect();
        assert_eq!(left, [2, 1, 0]);
        let Err(DoorError::Busy { retry_after_seconds }) = rates.take(address(1), start) else { panic!("not empty") };
        assert_eq!(retry_after_seconds, 1);
        assert!(rates.take(address(1), start + Duration::from_millis(499)).is_err());
        assert!(rates.take(address(1), start + Duration::from_millis(1000)).is_ok());
        assert!(rates.take(address(1), start + Duration::from_millis(1000)).is_ok());
        assert!(rates.take(address(1), start + Duration::from_millis(1000)).is_err());
        let rested = rates.take(address(1), start + Duration::from_secs(3600)).unwrap();
        assert_eq!((rested.left, rested.full_in), (2, Duration::from_millis(500)));
    }

    /// Goal: no number of addresses makes the table larger, and none of them costs the owner a call.
    #[test]
    fn bounded_and_the_owner_apart() {
        let rates = Rates::new(SMALL, SMALL, SMALL);
        let now = Instant::now();
        let many = u32::try_from(RATE_BUCKETS_MAX).unwrap() * 2;
        let passed = (0..many).filter(|n| rates.take(address(*n), now).is_ok()).count();
        assert_eq!(passed, RATE_BUCKETS_MAX + 3, "those that do not fit share one bucket");
        assert!(rates.table.lock().unwrap().buckets.len() <= RATE_BUCKETS_MAX + 1);
        assert!(rates.take(Payer::Known(Share::Owner), now).is_ok());
        // Those that rested make room.
        let later = now + Duration::from_secs(60);
        assert!((0..many).all(|n| rates.take(address(n % 1000), later).is_ok() || n >= 3000));
        assert!(rates.table.lock().unwrap().buckets.len() <= RATE_BUCKETS_MAX + 2);
    }
}
