//! The only place of trust that reads clocks. Everything else is handed a [`Now`](nas_trust_core::clock::Now).

use std::fmt::Debug;

use nas_trust_core::clock::BootId;
use nas_types::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::DoorError;

/// Where the ledger keeps what is known about the wall clock.
pub(crate) const TRUST_KEY: &str = "clock-trust";

/// The clocks of the box. A test brings its own: reboots and clocks that are wrong cannot be had otherwise.
pub trait Clocks: Debug + Send + Sync {
    /// The wall clock.
    fn wall(&self) -> Timestamp;
    /// CLOCK_BOOTTIME in milliseconds; called for every file operation.
    fn boottime_ms(&self) -> i64;
    /// Which boot it counts from.
    fn boot_id(&self) -> BootId;
    /// Has a time service said that the wall clock is synchronised?
    fn synchronised(&self) -> bool;
}

/// The kernel's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClocks {
    boot_id: BootId,
}

impl SystemClocks {
    /// Reads the identity of this boot.
    pub fn open() -> Result<Self, DoorError> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(|source| DoorError::Store { doing: "reading the boot id", source: source.into() })?;
        let boot_id = text
            .parse()
            .map_err(|source| DoorError::Store { doing: "reading the boot id", source: Box::new(source) })?;
        Ok(Self { boot_id })
    }
}

impl Clocks for SystemClocks {
    fn wall(&self) -> Timestamp {
        let now = clock_gettime(ClockId::Realtime);
        Timestamp(to_ms(now.tv_sec, now.tv_nsec))
    }

    /// A vDSO call: cheap enough for every file operation.
    fn boottime_ms(&self) -> i64 {
        let now = clock_gettime(ClockId::Boottime);
        to_ms(now.tv_sec, now.tv_nsec)
    }

    fn boot_id(&self) -> BootId {
        self.boot_id
    }

    /// systemd-timesyncd leaves the first marker; the appliance makes chrony leave the other.
    fn synchronised(&self) -> bool {
        ["/run/systemd/timesync/synchronized", "/run/chrony/synchronized"]
            .iter()
            .any(|marker| std::path::Path::new(marker).exists())
    }
}

fn to_ms(secs: i64, nanos: i64) -> i64 {
    secs.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}
