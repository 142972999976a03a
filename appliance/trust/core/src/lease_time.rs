//! How much time a lease has left (SPEC LEASE-1, DESIGN §4 "Time").
//!
//! Remaining time counts on `CLOCK_BOOTTIME`, which nobody can set and which counts through suspend; it is persisted each
//! minute. After a reboot the stored remainder cannot be dated, so the lease is suspended until the wall clock is trusted
//! and then gets `min(stored remainder, expires_at − now)`. There is no extension: renewal is a new issue.

use nas_types::time::Timestamp;

use crate::clock::{BootId, Now};

/// Time to live when none is asked for: 4 h.
pub const LEASE_TTL_DEFAULT_MS: i64 = 4 * 3_600_000;
/// Longest time to live: 24 h.
pub const LEASE_TTL_MAX_MS: i64 = 24 * 3_600_000;
/// How often the remainder is persisted: what a crash can give back to a lease at most.
pub const LEASE_PERSIST_EVERY_MS: i64 = 60_000;

/// A time to live outside 1 ms … [`LEASE_TTL_MAX_MS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease lives for more than 0 and at most 24h, not {}; ask for a new lease when it is over", text(.ttl_ms))]
pub struct TtlError {
    /// What was asked for.
    pub ttl_ms: i64,
}

/// A duration as a person writes it: `25h`, `1h30m`, `45s`; below a second in milliseconds.
fn text(ms: &i64) -> String {
    let ms = *ms;
    if ms % 1000 != 0 || ms <= 0 {
        return format!("{ms} ms");
    }
    let seconds = ms / 1000;
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

/// Where a lease stands in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseTime {
    /// In force for this long.
    Live {
        /// More than 0.
        remaining_ms: i64,
    },
    /// The box was restarted and its clock is not trusted yet: not usable now.
    Suspended,
    /// Over, for good.
    Expired,
}

/// The stored time of a lease: `remaining_ms` as of `boottime_ms` of boot `boot_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseClock {
    /// When it ends by the wall clock at issue.
    pub expires_at: Timestamp,
    /// What was left.
    pub remaining_ms: i64,
    /// In which boot that was.
    pub boot_id: BootId,
    /// When that was, `CLOCK_BOOTTIME`.
    pub boottime_ms: i64,
}

impl LeaseClock {
    /// Starts the time of a lease; `ttl_ms` defaults to [`LEASE_TTL_DEFAULT_MS`].
    pub fn issue(ttl_ms: Option<i64>, now: &Now) -> Result<Self, TtlError> {
        let ttl_ms = ttl_ms.unwrap_or(LEASE_TTL_DEFAULT_MS);
        if !(1..=LEASE_TTL_MAX_MS).contains(&ttl_ms) {
            return Err(TtlError { ttl_ms });
        }
        let expires_at = now.wall.plus_ms(ttl_ms);
        Ok(Self { expires_at, remaining_ms: ttl_ms, boot_id: now.boot_id, boottime_ms: now.boottime_ms })
    }

    /// A child's time: what was asked for, but never beyond its parent (SPEC LEASE-2). `None` when the parent is not live.
    pub fn issue_child(&self, ttl_ms: Option<i64>, now: &Now) -> Result<Option<Self>, TtlError> {
        let child = Self::issue(ttl_ms, now)?;
        let LeaseTime::Live { remaining_ms } = self.at(now) else { return Ok(None) };
        let remaining_ms = child.remaining_ms.min(remaining_ms);
        let expires_at = child.expires_at.min(self.expires_at).min(now.wall.plus_ms(remaining_ms));
        Ok(Some(Self { expires_at, remaining_ms, ..child }))
    }

    /// Where the lease stands now.
    #[must_use]
    pub fn at(&self, now: &Now) -> LeaseTime {
        let remaining_ms = if self.boot_id == now.boot_id {
            // BOOTTIME never runs back; a reading from before the stored one gives no time back either.
            self.remaining_ms.saturating_sub(now.boottime_ms.saturating_sub(self.boottime_ms).max(0))
        } else if now.trusted {
            self.remaining_ms.min(self.expires_at.since_ms(now.wall))
        } else if self.remaining_ms > 0 {
            return LeaseTime::Suspended;
        } else {
            return LeaseTime::Expired;
        };
        if remaining_ms > 0 { LeaseTime::Live { remaining_ms } } else { LeaseTime::Expired }
    }

    /// The state to persist now: the remainder dated by this boot, 0 when expired, unchanged while suspended.
    ///
    /// To be taken each [`LEASE_PERSIST_EVERY_MS`], and at once when a lease is found live after a reboot: until then the wall
    /// clock decides, and only from then on `CLOCK_BOOTTIME`.
    #[must_use]
    pub fn rebased(&self, now: &Now) -> Self {
        let remaining_ms = match self.at(now) {
            LeaseTime::Live { remaining_ms } => remaining_ms,
            LeaseTime::Expired => 0,
            LeaseTime::Suspended => return *self,
        };
        Self { remaining_ms, boot_id: now.boot_id, boottime_ms: now.boottime_ms, ..*self }
    }

