//! The actions of a lease as a set. `read` implies `list` (SPEC LEASE).

use std::fmt;
use std::str::FromStr;

use nas_types::lease::{Action, NameError};

/// A set of [`Action`]s, closed under "read implies list".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ActionSet(u8);

const fn bit(action: Action) -> u8 {
    match action {
        Action::List => 1,
        Action::Read => 2,
        Action::Write => 4,
        Action::Propose => 8,
    }
}

impl ActionSet {
    /// No action.
    pub const NONE: Self = Self(0);
    /// Every action.
    pub const ALL: Self = Self(15);

    /// Does the lease allow `action`?
    #[must_use]
    pub const fn contains(self, action: Action) -> bool {
        self.0 & bit(action) != 0
    }

    /// This set and `action`.
    #[must_use]
    pub const fn with(self, action: Action) -> Self {
        let implied = if matches!(action, Action::Read) { bit(Action::List) } else { 0 };
        Self(self.0 | bit(action) | implied)
    }

    /// Is every action of `self` in `other`? (SPEC LEASE-2.)
    #[must_use]
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Nothing is allowed.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The actions in rising order.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::ALL.into_iter().filter(move |a| self.contains(*a))
    }
}

impl FromIterator<Action> for ActionSet {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Self {
        actions.into_iter().fold(Self::NONE, Self::with)
    }
}

/// `list,read,write`, in rising order.
impl fmt::Display for ActionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, action) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            f.write_str(action.as_str())?;
        }
        Ok(())
    }
}

/// Words separated by commas; an empty text is the empty set.
impl FromStr for ActionSet {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::parse::<Action>).collect()
    }
}

impl serde::Serialize for ActionSet {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.iter())
    }
}

impl<'de> serde::Deserialize<'de> for ActionSet {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Vec::<Action>::deserialize(d)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: read implies list, every text and JSON form gives the same set back, subsets are subsets.
    #[test]
    fn read_implies_list() {
        let read: ActionSet = "read".parse().unwrap();
        assert!(read.contains(Action::List) && read.contains(Action::Read) && !read.contains(Action::Write));
        for bits in 0..16u8 {
            let set: ActionSet = Action::ALL.into_iter().filter(|a| bits & bit(*a) != 0).collect();
            assert_eq!(set.to_string().parse(), Ok(set));
            let json = serde_json::to_string(&set).unwrap();
            assert_eq!(serde_json::from_str::<ActionSet>(&json).unwrap(), set);
            assert!(set.is_subset_of(ActionSet::ALL));
            assert_eq!(ActionSet::ALL.is_subset_of(set), set == ActionSet::ALL);
        }
        assert!("read,delete_snapshot".parse::<ActionSet>().is_err());
    }
}
