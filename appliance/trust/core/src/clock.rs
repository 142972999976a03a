//! Whether the wall clock can be trusted (DESIGN §4 "Time"). A home NAS boots at 1970 when its battery is empty, and a
//! clock that is set wrong must neither lengthen a lease nor let anything be deleted by age.
//!
//! Trusted means: synchronised, or not behind the ledger's last record and confirmed by the owner. A jump of more than an
//! hour against `CLOCK_BOOTTIME` withdraws trust; only the owner, or the first synchronisation, gives it back.

use std::fmt;
use std::str::FromStr;

use nas_types::time::Timestamp;

/// A change of the wall clock against `CLOCK_BOOTTIME` beyond this is a jump.
pub const CLOCK_JUMP_MS_MAX: i64 = 3_600_000;
/// The wall clock may be this much behind the ledger's last record: small corrections are normal.
pub const CLOCK_BEHIND_MS_MAX: i64 = 60_000;

/// The kernel's boot id (`/proc/sys/kernel/random/boot_id`): differs after each boot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId(pub u128);

/// A text that is not a boot id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a boot id: expected 32 hexadecimal digits, with or without dashes")]
pub struct BootIdError;

impl FromStr for BootId {
    type Err = BootIdError;
    fn from_str(text: &str) -> Result<Self, BootIdError> {
        let digits = text.trim().replace('-', "");
        if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(BootIdError);
        }
        u128::from_str_radix(&digits, 16).map(Self).map_err(|_| BootIdError)
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// All clocks, read once by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Wall clock.
    pub wall: Timestamp,
    /// `CLOCK_BOOTTIME` in milliseconds.
    pub boottime_ms: i64,
    /// Which boot it counts from.
    pub boot_id: BootId,
    /// Is the wall clock trusted? (What [`Trust`] last said.)
    pub trusted: bool,
}

/// Why the wall clock is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// Not synchronised, and nobody has confirmed it since this start.
    Unconfirmed,
    /// Behind the last record by this many milliseconds: it was set back, or the battery is empty.
    BehindLedger {
        /// How far behind.
        by_ms: i64,
    },
    /// Moved against `CLOCK_BOOTTIME` by this many milliseconds (negative: back).
    Jumped {
        /// How far.
        by_ms: i64,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconfirmed => f.write_str("the clock is not synchronised and the owner has not confirmed it"),
            Self::BehindLedger { by_ms } => write!(f, "the clock is {} s behind the last record", by_ms / 1000),
            Self::Jumped { by_ms } => write!(f, "the clock jumped by {} s; the owner must confirm it", by_ms / 1000),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The clocks were read.
    Reading {
        /// Wall clock.
        wall: Timestamp,
        /// `CLOCK_BOOTTIME` in milliseconds.
        boottime_ms: i64,
        /// The kernel says the wall clock is synchronised.
        synced: bool,
    },
    /// A record was written at this time.
    Recorded(Timestamp),
    /// The owner confirmed that the wall clock, as last read, is right.
    OwnerConfirmed,
}

/// What a restart of the program within one boot must not forget: the last reading and why it was trusted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    boot_id: String,
    wall: Timestamp,
    boottime_ms: i64,
    synced: bool,
    confirmed: bool,
    jumped_by_ms: Option<i64>,
}

/// State of trust in the wall clock. Starts without trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    last_record: Timestamp,
    last: Option<(Timestamp, i64)>,
    synced: bool,
    confirmed: bool,
    jumped_by_ms: Option<i64>,
}

impl Trust {
    /// At start, with the time of the ledger's last record.
    #[must_use]
    pub fn new(last_record: Timestamp) -> Self {
        Self { last_record, last: None, synced: false, confirmed: false, jumped_by_ms: None }
    }

