//! One record of the flight recorder (SPEC REC): its fields, its canonical bytes, its hash.

use nas_types::id::{LeaseId, RunId};
use nas_types::object::Oid;
use nas_types::path::TreePath;
use nas_types::time::Timestamp;
use rusqlite::types::{Value, ValueRef};

use crate::LedgerError;
use crate::column::{Column, load, words};

/// Which columns a record's hash covers, and how. A new column means a new number; old records keep theirs.
pub const RECORD_FORMAT: i64 = 1;
/// Milliseconds of a day: records are chained per day (SPEC REC-3).
pub const DAY_MS: i64 = 86_400_000;

const HASH_CONTEXT: &str = "agent-nas 2026-11 ledger record v1";

words! {
    /// What a record says about what it names.
    Phase {
        /// It happened.
        Event = "event",
        /// It is about to happen (SPEC REC-1). Exactly one outcome follows.
        Intent = "intent",
        /// What came of an intent.
        Outcome = "outcome",
    }
}

/// Number and hash of the newest record; 0 and zeros for an empty ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// Number of records.
    pub seq: u64,
    /// Hash of the newest.
    pub hash: [u8; 32],
}

impl Head {
    /// The hash in hexadecimal digits.
    #[must_use]
    pub fn hash_hex(&self) -> String {
        blake3::Hash::from_bytes(self.hash).to_hex().to_string()
    }

    /// From a number and hexadecimal digits.
    #[must_use]
    pub fn from_hex(seq: u64, hex: &str) -> Option<Self> {
        Some(Self { seq, hash: *blake3::Hash::from_hex(hex).ok()?.as_bytes() })
    }
}

/// What an append made: the number and hash of the new record, which is the head now.
pub type Appended = Head;

/// A record to append. The ledger adds number, day and hashes.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRecord {
    /// When.
    pub time: Timestamp,
    /// What, e.g. `lease.issue`, `merge.intent`.
    pub kind: String,
    /// Event, intent or outcome.
    pub phase: Phase,
    /// Run.
    pub run: Option<RunId>,
    /// Who.
    pub principal: Option<String>,
    /// For whom.
    pub on_behalf_of: Option<String>,
    /// Lease.
    pub lease: Option<LeaseId>,
    /// Purpose as stated.
    pub purpose: Option<String>,
    /// Path it is about.
    pub path: Option<TreePath>,
    /// Commit it is about.
    pub commit: Option<Oid>,
    /// Digest of the run's read manifest.
    pub read_manifest: Option<[u8; 32]>,
    /// `allow`, `gate` or `deny`.
    pub effect: Option<String>,
    /// Rule that decided.
    pub rule: Option<String>,
    /// Was anything external read? `unknown` until labels exist, never `false`.
    pub taint_external: String,
    /// Highest sensitivity read. `unknown` until labels exist.
    pub taint_sensitivity: String,
    /// Facts beside these.
    pub detail: serde_json::Value,
    /// The intent this is the outcome of.
    pub intent: Option<u64>,
}

impl NewRecord {
    /// Something that happened.
    #[must_use]
    pub fn event(kind: &str, time: Timestamp) -> Self {
        Self {
            time,
            kind: kind.to_owned(),
            phase: Phase::Event,
            run: None,
            principal: None,
            on_behalf_of: None,
            lease: None,
            purpose: None,
            path: None,
            commit: None,
            read_manifest: None,
            effect: None,
            rule: None,
            taint_external: "unknown".to_owned(),
            taint_sensitivity: "unknown".to_owned(),
            detail: serde_json::Value::Null,
            intent: None,
        }
    }

    /// Something about to happen (SPEC REC-1).
    #[must_use]
    pub fn intent(kind: &str, time: Timestamp) -> Self {
        Self { phase: Phase::Intent, ..Self::event(kind, time) }
    }

    /// What came of the intent with number `intent`.
    #[must_use]
    pub fn outcome(kind: &str, time: Timestamp, intent: u64) -> Self {
        Self { phase: Phase::Outcome, intent: Some(intent), ..Self::event(kind, time) }
    }
}

/// A stored record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its number, from 1 without a gap.
    pub seq: u64,
    /// Its content.
    pub fields: NewRecord,
    /// Day of the chain it belongs to, counted from 1970-01-01; never falls.
    pub day: i64,
    /// Hash of the record before.
    pub prev_hash: [u8; 32],
    /// Its hash.
    pub hash: [u8; 32],
}

/// Columns that the hash covers, in order, then the hash itself.
pub(crate) const COLUMNS: [&str; 22] = [
    "format",
    "seq",
    "day",
    "time",
    "kind",
    "phase",
    "run",
    "principal",
    "on_behalf_of",
    "lease",
    "purpose",
    "path",
    "commit_oid",
    "read_manifest",
    "effect",
    "rule",
    "taint_external",
    "taint_sensitivity",
    "detail",
    "intent",
    "prev_hash",
    "hash",
];
/// How many of [`COLUMNS`] the hash covers.
pub(crate) const HASHED: usize = COLUMNS.len() - 1;

