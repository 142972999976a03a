//! Degradation is one ordered state (DESIGN §4, STYLE 18), raised automatically by causes that are tracked one by one.
//!
//! `NoNewRuns` and `ReadOnly` end when their cause ends (deleting files frees space and work goes on). `Sealed` says that what
//! the box believes may be wrong, so only the owner lowers it.

/// How far the box is degraded, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// All is well.
    #[default]
    None,
    /// Runs go on, no new one starts.
    NoNewRuns,
    /// Reads, and what frees space or narrows authority.
    ReadOnly,
    /// The owner's recovery only.
    Sealed,
}

impl Level {
    /// The word used in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NoNewRuns => "no_new_runs",
            Self::ReadOnly => "read_only",
            Self::Sealed => "sealed",
        }
    }
}

/// What raised it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The pool reached its reserve.
    Space,
    /// The wall clock is not trusted.
    Clock,
    /// The ledger cannot be written, or its chain does not verify.
    Ledger,
    /// The owner asked for it.
    Owner,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 4] = [Self::Space, Self::Clock, Self::Ledger, Self::Owner];

    /// A sentence for people.
    #[must_use]
    pub fn as_sentence(self) -> &'static str {
        match self {
            Self::Space => "the pool reached its reserve: delete something to free space",
            Self::Clock => "the clock is not trusted: connect the box to a network, or confirm the time",
            Self::Ledger => "the ledger cannot be written or does not verify",
            Self::Owner => "the owner asked for it",
        }
    }
}

/// What a verb does, as far as degradation is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VerbClass {
    /// Says how the box is.
    Status,
    /// Reads files, history or records.
    Read,
    /// Starts a run, issues a lease.
    OpenRun,
    /// Changes files on a branch, commits, proposes.
    Write,
    /// Approves: main will change.
    Approve,
    /// Only frees space: deletes on a branch, discards a branch, empties trash.
    FreeSpace,
    /// Only narrows authority: denies, revokes, ends a run.
    Narrow,
    /// The owner repairs: confirms the clock, verifies, lowers degradation.
    Recover,
}

impl VerbClass {
    /// All classes.
    pub const ALL: [Self; 8] = [
        Self::Status,
        Self::Read,
        Self::OpenRun,
        Self::Write,
        Self::Approve,
        Self::FreeSpace,
        Self::Narrow,
        Self::Recover,
    ];

    /// The highest level at which verbs of this class are admitted.
    #[must_use]
    pub const fn admitted_up_to(self) -> Level {
        match self {
            Self::Status | Self::Recover => Level::Sealed,
            Self::Read | Self::FreeSpace | Self::Narrow => Level::ReadOnly,
            Self::Write | Self::Approve => Level::NoNewRuns,
            Self::OpenRun => Level::None,
        }
    }
}

/// A verb that the present level does not admit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not now, the box is degraded to {}: {}", level.as_str(), cause.as_sentence())]
pub struct Degraded {
    /// The present level.
    pub level: Level,
    /// What raised it so far.
    pub cause: Cause,
}

/// Who lowers a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoweredBy {
    /// The cause was observed to be over.
    Observation,
    /// The owner, with the passphrase.
    Owner,
}

/// The level only the owner may lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the box is sealed: only the owner can lower this, after verifying the ledger")]
pub struct OwnerMustLower;

/// The present degradation: one level per cause; the highest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Degradation {
    by_cause: [Level; Cause::ALL.len()],
}