    /// To be persisted now and then; `None` before the first reading.
    #[must_use]
    pub fn snapshot(&self, boot_id: BootId) -> Option<Snapshot> {
        let (wall, boottime_ms) = self.last?;
        let Self { synced, confirmed, jumped_by_ms, .. } = *self;
        Some(Snapshot { boot_id: boot_id.to_string(), wall, boottime_ms, synced, confirmed, jumped_by_ms })
    }

    /// At start, with the time of the ledger's last record and what was persisted. Within the same boot the clock is compared with the persisted reading, so a
    /// jump while the program was stopped shows; what another boot persisted says nothing.
    #[must_use]
    pub fn resume(last_record: Timestamp, persisted: Option<&Snapshot>, boot_id: BootId) -> Self {
        match persisted {
            Some(s) if s.boot_id.parse() == Ok(boot_id) => Self {
                last_record,
                last: Some((s.wall, s.boottime_ms)),
                synced: s.synced,
                confirmed: s.confirmed,
                jumped_by_ms: s.jumped_by_ms,
            },
            _ => Self::new(last_record),
        }
    }

    /// Why the clock is not trusted; `None` when it is.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        let behind_ms = self.last.map_or(0, |(wall, _)| self.last_record.since_ms(wall));
        match (self.jumped_by_ms, self.last) {
            (Some(by_ms), _) => Some(Doubt::Jumped { by_ms }),
            (None, None) => Some(Doubt::Unconfirmed),
            (None, Some(_)) if self.synced => None,
            (None, Some(_)) if behind_ms > CLOCK_BEHIND_MS_MAX => Some(Doubt::BehindLedger { by_ms: behind_ms }),
            (None, Some(_)) if self.confirmed => None,
            (None, Some(_)) => Some(Doubt::Unconfirmed),
        }
    }

    /// May leases resume, and may anything be deleted by age?
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.doubt().is_none()
    }

    /// Takes in an event. Returns whether trust changed.
    pub fn step(&mut self, event: Event) -> bool {
        let before = self.is_trusted();
        match event {
            Event::Reading { wall, boottime_ms, synced } => self.read(wall, boottime_ms, synced),
            Event::Recorded(time) => self.last_record = self.last_record.max(time),
            Event::OwnerConfirmed => {
                // The owner vouches for the reading shown; without one there is nothing to vouch for.
                self.confirmed = self.last.is_some();
                if self.confirmed {
                    self.jumped_by_ms = None;
                }
            }
        }
        before != self.is_trusted()
    }

    fn read(&mut self, wall: Timestamp, boottime_ms: i64, synced: bool) {
        if let Some((last_wall, last_boottime_ms)) = self.last {
            let elapsed_ms = boottime_ms.saturating_sub(last_boottime_ms);
            let by_ms = wall.since_ms(last_wall).saturating_sub(elapsed_ms);
            // The first synchronisation moves a wrong clock to the right time. A clock that was synchronised already has no reason to jump.
            let first_sync = synced && !self.synced;
            if first_sync {
                self.jumped_by_ms = None;
            } else if by_ms.saturating_abs() > CLOCK_JUMP_MS_MAX {
                self.jumped_by_ms = Some(by_ms);
                self.confirmed = false;
            }
        }
        // Once synchronised it stays so: losing the network does not make a clock wrong, a jump would show.
        self.synced |= synced;
        self.last = Some((wall, boottime_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const YEAR_2026: i64 = 1_796_000_000_000;

    fn read(trust: &mut Trust, wall: i64, boottime_ms: i64, synced: bool) {
        trust.step(Event::Reading { wall: Timestamp(wall), boottime_ms, synced });
    }

    /// Goal: a box that boots at 1970 trusts nothing until it is synchronised; that first step is no jump.
    #[test]
    fn first_boot_at_1970() {
        let mut trust = Trust::new(Timestamp(YEAR_2026));
        assert_eq!(trust.doubt(), Some(Doubt::Unconfirmed));
        read(&mut trust, 1000, 1000, false);
        assert_eq!(trust.doubt(), Some(Doubt::BehindLedger { by_ms: YEAR_2026 - 1000 }));
        // The owner cannot confirm a clock that is behind what has been recorded.
        assert!(!trust.step(Event::OwnerConfirmed));
        assert!(!trust.is_trusted());
        assert!(trust.step(Event::Reading { wall: Timestamp(YEAR_2026 + HOUR), boottime_ms: 2000, synced: true }));
        assert!(trust.is_trusted());
    }

    /// Goal: without network the owner's word is enough when the clock is not behind.
    #[test]
    fn owner_confirms() {
        let mut trust = Trust::new(Timestamp(YEAR_2026));
        assert!(!trust.step(Event::OwnerConfirmed), "there is no reading to confirm yet");
        read(&mut trust, YEAR_2026 - CLOCK_BEHIND_MS_MAX, 0, false);
        assert_eq!(trust.doubt(), Some(Doubt::Unconfirmed));
        assert!(trust.step(Event::OwnerConfirmed));
        // A record from the future (made elsewhere) puts the clock behind again.
        assert!(trust.step(Event::Recorded(Timestamp(YEAR_2026 + HOUR))));
        assert!(matches!(trust.doubt(), Some(Doubt::BehindLedger { .. })));
    }

    /// Goal: a jump by more than an hour, either way and also of a synchronised clock, withdraws trust until the owner confirms.
    #[test]
    fn jumps() {
        for synced in [false, true] {
            for by_ms in [HOUR + 1, -HOUR - 1] {
                let mut trust = Trust::new(Timestamp(0));
                read(&mut trust, YEAR_2026, 0, synced);
                trust.step(Event::OwnerConfirmed);
                assert!(trust.is_trusted());
                read(&mut trust, YEAR_2026 + 60_000 + HOUR, 60_000, synced);
                assert!(trust.is_trusted(), "an hour exactly is no jump");
                read(&mut trust, YEAR_2026 + 120_000 + HOUR + by_ms, 120_000, synced);
                assert_eq!(trust.doubt(), Some(Doubt::Jumped { by_ms }));
                // Time going on quietly does not restore trust.
                read(&mut trust, YEAR_2026 + 180_000 + HOUR + by_ms, 180_000, synced);
                assert!(!trust.is_trusted());
                assert!(trust.step(Event::OwnerConfirmed));
            }
        }
    }

    /// Goal: a restart of the program within one boot keeps trust and finds a jump meanwhile; a reboot starts without trust.
    #[test]
    fn restart_of_the_program() {
        let (boot, other) = (BootId(1), BootId(2));
        let mut trust = Trust::new(Timestamp(0));
        assert_eq!(trust.snapshot(boot), None);
        read(&mut trust, YEAR_2026, 1000, true);
        let json = serde_json::to_string(&trust.snapshot(boot)).unwrap();
        let persisted: Option<Snapshot> = serde_json::from_str(&json).unwrap();
        let mut quiet = Trust::resume(Timestamp(0), persisted.as_ref(), boot);
        read(&mut quiet, YEAR_2026 + 5000, 6000, true);
        assert!(quiet.is_trusted());
        let mut jumped = Trust::resume(Timestamp(0), persisted.as_ref(), boot);
        read(&mut jumped, YEAR_2026 + 9 * HOUR, 6000, true);
        assert!(matches!(jumped.doubt(), Some(Doubt::Jumped { .. })));
        let again = Trust::resume(Timestamp(0), jumped.snapshot(boot).as_ref(), boot);
        assert!(!again.is_trusted(), "restarting is no confirmation");
        assert_eq!(Trust::resume(Timestamp(0), persisted.as_ref(), other), Trust::new(Timestamp(0)));
    }

    #[test]
    fn boot_id_text() {
        let id: BootId = "0b1c2d3e-0000-4000-8000-00000000000f\n".parse().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "xyz", "+b1c2d3e000040008000000000000000"] {
            assert!(bad.parse::<BootId>().is_err(), "{bad}");
        }
    }
}
