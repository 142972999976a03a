//! Time stamps. Nothing here reads a clock: callers pass `now` in.

use std::fmt;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialises_as_rfc_3339() {
        let time = Timestamp(1_764_541_380_250);
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"2025-11-30T22:23:00.25Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), time);
    }
}
