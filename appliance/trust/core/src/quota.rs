//! Meters of quotas and budgets (SPEC LEASE-8, BRANCH-6): an operation is admitted while something is left, and then charged in full, so the
//! overshoot is at most one operation, also under concurrent callers.

use std::sync::atomic::{AtomicU64, Ordering};

/// The limit was reached before this operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{used} of {limit} are used up")]
pub struct Spent {
    /// What was used before.
    pub used: u64,
    /// The limit.
    pub limit: u64,
}

/// Decides one charge: the use afterwards, or why not. An operation that charges nothing is always admitted.
pub fn charge(limit: Option<u64>, used: u64, amount: u64) -> Result<u64, Spent> {
    match limit {
        Some(limit) if amount > 0 && used >= limit => Err(Spent { used, limit }),
        _ => Ok(used.saturating_add(amount)),
    }
}

/// A counter shared by the sessions of one lease or run.
#[derive(Debug, Default)]
pub struct Meter {
    limit: Option<u64>,
    used: AtomicU64,
}

impl Meter {
    /// A meter with what was used before; `None` is without limit.
    #[must_use]
    pub fn new(limit: Option<u64>, used: u64) -> Self {
        Self { limit, used: AtomicU64::new(used) }
    }

    /// Charges `amount` or says that the limit was reached.
    pub fn try_charge(&self, amount: u64) -> Result<(), Spent> {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let next = charge(self.limit, used, amount)?;
            match self.used.compare_exchange_weak(used, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => used = found,
            }
        }
    }

    /// Gives back what an admitted operation did not use.
    pub fn refund(&self, amount: u64) {
        // The closure always gives a value, so this cannot fail.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used.saturating_sub(amount)));
    }

    /// What is used.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit; `None` is without.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// What is left; `u64::MAX` without a limit.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.used()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: never more than the limit plus one operation, and nothing refused while something is left.
        #[test]
        fn overshoot_is_one_operation(limit in 0u64..1000, amounts in prop::collection::vec(0u64..300, 1..50)) {
            let meter = Meter::new(Some(limit), 0);
            for amount in amounts {
                let before = meter.used();
                let admitted = meter.try_charge(amount).is_ok();
                prop_assert_eq!(admitted, amount == 0 || before < limit);
                let overshoot = if before < limit { amount } else { 0 };
                prop_assert!(meter.used() <= limit.max(before) + overshoot);
            }
        }
    }

    /// Goal: racing callers overshoot by one operation together, not by one each.
    #[test]
    fn concurrent_callers() {
        let meter = Meter::new(Some(1000), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| while meter.try_charge(7).is_ok() {});
            }
        });
        assert_eq!(meter.used(), 1001);
        meter.refund(10_000);
        assert_eq!((meter.used(), meter.left()), (0, 1000));
        assert!(Meter::new(None, u64::MAX).try_charge(u64::MAX).is_ok());
    }
}
