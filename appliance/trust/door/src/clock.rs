//! The only place of trust that reads clocks. Everything else is handed a [`Now`].

use nas_trust_core::clock::{BootId, Now};
use nas_types::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::DoorError;

/// The box's clocks, with the identity of this boot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    boot_id: BootId,
}

impl Clock {
    /// Reads the identity of this boot.
    pub(crate) fn open() -> Result<Self, DoorError> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(|source| DoorError::Store { doing: "reading the boot id", source: source.into() })?;
        let boot_id = text
            .parse()
            .map_err(|source| DoorError::Store { doing: "reading the boot id", source: Box::new(source) })?;
        Ok(Self { boot_id })
    }

    /// Both clocks, read together. `trusted` is what the clock's state machine says of the wall clock.
    pub(crate) fn now(&self, trusted: bool) -> Now {
        Now { wall: wall(), boottime_ms: boottime_ms(), boot_id: self.boot_id, trusted }
    }
}

/// The wall clock.
pub(crate) fn wall() -> Timestamp {
    let now = clock_gettime(ClockId::Realtime);
    Timestamp(to_ms(now.tv_sec, now.tv_nsec))
}

/// CLOCK_BOOTTIME in milliseconds (a vDSO call: cheap enough for every file operation).
pub(crate) fn boottime_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    to_ms(now.tv_sec, now.tv_nsec)
}

fn to_ms(secs: i64, nanos: i64) -> i64 {
    secs.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

/// Has a time service said that the wall clock is synchronised?
///
/// systemd-timesyncd leaves the first marker; the appliance makes chrony leave the other.
pub(crate) fn synchronised() -> bool {
    ["/run/systemd/timesync/synchronized", "/run/chrony/synchronized"]
        .iter()
        .any(|marker| std::path::Path::new(marker).exists())
}
