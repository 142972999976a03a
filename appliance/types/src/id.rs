//! Ids with a printed tag. A printed id says what it names, so a lease id can never be passed where
//! a gate id is expected, neither in code nor at a terminal.

use std::fmt;
use std::str::FromStr;

/// A text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a {what} id: expected '{tag}' followed by {len} letters or digits")]
pub struct IdError {
    /// What was given, shortened to 64 characters.
    pub text: String,
    /// The kind of id that was expected.
    pub what: &'static str,
    /// The tag that was expected.
    pub tag: &'static str,
    /// Number of characters after the tag.
    pub len: usize,
}

/// Characters after the tag. 12 characters of 31 are 59 bits: ids are names, never secrets.
pub const ID_CHARS: usize = 12;
/// No `0 o 1 l i`: ids are read aloud and typed from a phone.
const ALPHABET: &[u8; 31] = b"23456789abcdefghjkmnpqrstuvwxyz";

/// Fills `out` with random id characters from the kernel.
fn random_chars(out: &mut [u8; ID_CHARS]) {
    let mut at = 0;
    while at < ID_CHARS {
        let mut raw = [0u8; 32];
        getrandom::fill(&mut raw).expect("because the kernel's random source is always there once booted");
        // Reject 248..=255 so that each of the 31 characters is equally likely.
        for byte in raw.into_iter().filter(|byte| *byte < 248) {
            if at < ID_CHARS {
                out[at] = ALPHABET[usize::from(byte) % ALPHABET.len()];
                at += 1;
            }
        }
    }
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $tag:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; ID_CHARS]);

        impl $name {
            /// The printed tag.
            pub const TAG: &'static str = $tag;

            /// A fresh random id.
            #[must_use]
            pub fn random() -> Self {
                let mut chars = [0; ID_CHARS];
                random_chars(&mut chars);
                Self(chars)
            }

            /// The characters after the tag.
            #[must_use]
            pub fn chars(&self) -> &str {
                std::str::from_utf8(&self.0).expect("because an id holds ASCII only")
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $tag, self.chars())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let fail = || IdError {
                    text: text.chars().take(64).collect(),
                    what: $what,
                    tag: $tag,
                    len: ID_CHARS,
                };
                let chars: [u8; ID_CHARS] =
                    text.strip_prefix($tag).ok_or_else(fail)?.as_bytes().try_into().map_err(|_| fail())?;
                if chars.iter().all(|c| ALPHABET.contains(c)) { Ok(Self(chars)) } else { Err(fail()) }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type!(
    /// One execution of an agent or a person (SPEC noun Run).
    RunId, "run_", "run"
);
id_type!(
    /// The authority of a run (SPEC noun Lease).
    LeaseId, "lse_", "lease"
);
id_type!(
    /// A question to a person (SPEC GATE).
    GateId, "gt_", "gate"
);
id_type!(
    /// One mount of one view under one lease (SPEC MOUNT-1).
    MountId, "mnt_", "mount"
);
id_type!(
    /// One request at an interface, for logs and error reports.
    RequestId, "req_", "request"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a printed id parses back, and a neighbour's tag, a wrong length or a foreign character does not.
    #[test]
    fn print_and_parse() {
        let id = GateId::random();
        assert_eq!(id.to_string().parse::<GateId>(), Ok(id));
        assert!(id.to_string().parse::<LeaseId>().is_err());
        assert!("gt_".parse::<GateId>().is_err());
        assert!("gt_0000000000000".parse::<GateId>().is_err());
        assert!("gt_../../../etc".parse::<GateId>().is_err());
        assert_ne!(GateId::random(), GateId::random());
    }
}