    /// The reading of `CLOCK_BOOTTIME` in this boot at which the lease ends; `None` while suspended.
    #[must_use]
    pub fn ends_at_boottime_ms(&self, now: &Now) -> Option<i64> {
        match self.at(now) {
            LeaseTime::Live { remaining_ms } => Some(now.boottime_ms.saturating_add(remaining_ms)),
            LeaseTime::Expired => Some(i64::MIN),
            LeaseTime::Suspended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn now(wall: i64, boottime_ms: i64, boot: u128, trusted: bool) -> Now {
        Now { wall: Timestamp(wall), boottime_ms, boot_id: BootId(boot), trusted }
    }

    /// Goal: LEASE-1, default 4 h, at most 24 h.
    #[test]
    fn ttl_limits() {
        let t = now(0, 0, 1, true);
        assert_eq!(LeaseClock::issue(None, &t).unwrap().remaining_ms, LEASE_TTL_DEFAULT_MS);
        assert!(LeaseClock::issue(Some(LEASE_TTL_MAX_MS), &t).is_ok());
        for bad in [0, -1, LEASE_TTL_MAX_MS + 1, i64::MAX, i64::MIN] {
            assert_eq!(LeaseClock::issue(Some(bad), &t), Err(TtlError { ttl_ms: bad }));
        }
    }

    /// Goal: the error names the time as a person writes it.
    #[test]
    fn ttl_in_words() {
        for (ms, want) in
            [(90_000_000, "25h"), (90_061_000, "25h1m1s"), (86_430_000, "24h30s"), (-5, "-5 ms"), (0, "0 ms")]
        {
            let said = LeaseClock::issue(Some(ms), &now(0, 0, 1, true)).unwrap_err().to_string();
            assert!(said.contains(&format!("at most 24h, not {want};")), "{said}");
        }
    }

    /// Goal: setting the wall clock back does not lengthen a lease within one boot.
    #[test]
    fn wall_clock_does_not_count_within_a_boot() {
        let lease = LeaseClock::issue(Some(1000), &now(5000, 100, 1, true)).unwrap();
        assert_eq!(lease.at(&now(-99_000, 1099, 1, true)), LeaseTime::Live { remaining_ms: 1 });
        assert_eq!(lease.at(&now(-99_000, 1100, 1, true)), LeaseTime::Expired);
    }

    /// Goal: after a reboot a lease waits for a trusted clock, then gets the smaller of what was stored and what the wall clock leaves.
    #[test]
    fn reboot() {
        let lease = LeaseClock::issue(Some(10_000), &now(0, 0, 1, true)).unwrap().rebased(&now(4000, 4000, 1, true));
        assert_eq!(lease.remaining_ms, 6000);
        assert_eq!(lease.at(&now(5000, 10, 2, false)), LeaseTime::Suspended);
        assert_eq!(lease.rebased(&now(5000, 10, 2, false)), lease);
        assert_eq!(lease.at(&now(5000, 10, 2, true)), LeaseTime::Live { remaining_ms: 5000 });
        assert_eq!(lease.at(&now(-5000, 10, 2, true)), LeaseTime::Live { remaining_ms: 6000 });
        assert_eq!(lease.at(&now(10_000, 10, 2, true)), LeaseTime::Expired);
        let resumed = lease.rebased(&now(5000, 10, 2, true));
        // From here on the new boot's clock counts, whatever the wall clock does.
        assert_eq!(resumed.at(&now(0, 5009, 2, false)), LeaseTime::Live { remaining_ms: 1 });
        assert_eq!(resumed.ends_at_boottime_ms(&now(0, 10, 2, false)), Some(5010));
    }

    /// Goal: an expired lease stays expired across a reboot, also before the clock is trusted.
    #[test]
    fn expired_is_for_good() {
        let lease = LeaseClock::issue(Some(10), &now(0, 0, 1, true)).unwrap().rebased(&now(10, 10, 1, true));
        assert_eq!(lease.at(&now(0, 0, 2, false)), LeaseTime::Expired);
        assert_eq!(lease.at(&now(0, 0, 2, true)), LeaseTime::Expired);
    }

    /// Goal: LEASE-2 in time.
    #[test]
    fn a_child_ends_no_later_than_its_parent() {
        let parent = LeaseClock::issue(Some(10_000), &now(0, 0, 1, true)).unwrap();
        let child = parent.issue_child(None, &now(4000, 4000, 1, true)).unwrap().unwrap();
        assert_eq!((child.remaining_ms, child.expires_at), (6000, Timestamp(10_000)));
        assert_eq!(parent.issue_child(None, &now(0, 10_000, 1, true)), Ok(None));
    }

    proptest! {
        /// Goal: whatever sequence of readings, reboots and persisting happens, time never comes back and a lease never
        /// runs for more boot time than it was given.
        #[test]
        fn never_longer(steps in prop::collection::vec((0i64..50_000, -100_000i64..100_000, any::<bool>(), any::<bool>(), any::<bool>()), 1..40)) {
            let ttl = 100_000;
            let (mut boot, mut boottime_ms, mut used) = (1u128, 0i64, 0i64);
            let mut lease = LeaseClock::issue(Some(ttl), &now(0, 0, boot, true)).unwrap();
            let mut expired = false;
            let mut left = ttl;
            for (elapsed, wall, reboot, trusted, persist) in steps {
                if reboot && persist {
                    lease = lease.rebased(&now(wall, boottime_ms, boot, trusted));
                    (boot, boottime_ms) = (boot + 1, 0);
                } else {
                    boottime_ms += elapsed;
                }
                let t = now(wall, boottime_ms, boot, trusted);
                match lease.at(&t) {
                    LeaseTime::Live { remaining_ms } => {
                        prop_assert!(!expired);
                        prop_assert!(remaining_ms <= left);
                        used += left - remaining_ms;
                        left = remaining_ms;
                        prop_assert!(used < ttl);
                        // As the docs of `rebased` demand: at once when a lease resumes after a reboot.
                        if persist || lease.boot_id != t.boot_id {
                            lease = lease.rebased(&t);
                        }
                    }
                    // Persisted as expired: for good. Before that a wall clock set back may still revive the remainder.
                    LeaseTime::Expired => { lease = lease.rebased(&t); expired = true; }
                    LeaseTime::Suspended => prop_assert!(!expired),
                }
            }
        }
    }
}
