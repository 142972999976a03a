//! Words of a lease: actions, branch names, views.

use std::fmt;
use std::str::FromStr;

use crate::id::RunId;

/// What a lease allows. `Read` implies `List` (SPEC LEASE).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// See names and attributes.
    List,
    /// Read content.
    Read,
    /// Change files on the run's own branch.
    Write,
    /// Ask for a merge into a protected tree.
    Propose,
}

impl Action {
    /// All actions in rising order.
    pub const ALL: [Self; 4] = [Self::List, Self::Read, Self::Write, Self::Propose];

    /// The word used in the API and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Propose => "propose",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Action {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::ALL
            .into_iter()
            .find(|a| a.as_str() == text)
            .ok_or(NameError { what: "action", rule: "one of list, read, write, propose" })
    }
}

/// A text that is not a legal role, branch or action name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a legal {what}: it must be {rule}")]
pub struct NameError {
    /// What was expected.
    pub what: &'static str,
    /// The rule it broke.
    pub rule: &'static str,
}

fn is_plain_name(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Name of a role: 1 to 32 of `a-z 0-9 -`, starting with a letter. Safe in paths, refs and argv.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct RoleName(String);

impl RoleName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RoleName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = NameError { what: "role", rule: "1 to 32 of a-z, 0-9 and '-', starting with a letter" };
        is_plain_name(text).then(|| Self(text.to_owned())).ok_or(bad)
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for RoleName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Name of a tree: 1 to 32 of `a-z 0-9 -`, starting with a letter. Safe in paths and argv.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct TreeName(String);

impl TreeName {
    /// Name of the protected tree that every box has, with `/agents`, `/shared` and `/humans`.
    pub const PROTECTED: &'static str = "nas";

    /// The protected tree.
    #[must_use]
    pub fn protected() -> Self {
        Self(Self::PROTECTED.to_owned())
    }

    /// Is it the protected tree?
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.0 == Self::PROTECTED
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TreeName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = NameError { what: "tree", rule: "1 to 32 of a-z, 0-9 and '-', starting with a letter" };
        is_plain_name(text).then(|| Self(text.to_owned())).ok_or(bad)
    }
}

impl fmt::Display for TreeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for TreeName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Name of a run's branch, `<role>/<run_id>`. `main` is not one: it is never written to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchName {
    /// Role the run works for.
    pub role: RoleName,
    /// The run that owns the branch.
    pub run: RunId,
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.role, self.run)
    }
}

impl FromStr for BranchName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = NameError { what: "branch", rule: "<role>/<run id>, for example cleo/run_7qk3m2x4abcd" };
        let (role, run) = text.split_once('/').ok_or(bad)?;
        Ok(Self { role: role.parse().map_err(|_| bad)?, run: run.parse().map_err(|_| bad)? })
    }
}

impl serde::Serialize for BranchName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for BranchName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which files a mount shows.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// The run's own branch.
    #[default]
    Branch,
    /// Protected main, read-only: each request sees one whole generation.
    Main,
}
