//! Named points between durable effects where a test can kill the process (STYLE, crash sweep).
//!
//! `NAS_FAILPOINT=name` or `NAS_FAILPOINT=name:3` kills the process with SIGKILL at the first, or third,
//! passage through [`hit`]`("name")`. Without the variable a passage costs one atomic load.
//!
//! `NAS_FAILPOINT_SKIP=name` leaves out the one effect that is guarded by [`skip`]`("name")`: a test shows with it that it
//! would notice. Only debug builds honour it: what is shipped cannot be talked out of an fsync.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct Armed {
    name: String,
    left: AtomicU64,
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

fn armed() -> Option<&'static Armed> {
    ARMED
        .get_or_init(|| {
            let text = std::env::var("NAS_FAILPOINT").ok()?;
            let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
            Some(Armed { name: name.to_owned(), left: AtomicU64::new(count.parse().unwrap_or(1)) })
        })
        .as_ref()
}

/// Marks a point between two durable effects.
pub fn hit(name: &'static str) {
    let Some(armed) = armed() else { return };
    if armed.name == name && armed.left.fetch_sub(1, Ordering::SeqCst) == 1 {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .expect("because a process may always kill itself");
    }
}

/// Shall the effect behind this name be left out? Always false in release builds.
#[must_use]
pub fn skip(name: &'static str) -> bool {
    static SKIPPED: OnceLock<Option<String>> = OnceLock::new();
    cfg!(debug_assertions) && SKIPPED.get_or_init(|| std::env::var("NAS_FAILPOINT_SKIP").ok()).as_deref() == Some(name)
}
