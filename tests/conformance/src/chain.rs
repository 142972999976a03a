//! The published rule of the record chain (docs/record-chain.md), applied to records as the API shows them.

use std::fmt;

use serde_json::Value;

/// Sets these hashes apart from all others.
const CONTEXT: &str = "agent-nas 2026-11 ledger record v1";

/// Where a chain does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Number of the record.
    pub seq: u64,
    /// What does not fit.
    pub because: &'static str,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}: {}", self.seq, self.because)
    }
}

/// A value as the rule hashes it.
enum Field {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// Checks consecutive records, oldest first: numbers without a gap, every hash, and each `prev_hash`.
///
/// # Errors
/// The first record that does not fit.
pub fn verify(records: &[Value]) -> Result<(), Broken> {
    let mut before: Option<&Value> = None;
    for record in records {
        let seq = record["seq"].as_u64().unwrap_or_default();
        let broken = |because| Broken { seq, because };
        if let Some(before) = before {
            if before["seq"].as_u64().map(|seq| seq + 1) != Some(seq) {
                return Err(broken("the one before it is missing"));
            }
            if record["prev_hash"] != before["hash"] {
                return Err(broken("its prev_hash is not the hash of the one before"));
            }
        }
        let hash = hash(record).ok_or(broken("a field is missing or malformed"))?;
        if record["hash"] != hash.as_str() {
            return Err(broken("its hash does not fit its fields"));
        }
        before = Some(record);
    }
    Ok(())
}

/// The hash of a record by the rule; none when a field is missing or malformed.
#[must_use]
pub fn hash(record: &Value) -> Option<String> {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    for field in fields(record)? {
        let (tag, bytes) = match field {
            Field::Null => (0, Vec::new()),
            Field::Integer(number) => (1, number.to_le_bytes().to_vec()),
            Field::Text(text) => (2, text.into_bytes()),
            Field::Bytes(bytes) => (3, bytes),
        };
        hasher.update(&[tag]).update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// The hashed fields in the rule's order.
fn fields(record: &Value) -> Option<Vec<Field>> {
    let text = |name: &str| match &record[name] {
        Value::Null => Some(Field::Null),
        Value::String(text) => Some(Field::Text(text.clone())),
        _ => None,
    };
    let integer = |name: &str| match &record[name] {
        Value::Null => Some(Field::Null),
        value => Some(Field::Integer(value.as_i64()?)),
    };
    let bytes = |name: &str| match &record[name] {
        Value::Null => Some(Field::Null),
        value => Some(Field::Bytes(blake3::Hash::from_hex(value.as_str()?).ok()?.as_bytes().to_vec())),
    };
    let kind = record["kind"].as_str()?;
    let (kind, phase) = match kind.rsplit_once('.') {
        Some((kind, phase @ ("intent" | "outcome"))) => (kind, phase),
        _ => (kind, "event"),
    };
    let time: jiff::Timestamp = record["time"].as_str()?.parse().ok()?;
    let detail = match &record["detail"] {
        Value::Null => Field::Null,
        // Keys sorted, no white space: as serde_json writes a map.
        detail => Field::Text(detail.to_string()),
    };
    Some(vec![
        integer("format")?,
        integer("seq")?,
        integer("day")?,
        Field::Integer(time.as_millisecond()),
        Field::Text(kind.to_owned()),
        Field::Text(phase.to_owned()),
        text("run")?,
        text("principal")?,
        text("on_behalf_of")?,
        text("lease")?,
        text("purpose")?,
        text("path")?,
        text("commit")?,
        bytes("read_manifest")?,
        text("effect")?,
        text("rule")?,
        text("taint_external")?,
        text("taint_sensitivity")?,
        detail,
        integer("intent")?,
        bytes("prev_hash")?,
    ])
}
