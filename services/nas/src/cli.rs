//! The command tree. `nas <noun> <verb>` is one to one with the control verbs; a test compares the two.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::{Action, RoleName, TreeName, View};
use nas_types::path::TreePath;
use nas_types::verb::Head;

use crate::failure::EXIT_CODES;
use crate::value;

/// Talks to an Agent NAS: leases for runs, mounts, proposals, approvals, records.
#[derive(Debug, Parser)]
#[command(name = "nas", version, propagate_version = true, after_help = EXIT_CODES, after_long_help = format!("{LONG_HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const LONG_HELP: &str = "\
A first run:
  nas owner init --bootstrap-file nas-data/owner.bootstrap
  nas tree import ./project --into /shared/project
  nas lease create --role cleo --paths '/shared/project/**' \\
      --actions list,read,write,propose --ttl 4h
  nas mount ~/work                  # now let the agent work there, as another user than yourself
  nas propose --why 'What it is for'
  nas gate show gt_…
  nas gate approve gt_…
  nas explain 91ce3a7

Which token is used: --token-file, --lease, NAS_TOKEN, and else what 'owner init',
'owner login' and 'lease create' left in $NAS_STATE_DIR, or $XDG_STATE_HOME/nas, or
~/.local/state/nas. Give a sandbox a lease's token only ('lease create --token-out FILE'),
never the owner's, and run the agent as another user.";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Address of the box.
    #[arg(long, global = true, env = "NAS_URL", default_value = "http://127.0.0.1:8480", help_heading = "Everywhere")]
    pub(crate) url: String,
    /// File with the token to use (mode 0600).
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "lease", help_heading = "Everywhere")]
    pub(crate) token_file: Option<PathBuf>,
    /// Act under this lease, with the token that 'lease create' stored.
    #[arg(long, global = true, value_name = "LEASE", help_heading = "Everywhere")]
    pub(crate) lease: Option<LeaseId>,
    /// Print the box's answer as one line of JSON; also an error.
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
}

/// Nouns, short forms, and what acts on this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How is the box? (short for 'box status')
    Status,
    /// Ask for a merge of the run's branch (short for 'gate propose')
    Propose(ProposeArgs),
    /// Why is a commit here: run, lease, decision, what was read
    #[command(arg_required_else_help = true)]
    Explain(ExplainArgs),
    /// Mount the files of a lease on this machine; also: tickets and mounts
    #[command(arg_required_else_help = true)]
    Mount(MountArgs),
    /// Undo 'nas mount'
    Unmount {
        /// The directory it is mounted on.
        dir: PathBuf,
    },
    /// The box itself
    #[command(subcommand)]
    Box(BoxVerb),
    /// The owner's passphrase and token
    #[command(subcommand)]
    Owner(OwnerVerb),
    /// Files and history
    #[command(subcommand)]
    Tree(TreeVerb),
    /// What a run may do, and for how long
    #[command(subcommand)]
    Lease(LeaseVerb),
    /// Executions of agents
    #[command(subcommand)]
    Run(RunVerb),
    /// A person's own branch: what is written there is merged by itself after a minute of quiet
    #[command(subcommand)]
    Standing(StandingVerb),
    /// The private copies that runs work on
    #[command(subcommand)]
    Branch(BranchVerb),
    /// Named states of a branch
    #[command(subcommand)]
    Checkpoint(CheckpointVerb),
    /// What merges removed from main, for some days
    #[command(subcommand)]
    Trash(TrashVerb),
    /// Questions to the owner: may this be merged?
    #[command(subcommand)]
    Gate(GateVerb),
    /// What happened, hash chained
    #[command(subcommand)]
    Record(RecordVerb),
    /// Check a box against the specification's acceptance tests (runs the program nas-conformance)
    #[command(disable_help_flag = true)]
    Conformance {
        /// What nas-conformance takes: 'nas conformance run --help' tells.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Print a completion script for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one per command into a directory
    Man {
        /// Directory to write to.
        dir: Option<PathBuf>,
    },
}

