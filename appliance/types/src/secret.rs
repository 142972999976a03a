//! A secret text that cannot be printed or logged by accident.

use std::fmt;

/// Holds a token or passphrase. `Debug` and `Display` never show it; reading it is a visible call.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// A fresh 256-bit token with a printed tag, e.g. `nas_lease_` followed by 64 hexadecimal digits.
    #[must_use]
    pub fn random(tag: &str) -> Self {
        let mut raw = [0u8; 32];
        getrandom::fill(&mut raw).expect("because the kernel's random source is always there once booted");
        let mut text = String::with_capacity(tag.len() + 64);
        text.push_str(tag);
        for byte in raw {
            use fmt::Write as _;
            write!(text, "{byte:02x}").expect("because writing to a String cannot fail");
        }
        Self(text)
    }

    /// The secret itself, for hashing, comparing in constant time, or handing out once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
