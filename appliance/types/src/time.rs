//! Time stamps. Nothing here reads a clock: callers pass `now` in.

use std::fmt;
use std::str::FromStr;

/// Wall-clock time: milliseconds since 1970-01-01T00:00:00Z. RFC 3339 in UTC when printed or serialised,
/// the number in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This time plus `ms` milliseconds, saturating.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; negative when `earlier` is later.
    #[must_use]
    pub fn since_ms(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "{} ms since 1970", self.0),
        }
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(time.as_millisecond()))
    }
}

/// A file's time stamp: seconds and nanoseconds since 1970 (negative seconds are before).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    /// Whole seconds.
    pub secs: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

/// A text that is no [`FileTime`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a file time: expected seconds, '.' and nine digits of nanoseconds")]
pub struct FileTimeError;

/// Seconds, `.`, nine digits: `1764541380.250000000`. One text for each time.
impl fmt::Display for FileTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.secs, self.nanos)
    }
}

impl FromStr for FileTime {
    type Err = FileTimeError;
    fn from_str(text: &str) -> Result<Self, FileTimeError> {
        let (secs, nanos) = text.split_once('.').ok_or(FileTimeError)?;
        if nanos.len() != 9 || !nanos.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(FileTimeError);
        }
        let secs = secs.parse().map_err(|_| FileTimeError)?;
        Ok(Self { secs, nanos: nanos.parse().map_err(|_| FileTimeError)? })
    }
}

impl serde::Serialize for FileTime {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for FileTime {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a file's time keeps every nanosecond, also before 1970, and nothing else is taken for one.
    #[test]
    fn file_times_round_trip() {
        for (secs, nanos) in [(0, 0), (1_764_541_380, 250_000_001), (-1, 999_999_999), (i64::MIN, 0), (i64::MAX, 5)] {
            let time = FileTime { secs, nanos };
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        for bad in ["", "1", "1.5", "1.0000000001", "1.-00000001", "x.000000000", "1.00000000x"] {
            assert_eq!(bad.parse::<FileTime>(), Err(FileTimeError), "{bad}");
        }
    }

    #[test]
    fn serialises_as_rfc_3339() {
        let time = Timestamp(1_764_541_380_250);
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"2025-11-30T22:23:00.25Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), time);
    }
}