/// The values of a new record up to its hash, and the hash.
pub(crate) fn seal(seq: u64, day: i64, prev_hash: &[u8; 32], new: &NewRecord) -> (Vec<Value>, [u8; 32]) {
    let detail = if new.detail.is_null() { Value::Null } else { new.detail.store() };
    let mut values = vec![
        RECORD_FORMAT.store(),
        seq.store(),
        day.store(),
        new.time.store(),
        new.kind.store(),
        new.phase.store(),
        new.run.store(),
        new.principal.store(),
        new.on_behalf_of.store(),
        new.lease.store(),
        new.purpose.store(),
        new.path.store(),
        new.commit.store(),
        new.read_manifest.store(),
        new.effect.store(),
        new.rule.store(),
        new.taint_external.store(),
        new.taint_sensitivity.store(),
        detail,
        new.intent.store(),
        prev_hash.store(),
    ];
    let hash = hash(values.iter().map(ValueRef::from));
    values.push(hash.store());
    (values, hash)
}

/// Hash over stored values: each with a tag for its type and, unless its size is fixed, its length, so that no two rows encode alike.
pub(crate) fn hash<'v>(values: impl Iterator<Item = ValueRef<'v>>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(HASH_CONTEXT);
    let mut sized = |tag: u8, bytes: &[u8]| {
        hasher.update(&[tag]).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    for value in values {
        match value {
            ValueRef::Null => sized(0, &[]),
            ValueRef::Integer(n) => sized(1, &n.to_le_bytes()),
            ValueRef::Text(bytes) => sized(2, bytes),
            ValueRef::Blob(bytes) => sized(3, bytes),
            ValueRef::Real(n) => sized(4, &n.to_le_bytes()),
        }
    }
    *hasher.finalize().as_bytes()
}

impl Record {
    /// From a result with [`COLUMNS`] in order.
    pub(crate) fn from_row(row: &rusqlite::Row<'_>) -> Result<Self, LedgerError> {
        fn at<C: Column>(row: &rusqlite::Row<'_>, at: usize) -> Result<C, LedgerError> {
            load(row, at, "records", COLUMNS[at])
        }
        let detail: Option<serde_json::Value> = at(row, 18)?;
        Ok(Self {
            seq: at(row, 1)?,
            day: at(row, 2)?,
            fields: NewRecord {
                time: at(row, 3)?,
                kind: at(row, 4)?,
                phase: at(row, 5)?,
                run: at(row, 6)?,
                principal: at(row, 7)?,
                on_behalf_of: at(row, 8)?,
                lease: at(row, 9)?,
                purpose: at(row, 10)?,
                path: at(row, 11)?,
                commit: at(row, 12)?,
                read_manifest: at(row, 13)?,
                effect: at(row, 14)?,
                rule: at(row, 15)?,
                taint_external: at(row, 16)?,
                taint_sensitivity: at(row, 17)?,
                detail: detail.unwrap_or_default(),
                intent: at(row, 19)?,
            },
            prev_hash: at(row, 20)?,
            hash: at(row, 21)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the encoding never changes by accident; every chain in the field depends on it. A new format gets a new number and a new line here.
    #[test]
    fn encoding_is_fixed() {
        let full = NewRecord {
            run: "run_222222222222".parse().ok(),
            principal: Some("agent:cleo".into()),
            on_behalf_of: Some("human:owner".into()),
            lease: "lse_333333333333".parse().ok(),
            purpose: Some("draft".into()),
            path: TreePath::parse("/shared/launch").ok(),
            commit: Some(Oid([7; 20])),
            read_manifest: Some([8; 32]),
            effect: Some("allow".into()),
            rule: Some("owner-import".into()),
            detail: serde_json::json!({ "n": 1 }),
            ..NewRecord::outcome("merge.done", Timestamp(1_796_000_000_000), 4)
        };
        let hex = |new| Head { seq: 0, hash: seal(5, 20_787, &[9; 32], new).1 }.hash_hex();
        assert_eq!(hex(&full), "e817345aad1487b2661474e81b25ba394a9119b493fc2fadc8e665d00a13114f");
        assert_eq!(
            hex(&NewRecord::event("e", Timestamp(0))),
            "15b796c7412170621234967d984bcd4bea5deec4ebd08699e5f6081fbee82223"
        );
    }

    /// Goal: no two rows encode alike by moving bytes between neighbours, or between types.
    #[test]
    fn encoding_is_injective() {
        let rows: [&[Value]; 7] = [
            &[Value::Text("ab".into()), Value::Text("c".into())],
            &[Value::Text("a".into()), Value::Text("bc".into())],
            &[Value::Text("abc".into()), Value::Text(String::new())],
            &[Value::Text("abc".into()), Value::Null],
            &[Value::Text("abc".into())],
            &[Value::Blob(b"abc".to_vec())],
            &[Value::Integer(0), Value::Null],
        ];
        let hashes: std::collections::BTreeSet<_> =
            rows.iter().map(|row| hash(row.iter().map(ValueRef::from))).collect();
        assert_eq!(hashes.len(), rows.len());
    }
}
