//! What policy is asked.

/// Kind of a principal (SPEC noun Principal).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A person.
    Human,
    /// An agent, by its role.
    Agent,
    /// A background job of the box itself, `svc:*`.
    Service,
    /// Another box.
    Node,
    /// Nobody that proved anything.
    Nobody,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Human, Self::Agent, Self::Service, Self::Node, Self::Nobody];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Agent => "agent",
            Self::Service => "service",
            Self::Node => "node",
            Self::Nobody => "nobody",
        }
    }
}

/// Who asks, and what was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subject<'a> {
    /// Kind of principal.
    pub kind: Kind,
    /// Its id, e.g. `agent:cleo`.
    pub principal: &'a str,
    /// A person who owns the box.
    pub owner: bool,
    /// The passphrase (or a passkey) was given with this very request: a secret that is not on disk (DESIGN §4 "Tokens").
    pub passphrase: bool,
    /// A live lease that covers the action and the path.
    pub lease: bool,
}

impl<'a> Subject<'a> {
    /// The owner with a token, without passphrase.
    #[must_use]
    pub const fn owner(principal: &'a str) -> Self {
        Self { kind: Kind::Human, principal, owner: true, passphrase: false, lease: false }
    }

    /// An agent under a lease that covers what it asks.
    #[must_use]
    pub const fn agent(principal: &'a str) -> Self {
        Self { kind: Kind::Agent, principal, owner: false, passphrase: false, lease: true }
    }

    /// A background job of the box.
    #[must_use]
    pub const fn service(principal: &'a str) -> Self {
        Self { kind: Kind::Service, principal, owner: false, passphrase: false, lease: false }
    }

    /// Nobody.
    #[must_use]
    pub const fn nobody() -> Self {
        Self { kind: Kind::Nobody, principal: "", owner: false, passphrase: false, lease: false }
    }

    /// The same, with the passphrase given.
    #[must_use]
    pub const fn with_passphrase(self) -> Self {
        Self { passphrase: true, ..self }
    }

    /// The same, without a lease.
    #[must_use]
    pub const fn without_lease(self) -> Self {
        Self { lease: false, ..self }
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    /// See names and attributes.
    List,
    /// Read content.
    Read,
    /// Change files.
    Write,
    /// Ask for a merge.
    Propose,
    /// Merge a branch.
    Merge,
    /// Merge a person's own edits from their standing branch.
    OwnEdits,
    /// Take outside files in as a whole.
    Import,
    /// Start a run and issue its root lease.
    OpenRun,
    /// Issue a child lease within one's own.
    NarrowLease,
    /// Issue a lease wider than the one held.
    WidenLease,
    /// Revoke a lease, a run or a role.
    Revoke,
    /// Approve or deny a gate.
    DecideGate,
    /// Read records, explain a commit, verify the chain.
    ReadRecords,
    /// Discard a branch before its time.
    DiscardBranch,
    /// Commit, expire, recycle, checkpoint: the box's own upkeep.
    Upkeep,
    /// Make, remove and restore unprotected trees.
    ManageTrees,
    /// Restore from trash, lower degradation, confirm the clock.
    Recover,
    /// Delete or unlock a snapshot or a backup.
    DeleteSnapshot,
}

impl Act {
    /// All acts.
    pub const ALL: [Self; 18] = [
        Self::List,
        Self::Read,
        Self::Write,
        Self::Propose,
        Self::Merge,
        Self::OwnEdits,
        Self::Import,
        Self::OpenRun,
        Self::NarrowLease,
        Self::WidenLease,
        Self::Revoke,
        Self::DecideGate,
        Self::ReadRecords,
        Self::DiscardBranch,
        Self::Upkeep,
        Self::ManageTrees,
        Self::Recover,
        Self::DeleteSnapshot,
    ];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Propose => "propose",
            Self::Merge => "merge",
            Self::OwnEdits => "own_edits",
            Self::Import => "import",
            Self::OpenRun => "open_run",
            Self::NarrowLease => "narrow_lease",
            Self::WidenLease => "widen_lease",
            Self::Revoke => "revoke",
            Self::DecideGate => "decide_gate",
            Self::ReadRecords => "read_records",
            Self::DiscardBranch => "discard_branch",
            Self::Upkeep => "upkeep",
            Self::ManageTrees => "manage_trees",
            Self::Recover => "recover",
            Self::DeleteSnapshot => "delete_snapshot",
        }
    }
}

/// On what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The run's own branch.
    OwnBranch,
    /// Another run's branch.
    OtherBranch,
    /// A protected tree.
    Protected,
    /// An unprotected tree: plain space, without branches and merges.
    Unprotected,
    /// The box itself: runs, leases, gates, records.
    Box,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 5] = [Self::OwnBranch, Self::OtherBranch, Self::Protected, Self::Unprotected, Self::Box];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OwnBranch => "own_branch",
            Self::OtherBranch => "other_branch",
            Self::Protected => "protected",
            Self::Unprotected => "unprotected",
            Self::Box => "box",
        }
    }
}

/// What a session has read, as far as labels say. Before labels exist it is unknown, never false (DESIGN §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Taint {
    /// Labels do not exist yet, or were lost.
    #[default]
    Unknown,
    /// Nothing external was read.
    Clean,
    /// Something external was read.
    External,
}

/// One question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyRequest<'a> {
    /// Who asks.
    pub subject: Subject<'a>,
    /// What is to be done.
    pub act: Act,
    /// On what.
    pub target: Target,
    /// A person approved exactly this (the digest matches).
    pub approved: bool,
    /// Taint of the session.
    pub taint: Taint,
    /// The change touches files under `.nas/`, which could widen what a role may do.
    pub touches_nas: bool,
    /// The change deletes files.
    pub deletes: bool,
}

impl<'a> PolicyRequest<'a> {
    /// A question without approval, with unknown taint.
    #[must_use]
    pub const fn new(subject: Subject<'a>, act: Act, target: Target) -> Self {
        Self { subject, act, target, approved: false, taint: Taint::Unknown, touches_nas: false, deletes: false }
    }
}
