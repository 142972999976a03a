//! JSON schemas of the types that are one text in JSON. The rest derive theirs; what a schema cannot say (a life time's
//! upper bound, a legal path) is still checked where the text is read.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::id::{GateId, LeaseId, MountId, RequestId, RunId};
use crate::lease::{BranchName, RoleName, TreeName};
use crate::object::Oid;
use crate::path::TreePath;
use crate::secret::Secret;
use crate::time::{FileTime, Timestamp};

macro_rules! text_schema {
    ($($name:ident $schema:tt)*) => {
        $(impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        })*
    };
}

text_schema! {
    RunId { "type": "string", "description": "A run.", "pattern": "^run_[2-9a-hjkmnp-z]{12}$" }
    LeaseId { "type": "string", "description": "A lease.", "pattern": "^lse_[2-9a-hjkmnp-z]{12}$" }
    GateId { "type": "string", "description": "A gate.", "pattern": "^gt_[2-9a-hjkmnp-z]{12}$" }
    MountId { "type": "string", "description": "A mount.", "pattern": "^mnt_[2-9a-hjkmnp-z]{12}$" }
    RequestId { "type": "string", "description": "A request.", "pattern": "^req_[2-9a-hjkmnp-z]{12}$" }
    RoleName {
        "type": "string", "description": "Name of a role.", "pattern": "^[a-z][a-z0-9-]{0,31}$"
    }
    TreeName {
        "type": "string", "description": "Name of a tree.", "pattern": "^[a-z][a-z0-9-]{0,31}$"
    }
    BranchName {
        "type": "string", "description": "A run's branch: its role and its run.",
        "pattern": "^[a-z][a-z0-9-]{0,31}/run_[2-9a-hjkmnp-z]{12}$"
    }
    Oid {
        "type": "string", "description": "Git object id: 40 hexadecimal digits.", "pattern": "^[0-9a-fA-F]{40}$"
    }
    TreePath {
        "type": "string",
        "description": "Absolute path in a tree. Bytes that are no printable text, and '%', are written as %XX.",
        "pattern": "^/"
    }
    Secret { "type": "string", "description": "A token or passphrase.", "format": "password" }
    Timestamp { "type": "string", "description": "RFC 3339, UTC, to the millisecond.", "format": "date-time" }
    FileTime {
        "type": "string", "description": "Seconds since 1970, '.', nine digits of nanoseconds.",
        "pattern": "^-?[0-9]+\\.[0-9]{9}$"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the pattern of an id is the alphabet it is made of.
    #[test]
    fn patterns_of_ids() {
        for pattern_of in
            [RunId::json_schema(&mut SchemaGenerator::default()), LeaseId::json_schema(&mut SchemaGenerator::default())]
        {
            let pattern = pattern_of.get("pattern").and_then(|p| p.as_str()).unwrap();
            let class = pattern.split_once('[').unwrap().1.split_once(']').unwrap().0;
            assert_eq!(expand(class), "23456789abcdefghjkmnpqrstuvwxyz", "{pattern}");
        }
    }

    /// The characters of a class of characters and ranges.
    fn expand(class: &str) -> String {
        let mut out = String::new();
        let mut rest = class.chars().peekable();
        while let Some(from) = rest.next() {
            if rest.peek() == Some(&'-') {
                rest.next();
                out.extend(from..=rest.next().unwrap());
            } else {
                out.push(from);
            }
        }
        out
    }
}