/// How the owner's passphrase is given. It is never an argument or an environment variable: others could see it.
#[derive(Debug, Args)]
pub(crate) struct PassphraseArgs {
    /// Read the owner's passphrase from this file instead of asking at the terminal.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// Where a list goes on.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Go on where an earlier answer stopped.
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    /// At most this many.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BoxVerb {
    /// How is the box?
    Status,
    /// Confirm that the box's clock is right: suspended leases go on
    TrustClock(PassphraseArgs),
    /// Lower a degradation whose cause is gone
    Resume(PassphraseArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum OwnerVerb {
    /// Set the owner's passphrase, once, with the token the box wrote at its first start
    Init {
        /// The box's owner.bootstrap; without it the token is asked for.
        #[arg(long, value_name = "FILE")]
        bootstrap_file: Option<PathBuf>,
        #[command(flatten)]
        passphrase: PassphraseArgs,
        /// Print the owner token (it is stored in any case).
        #[arg(long)]
        print_token: bool,
    },
    /// Get a fresh owner token and store it
    Login {
        #[command(flatten)]
        passphrase: PassphraseArgs,
        /// Print the owner token (it is stored in any case).
        #[arg(long)]
        print_token: bool,
    },
    /// End the owner token and forget it
    Logout,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TreeVerb {
    /// Put a directory of this machine into main, as one merge
    Import {
        /// The directory; symbolic links in it are kept as such, never followed.
        dir: PathBuf,
        /// Where it goes; made when absent, and what is there and not in DIR stays.
        #[arg(long, value_name = "PATH", value_parser = TreePath::parse)]
        into: TreePath,
        /// Why, for the record.
        #[arg(long)]
        why: Option<String>,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
    /// List a directory
    List {
        /// Directory.
        #[arg(default_value = "/", value_parser = TreePath::parse)]
        path: TreePath,
        /// 'branch' or 'main'; main unless a lease is used.
        #[arg(long, value_parser = value::view)]
        view: Option<View>,
        /// As it was in this commit (its id, or at least the first 7 digits).
        #[arg(long)]
        commit: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Make an unprotected tree: plain NAS space, without branches, gates or history
    Create {
        /// Its name, e.g. media.
        tree: TreeName,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
    /// What trees there are
    Show {
        /// Only this one.
        tree: Option<TreeName>,
    },
    /// Remove an unprotected tree; its files stay restorable as long as what is in the trash
    Remove {
        /// Which.
        tree: TreeName,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
    /// Bring a removed tree back
    Restore {
        /// Which.
        tree: TreeName,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
    /// History, newest first
    Log {
        /// 'branch' or 'main'; main unless a lease is used.
        #[arg(long, value_parser = value::view)]
        view: Option<View>,
        #[command(flatten)]
        page: PageArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LeaseVerb {
    /// Start a run under a new lease; with --lease: a narrower lease of the same run
    Create(LeaseCreateArgs),
    /// All leases, newest first
    List {
        /// Also those that are over.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// What a lease allows and how long
    Show {
        /// Which; the one in use when left out.
        id: Option<LeaseId>,
    },
    /// End a lease and all that were derived from it, at once
    Revoke {
        /// Which.
        id: LeaseId,
        /// Why, for the record.
        #[arg(long)]
        why: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LeaseCreateArgs {
    /// Role of the agent, e.g. cleo.
    #[arg(long)]
    pub(crate) role: Option<RoleName>,
    /// An unprotected tree to work on, e.g. media; else it is a branch of the protected one.
    #[arg(long)]
    pub(crate) tree: Option<TreeName>,
    /// What it may see: '/dir/**' for a directory and all below it, '/file' for one path. Commas between.
    #[arg(long, required = true, value_delimiter = ',')]
    pub(crate) paths: Vec<String>,
    /// What it may do: list, read, write, propose. Commas between.
    #[arg(long, required = true, value_delimiter = ',')]
    pub(crate) actions: Vec<Action>,
    /// Life time, e.g. 90m or 4h; 4h when left out, 24h at most.
    #[arg(long, value_parser = value::duration)]
    pub(crate) ttl: Option<u64>,
    /// What the run is for. Recorded, not enforced.
    #[arg(long)]
    pub(crate) purpose: Option<String>,
    /// What the run's branch may hold, e.g. 500M or 10G.
    #[arg(long, value_name = "SIZE", value_parser = value::bytes)]
    pub(crate) quota: Option<u64>,
    /// Also write the token to this new file, for a sandbox.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_out: Option<PathBuf>,
    /// Also print the token. It is not shown again.
    #[arg(long)]
    pub(crate) print_token: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StandingVerb {
    /// Open it, or get a fresh lease on it; then 'nas mount --lease … DIR'
    Open {
        /// What it may change, as the paths of a lease; everything when left out. Commas between.
        #[arg(long, value_delimiter = ',')]
        paths: Option<Vec<String>>,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
    /// What waits to be merged, and why if it does not go on
    Show,
    /// Merge what is there and end it
    Close(PassphraseArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunVerb {
    /// All runs, newest first
    List {
        /// Only this role.
        #[arg(long)]
        role: Option<RoleName>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// What a run is
    Show {
        /// Which; the lease's own when left out.
        run: Option<RunId>,
    },
    /// End a run: its leases are revoked, its branch stays until its time is over
    End {
        /// Which; the lease's own when left out.
        run: Option<RunId>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<MountVerb>,
    /// An empty directory to mount on; who owns it will own the files. Its lease is --lease, or the only one there is.
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) view: MountView,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct MountView {
    /// 'branch', or 'main' to look at the protected files.
    #[arg(long, default_value = "branch", value_parser = value::view)]
    pub(crate) view: View,
    /// Refuse every change through this mount.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Show this commit of main or of the branch, which never changes (at least 7 digits).
    #[arg(long, conflicts_with = "view")]
    pub(crate) commit: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MountVerb {
    /// Get a ticket: the first part of an export path, good once and for 60 s
    Ticket(MountView),
    /// List mounts
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BranchVerb {
    /// Live branches
    List,
    /// What a branch is
    Show {
        /// The run that owns it; the lease's own when left out.
        run: Option<RunId>,
    },
    /// What a branch changed since it was forked
    Diff {
        /// The run that owns it; the lease's own when left out.
        run: Option<RunId>,
        /// Names only, without the text of the changes.
        #[arg(long)]
        names: bool,
    },
    /// Commit what is on the branch now
    Commit {
        /// First line of the message.
        #[arg(long, short)]
        message: Option<String>,
    },
    /// Give a branch up: its files are gone, its leases are revoked
    Recycle {
        /// The run that owns it; the lease's own when left out.
        run: Option<RunId>,
    },
    /// Bring the branch back to a checkpoint or commit; what is there now is committed first
    Restore {
        /// Name of a checkpoint, or a commit.
        to: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointVerb {
    /// Name the present state of the branch
    Create {
        /// 1 to 64 of a-z A-Z 0-9 . _ -
        name: String,
    },
    /// Checkpoints of a branch
    List {
        /// The run that owns the branch; the lease's own when left out.
        run: Option<RunId>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrashVerb {
    /// What merges removed from main and can be brought back, newest first
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Bring a deleted path back, with all that was below it; nothing that is there now is replaced
    Restore {
        /// Where it was.
        #[arg(value_parser = TreePath::parse)]
        path: TreePath,
        /// The merge that deleted it: a commit of the list (its id, or at least the first 7 digits).
        #[arg(long)]
        commit: String,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProposeArgs {
    /// Where to: main is the only protected branch.
    #[arg(long, default_value = "main")]
    pub(crate) into: String,
    /// Why, in the run's own words. The owner sees it beside the diff, never instead of it.
    #[arg(long)]
    pub(crate) why: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GateVerb {
    /// Ask for a merge of the run's branch. What is on it now is committed and pinned
    Propose(ProposeArgs),
    /// Gates, newest first
    List {
        /// Also those that are decided.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// The Gate Card: who asks, what is risky, what was read, the true diff
    Show {
        /// Which.
        gate: GateId,
    },
    /// Approve: merge exactly what the card shows
    Approve {
        /// Which.
        gate: GateId,
        /// Approve what was seen earlier, by the digest on its card; without it the card is shown now.
        #[arg(long, value_name = "HEX")]
        digest: Option<String>,
        /// Why, for the record.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
    /// Deny: nothing is merged
    Deny {
        /// Which.
        gate: GateId,
        /// Why, for the run and for the record.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<ExplainVerb>,
    /// A commit, or at least 7 of its first digits.
    pub(crate) commit: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExplainVerb {
    /// Why is a commit here: run, lease, decision, what was read
    Commit {
        /// A commit, or at least 7 of its first digits.
        commit: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecordVerb {
    /// Records, newest first
    List {
        /// Only this run.
        #[arg(long)]
        run: Option<RunId>,
        /// Only this kind, e.g. merge.intent.
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Number and hash of the newest record: keep it outside the box
    Head,
    /// Recompute the whole chain, and compare it with the last head this machine saw
    Verify {
        /// Compare with this head instead, '<number>:<hash>'.
        #[arg(long, value_parser = value::head)]
        anchor: Option<Head>,
    },
    /// Go on without records that are lost for good; what is lost is recorded, and every lease ends
    AcceptLoss {
        /// Why, for the record.
        #[arg(long)]
        why: Option<String>,
        #[command(flatten)]
        passphrase: PassphraseArgs,
    },
}