impl Degradation {
    /// The present level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.by_cause.into_iter().max().unwrap_or_default()
    }

    /// The level one cause has raised.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Level {
        self.by_cause[cause as usize]
    }

    /// Causes that are active, with their levels.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, Level)> + '_ {
        Cause::ALL.into_iter().map(|c| (c, self.of(c))).filter(|(_, level)| *level != Level::None)
    }

    /// The active causes, in sentences for people.
    pub fn sentences(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.causes().map(|(cause, level)| match (cause, level) {
            (Cause::Ledger, Level::Sealed) => {
                "the records are not those that were anchored: their end was cut off or they were rewritten, so nothing here \
                 can be relied on; 'nas record verify' says where, and 'nas record accept-loss' goes on without what is lost"
            }
            (cause, _) => cause.as_sentence(),
        })
    }

    /// Raises `cause` to at least `level`. Returns whether the overall level changed.
    pub fn raise(&mut self, cause: Cause, level: Level) -> bool {
        let before = self.level();
        let slot = &mut self.by_cause[cause as usize];
        *slot = (*slot).max(level);
        before != self.level()
    }

    /// Lowers `cause` to at most `level`. Returns whether the overall level changed.
    pub fn lower(&mut self, cause: Cause, level: Level, by: LoweredBy) -> Result<bool, OwnerMustLower> {
        let present = self.of(cause);
        let needs_owner = present == Level::Sealed || cause == Cause::Owner;
        if level < present && needs_owner && by != LoweredBy::Owner {
            return Err(OwnerMustLower);
        }
        let before = self.level();
        self.by_cause[cause as usize] = present.min(level);
        Ok(before != self.level())
    }

    /// Does the present level admit a verb of `class`?
    pub fn admits(&self, class: VerbClass) -> Result<(), Degraded> {
        let level = self.level();
        if level <= class.admitted_up_to() {
            return Ok(());
        }
        let cause = Cause::ALL.into_iter().find(|c| self.of(*c) == level).unwrap_or(Cause::Owner);
        Err(Degraded { level, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the whole admission table, so that a change shows.
    #[test]
    fn admission_table() {
        use VerbClass as V;
        let admitted = |level| {
            let mut d = Degradation::default();
            d.raise(Cause::Ledger, level);
            V::ALL.into_iter().filter(move |c| d.admits(*c).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(admitted(Level::None), V::ALL);
        let no_new_runs = [V::Status, V::Read, V::Write, V::Approve, V::FreeSpace, V::Narrow, V::Recover];
        assert_eq!(admitted(Level::NoNewRuns), no_new_runs);
        assert_eq!(admitted(Level::ReadOnly), [V::Status, V::Read, V::FreeSpace, V::Narrow, V::Recover]);
        assert_eq!(admitted(Level::Sealed), [V::Status, V::Recover]);
    }

    /// Goal: one cause ending does not hide another, and the refusal names the one that counts.
    #[test]
    fn causes_are_tracked_one_by_one() {
        let mut d = Degradation::default();
        assert!(d.raise(Cause::Space, Level::ReadOnly));
        assert!(!d.raise(Cause::Clock, Level::NoNewRuns));
        assert_eq!(d.admits(VerbClass::Write), Err(Degraded { level: Level::ReadOnly, cause: Cause::Space }));
        assert_eq!(d.lower(Cause::Space, Level::None, LoweredBy::Observation), Ok(true));
        assert_eq!(d.level(), Level::NoNewRuns);
        assert_eq!(d.admits(VerbClass::OpenRun).unwrap_err().cause, Cause::Clock);
        assert_eq!(d.causes().collect::<Vec<_>>(), [(Cause::Clock, Level::NoNewRuns)]);
    }

    /// Goal: sealing is not undone by itself, nor by raising it again at a lower level.
    #[test]
    fn only_the_owner_unseals() {
        let mut d = Degradation::default();
        d.raise(Cause::Ledger, Level::Sealed);
        assert!(!d.raise(Cause::Ledger, Level::ReadOnly));
        assert_eq!(d.lower(Cause::Ledger, Level::None, LoweredBy::Observation), Err(OwnerMustLower));
        assert_eq!(d.level(), Level::Sealed);
        assert_eq!(d.lower(Cause::Ledger, Level::None, LoweredBy::Owner), Ok(true));
        d.raise(Cause::Owner, Level::NoNewRuns);
        assert_eq!(d.lower(Cause::Owner, Level::None, LoweredBy::Observation), Err(OwnerMustLower));
    }
}
