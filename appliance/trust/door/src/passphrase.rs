//! The owner's passphrase: the secret that is on no disk and that every decision asks for (DESIGN §4).

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use nas_types::secret::Secret;

use crate::DoorError;

/// Shortest passphrase, in bytes.
pub const PASSPHRASE_BYTES_MIN: usize = 12;
/// Longest passphrase, in bytes.
pub const PASSPHRASE_BYTES_MAX: usize = 1024;
/// Wrong tries before the next one has to wait.
const TRIES_FREE: u32 = 5;
/// Longest wait between tries. The owner is slowed down, never locked out for good.
const WAIT_MS_MAX: i64 = 60_000;

/// Checks the length and hashes a new passphrase (argon2id, PHC string).
pub(crate) fn hash(passphrase: &Secret) -> Result<String, DoorError> {
    let length = passphrase.reveal().len();
    if !(PASSPHRASE_BYTES_MIN..=PASSPHRASE_BYTES_MAX).contains(&length) {
        return Err(DoorError::Invalid {
            field: "passphrase",
            reason: format!("it has {length} bytes; choose {PASSPHRASE_BYTES_MIN} to {PASSPHRASE_BYTES_MAX}"),
        });
    }
    let hash = on_a_thread_of_its_own(|| Argon2::default().hash_password(passphrase.reveal().as_bytes()));
    Ok(hash?.map_err(broken)?.to_string())
}

/// Hashing takes 19 MiB. On any of the many threads that serve requests the allocator would keep them for that thread;
/// on a thread that ends they go to the next one that hashes.
fn on_a_thread_of_its_own<T: Send>(hash: impl FnOnce() -> T + Send) -> Result<T, DoorError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("passphrase".to_owned()).spawn_scoped(scope, hash);
        let hashed = thread.map_err(|_| DoorError::Busy { retry_after_seconds: 1 })?.join();
        Ok(hashed.expect("because hashing does not panic"))
    })
}

fn broken(error: argon2::password_hash::Error) -> DoorError {
    DoorError::Store { doing: "hashing a passphrase", source: Box::new(error) }
}

/// Slows down guessing.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    wrong: u32,
    not_before_boot_ms: i64,
}

impl Guard {
    /// Compares `given` with the stored PHC string. One comparison at a time: the caller holds the lock.
    pub(crate) fn check(&mut self, stored: &str, given: &Secret, boot_ms: i64) -> Result<(), DoorError> {
        let wait_ms = self.not_before_boot_ms - boot_ms;
        if wait_ms > 0 {
            return Err(DoorError::Busy { retry_after_seconds: u64::try_from(wait_ms).unwrap_or(0).div_ceil(1000) });
        }
        if given.reveal().len() > PASSPHRASE_BYTES_MAX {
            return Err(DoorError::WrongPassphrase);
        }
        let parsed = PasswordHash::new(stored).map_err(|error| DoorError::Store {
            doing: "reading the stored passphrase hash",
            source: error.to_string().into(),
        })?;
        // argon2 compares in constant time.
        let right =
            on_a_thread_of_its_own(|| Argon2::default().verify_password(given.reveal().as_bytes(), &parsed).is_ok());
        if right? {
            *self = Self::default();
            return Ok(());
        }
        self.wrong = self.wrong.saturating_add(1);
        if self.wrong >= TRIES_FREE {
            let doubled = 1000i64.saturating_mul(1 << (self.wrong - TRIES_FREE).min(16));
            self.not_before_boot_ms = boot_ms + doubled.min(WAIT_MS_MAX);
        }
        Err(DoorError::WrongPassphrase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the right passphrase works, wrong ones are slowed down and the right one works again after the wait.
    #[test]
    fn guessing_is_slowed_down_and_never_final() {
        let right = Secret::new("correct horse battery".to_owned());
        let wrong = Secret::new("incorrect horse battery".to_owned());
        let stored = hash(&right).unwrap();
        let mut guard = Guard::default();
        for _ in 0..TRIES_FREE {
            assert!(matches!(guard.check(&stored, &wrong, 0), Err(DoorError::WrongPassphrase)));
        }
        assert!(matches!(guard.check(&stored, &right, 10), Err(DoorError::Busy { retry_after_seconds: 1 })));
        assert!(guard.check(&stored, &right, 1000).is_ok());
        assert!(hash(&Secret::new("short".to_owned())).is_err());
    }
}
