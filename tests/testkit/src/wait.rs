//! Waiting for a condition instead of for time to pass.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

/// Asks `condition` again and again until it holds; false if it does not within `patience`.
///
/// The pauses grow from 1 ms to 50 ms, so a quick condition costs a quick test.
pub fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// A TCP port of the loopback address on which nobody listened a moment ago.
///
/// Another process may take it before the caller does; prefer port 0 wherever the server can say which port it got.
///
/// # Panics
/// If no port can be bound at all.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("because loopback has a free port");
    listener.local_addr().expect("because a bound listener has an address").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: both answers are possible, and the condition is asked at least once even without patience.
    #[test]
    fn tells_holding_from_not_holding() {
        let mut asked = 0;
        assert!(wait_until(Duration::from_secs(30), || {
            asked += 1;
            asked == 5
        }));
        assert!(!wait_until(Duration::ZERO, || false));
        assert!(wait_until(Duration::ZERO, || true));
    }

    /// Goal: the port can be bound.
    #[test]
    fn free_port_is_free() {
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).is_ok());
    }
}
