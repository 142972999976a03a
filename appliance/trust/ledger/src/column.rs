//! How a Rust value becomes a column and back. Loading never trusts what is stored.

use nas_trust_core::ActionSet;
use nas_trust_core::clock::BootId;
use nas_trust_core::gate::{GateDigest, GateState};
use nas_types::id::{GateId, LeaseId, MountId, RunId};
use nas_types::lease::{BranchName, RoleName, TreeName, View};
use nas_types::object::Oid;
use nas_types::path::TreePath;
use nas_types::time::Timestamp;
use rusqlite::types::{Value, ValueRef};

use crate::LedgerError;

/// A value that can be kept in a column.
pub trait Column: Sized {
    /// As SQLite keeps it.
    fn store(&self) -> Value;
    /// Back; `None` when it is no legal value.
    fn load(value: ValueRef<'_>) -> Option<Self>;
}

fn text(value: ValueRef<'_>) -> Option<&str> {
    match value {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Types whose printed form parses back.
macro_rules! as_text {
    ($($ty:ty),*) => {$(
        impl Column for $ty {
            fn store(&self) -> Value {
                Value::Text(self.to_string())
            }
            fn load(value: ValueRef<'_>) -> Option<Self> {
                text(value)?.parse().ok()
            }
        }
    )*};
}
as_text!(String, RunId, LeaseId, GateId, MountId, BranchName, RoleName, TreeName, Oid, ActionSet, BootId, GateDigest);

/// Integers.
macro_rules! as_integer {
    ($($ty:ty),*) => {$(
        impl Column for $ty {
            fn store(&self) -> Value {
                // SQLite has 63 bits; what is larger is a limit nobody reaches.
                Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }
            fn load(value: ValueRef<'_>) -> Option<Self> {
                match value {
                    ValueRef::Integer(n) => n.try_into().ok(),
                    _ => None,
                }
            }
        }
    )*};
}
as_integer!(i64, u64, u32, u16);

impl Column for bool {
    fn store(&self) -> Value {
        Value::Integer((*self).into())
    }
    fn load(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Integer(0) => Some(false),
            ValueRef::Integer(1) => Some(true),
            _ => None,
        }
    }
}

impl Column for Timestamp {
    fn store(&self) -> Value {
        Value::Integer(self.0)
    }
    fn load(value: ValueRef<'_>) -> Option<Self> {
        i64::load(value).map(Self)
    }
}

impl Column for TreePath {
    fn store(&self) -> Value {
        Value::Text(self.to_string())
    }
    fn load(value: ValueRef<'_>) -> Option<Self> {
        Self::parse(text(value)?).ok()
    }
}

impl Column for [u8; 32] {
    fn store(&self) -> Value {
        Value::Blob(self.to_vec())
    }
    fn load(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Blob(bytes) => bytes.try_into().ok(),
            _ => None,
        }
    }
}

impl Column for Vec<u8> {
    fn store(&self) -> Value {
        Value::Blob(self.clone())
    }
    fn load(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Blob(bytes) => Some(bytes.to_vec()),
            _ => None,
        }
    }
}

/// Lists of texts and of ranges, as JSON.
macro_rules! as_json {
    ($($ty:ty),*) => {$(
        impl Column for $ty {
            fn store(&self) -> Value {
                Value::Text(serde_json::to_string(self).expect("because strings and numbers always serialise"))
            }
            fn load(value: ValueRef<'_>) -> Option<Self> {
                serde_json::from_str(text(value)?).ok()
            }
        }
    )*};
}
as_json!(Vec<String>, serde_json::Value, nas_trust_core::read_manifest::Ranges);

impl<C: Column> Column for Option<C> {
    fn store(&self) -> Value {
        self.as_ref().map_or(Value::Null, C::store)
    }
    fn load(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Null => Some(None),
            value => C::load(value).map(Some),
        }
    }
}

impl Column for GateState {
    fn store(&self) -> Value {
        Value::Text(self.as_str().to_owned())
    }
    fn load(value: ValueRef<'_>) -> Option<Self> {
        let word = text(value)?;
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

impl Column for View {
    fn store(&self) -> Value {
        Value::Text(match self {
            Self::Branch => "branch".to_owned(),
            Self::Main => "main".to_owned(),
        })
    }
    fn load(value: ValueRef<'_>) -> Option<Self> {
        match text(value)? {
            "branch" => Some(Self::Branch),
            "main" => Some(Self::Main),
            _ => None,
        }
    }
}

/// An enum of words, kept as text.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
            /// The word kept in the ledger and shown by the interfaces.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl $crate::column::Column for $name {
            fn store(&self) -> rusqlite::types::Value {
                rusqlite::types::Value::Text(self.as_str().to_owned())
            }
            fn load(value: rusqlite::types::ValueRef<'_>) -> Option<Self> {
                match value {
                    $(rusqlite::types::ValueRef::Text(word) if word == $word.as_bytes() => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use words;

/// A row of a table as a plain struct.
pub trait Row: Sized {
    /// Type of the primary key.
    type Key: Column;
    /// Table.
    const TABLE: &'static str;
    /// Column of the primary key.
    const KEY: &'static str;
    /// All columns, in the order of [`values`](Self::values).
    const COLUMNS: &'static [&'static str];
    /// The primary key.
    fn key(&self) -> &Self::Key;
    /// All values.
    fn values(&self) -> Vec<Value>;
    /// From a result with [`COLUMNS`](Self::COLUMNS) in order.
    fn from_row(row: &rusqlite::Row<'_>) -> Result<Self, LedgerError>;
}

/// Loads column `at` of a result.
pub(crate) fn load<C: Column>(
    row: &rusqlite::Row<'_>,
    at: usize,
    table: &'static str,
    column: &'static str,
) -> Result<C, LedgerError> {
    let corrupt = LedgerError::Corrupt { table, column };
    row.get_ref(at).ok().and_then(C::load).ok_or(corrupt)
}

/// Declares a row struct and its [`Row`].
macro_rules! row {
    ($(#[$doc:meta])* $name:ident in $table:literal, key $key:ident: $key_ty:ty { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $ty,)*
        }

        impl $crate::column::Row for $name {
            type Key = $key_ty;
            const TABLE: &'static str = $table;
            const KEY: &'static str = stringify!($key);
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];
            fn key(&self) -> &Self::Key {
                &self.$key
            }
            fn values(&self) -> Vec<rusqlite::types::Value> {
                vec![$($crate::column::Column::store(&self.$field)),*]
            }
            fn from_row(row: &rusqlite::Row<'_>) -> Result<Self, $crate::LedgerError> {
                let mut at = 0..;
                let mut next = || at.next().unwrap_or(usize::MAX);
                Ok(Self { $($field: $crate::column::load(row, next(), $table, stringify!($field))?,)* })
            }
        }
    };
}
pub(crate) use row;
