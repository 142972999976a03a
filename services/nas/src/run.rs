//! From a parsed command to a call, and what is done with the answer.

mod gate;
mod lease;
mod local;
mod owner;
mod record;

#[cfg(test)]
pub(crate) use record::broken;

use nas_types::id::LeaseId;
use nas_types::lease::View;
use nas_types::secret::Secret;
use nas_types::verb::*;
use serde::Serialize;

use crate::cli::*;
use crate::client::Client;
use crate::failure::Failure;
use crate::show::Show;
use crate::state::{State, read_secret};
use crate::text::{self, Here};

/// Whose token a verb is called with when none is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    /// The owner's, or a lease's where there is no owner here.
    Owner,
    /// A lease's, or the owner's where there is no lease here.
    Lease,
    /// Nobody's: the verb makes a token.
    Nobody,
}

/// One invocation.
struct Session {
    global: Global,
    client: Client,
    state: State,
    here: Here,
}

/// Runs a command.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Completions { shell } => return local::completions(shell),
        Command::Man { dir } => return local::man(dir.as_deref()),
        Command::Conformance { arguments } => return local::conformance(&arguments),
        _ => {}
    }
    let session = Session {
        client: Client::new(&cli.global.url)?,
        state: State::of_box(&cli.global.url)?,
        here: Here::system(),
        global: cli.global,
    };
    session.dispatch(cli.command)
}

impl Session {
    fn dispatch(&self, command: Command) -> Result<(), Failure> {
        match command {
            Command::Status | Command::Box(BoxVerb::Status) => self.status(),
            Command::Box(BoxVerb::TrustClock(p)) => {
                self.simple(As::Owner, BoxTrustClock { passphrase: owner::ask(&p)? })
            }
            Command::Box(BoxVerb::Resume(p)) => self.simple(As::Owner, BoxResume { passphrase: owner::ask(&p)? }),
            Command::Owner(verb) => self.owner(verb),
            Command::Tree(verb) => self.tree(verb),
            Command::Lease(verb) => self.lease(verb),
            Command::Run(verb) => self.run(verb),
            Command::Standing(verb) => self.standing(verb),
            Command::Mount(args) => self.mount(args),
            Command::Unmount { dir } => self.unmount(&dir),
            Command::Branch(verb) => self.branch(verb),
            Command::Checkpoint(CheckpointVerb::Create { name }) => self.simple(As::Lease, CheckpointCreate { name }),
            Command::Checkpoint(CheckpointVerb::List { run }) => {
                self.simple(owner_if(run.is_some()), CheckpointList { run })
            }
            Command::Trash(TrashVerb::List { page }) => {
                self.simple(As::Owner, TrashList { cursor: page.cursor, limit: page.limit })
            }
            Command::Trash(TrashVerb::Restore { path, commit, passphrase }) => {
                self.simple(As::Owner, TrashRestore { path, commit, passphrase: owner::ask(&passphrase)? })
            }
            Command::Propose(args) => self.gate(GateVerb::Propose(args)),
            Command::Gate(verb) => self.gate(verb),
            Command::Explain(args) => self.explain(args),
            Command::Record(verb) => self.record(verb),
            Command::Completions { .. } | Command::Man { .. } | Command::Conformance { .. } => Ok(()),
        }
    }

    fn tree(&self, verb: TreeVerb) -> Result<(), Failure> {
        let implied = |view: Option<View>| view.unwrap_or(if self.has_owner() { View::Main } else { View::Branch });
        let by = |view: View| if view == View::Branch { As::Lease } else { As::Owner };
        match verb {
            TreeVerb::Import { dir, into, why, passphrase } => self.import(&dir, into, why, &passphrase),
            TreeVerb::List { path, view, commit, page } => {
                let view = implied(view);
                self.simple(by(view), TreeList { path, view, commit, cursor: page.cursor, limit: page.limit })
            }
            TreeVerb::Create { tree, passphrase } => {
                self.simple(As::Owner, TreeCreate { tree, passphrase: owner::ask(&passphrase)? })
            }
            TreeVerb::Show { tree } => self.simple(As::Owner, TreeShow { tree }),
            TreeVerb::Remove { tree, passphrase } => {
                self.simple(As::Owner, TreeRemove { tree, passphrase: owner::ask(&passphrase)? })
            }
            TreeVerb::Restore { tree, passphrase } => {
                self.simple(As::Owner, TreeRestore { tree, passphrase: owner::ask(&passphrase)? })
            }
            TreeVerb::Log { view, page } => {
                let view = implied(view);
                self.simple(by(view), TreeLog { view, cursor: page.cursor, limit: page.limit })
            }
        }
    }

    /// Is the call going to be the owner's, as far as can be told from here?
    fn has_owner(&self) -> bool {
        self.global.lease.is_none()
            && self.global.token_file.is_none()
            && std::env::var_os("NAS_TOKEN").is_none()
            && matches!(self.state.owner_token(), Ok(Some(_)))
    }

    fn run(&self, verb: RunVerb) -> Result<(), Failure> {
        match verb {
            RunVerb::List { role, page } => {
                self.simple(As::Owner, RunList { role, cursor: page.cursor, limit: page.limit })
            }
            RunVerb::Show { run } => self.simple(owner_if(run.is_some()), RunShow { run }),
            RunVerb::End { run } => self.simple(owner_if(run.is_some()), RunEnd { run }),
        }
    }

    fn branch(&self, verb: BranchVerb) -> Result<(), Failure> {
        match verb {
            BranchVerb::List => self.simple(As::Owner, BranchList {}),
            BranchVerb::Show { run } => self.simple(owner_if(run.is_some()), BranchShow { run }),
            BranchVerb::Diff { run, names } => self.simple(owner_if(run.is_some()), BranchDiff { run, text: !names }),
            BranchVerb::Commit { message } => self.simple(As::Lease, BranchCommit { message }),
            BranchVerb::Recycle { run } => self.simple(owner_if(run.is_some()), BranchRecycle { run }),
            BranchVerb::Restore { to } => self.simple(As::Lease, BranchRestore { to }),
        }
    }

    fn explain(&self, args: ExplainArgs) -> Result<(), Failure> {
        let commit = match (args.verb, args.commit) {
            (Some(ExplainVerb::Commit { commit }), None) | (None, Some(commit)) => commit,
            (Some(_), Some(_)) | (None, None) => return Err(Failure::Usage("name the commit to explain".to_owned())),
        };
        self.simple(As::Owner, ExplainCommit { commit })
    }

    fn status(&self) -> Result<(), Failure> {
        let answer = match self.call(As::Owner, &BoxStatus {}) {
            // An old token must not hide how the box is. One that was named is the caller's affair.
            Err(Failure::NoToken(_)) => self.call(As::Nobody, &BoxStatus {})?,
            Err(Failure::Refused(info)) if info.code == "unauthenticated" || info.code == "lease_over" => {
                eprintln!("nas: {}", text::visible(&info.message));
                self.client.call(None, &BoxStatus {})?
            }
            other => other?,
        };
        self.print(&answer)
    }

    /// A verb whose answer is only printed.
    fn simple<V: Verb>(&self, by: As, verb: V) -> Result<(), Failure>
    where
        V::Answer: Show,
    {
        let answer = self.call(by, &verb)?;
        self.print(&answer)
    }

    fn call<V: Verb>(&self, by: As, verb: &V) -> Result<V::Answer, Failure> {
        let token = self.token(by)?;
        self.client.call(token.as_ref(), verb).map_err(|failure| self.as_whom(failure))
    }

    /// A stored lease's token was used because the owner is not signed in here: that is what there is to do about it.
    fn as_whom(&self, failure: Failure) -> Failure {
        let named = self.global.lease.is_some()
            || self.global.token_file.is_some()
            || std::env::var_os("NAS_TOKEN").is_some_and(|token| !token.is_empty());
        match failure {
            Failure::Refused(info) if !named && matches!(self.state.owner_token(), Ok(None)) => {
                Failure::Refused(Box::new(sign_in(*info)))
            }
            other => other,
        }
    }

    /// `--token-file`, `--lease`, NAS_TOKEN, then what is stored.
    fn token(&self, by: As) -> Result<Option<Secret>, Failure> {
        if by == As::Nobody {
            return Ok(None);
        }
        if let Some(file) = &self.global.token_file {
            return read_secret(file).map(Some);
        }
        if let Some(lease) = self.global.lease {
            return self.lease_token(lease).map(Some);
        }
        if let Some(token) = std::env::var("NAS_TOKEN").ok().filter(|t| !t.is_empty()) {
            return Ok(Some(Secret::new(token)));
        }
        let owner = || self.state.owner_token();
        let lease = || -> Result<Option<Secret>, Failure> {
            match self.implied_lease()? {
                Some(lease) => self.state.lease_token(lease),
                None => Ok(None),
            }
        };
        let found = match by {
            As::Owner => owner()?.map_or_else(lease, |t| Ok(Some(t)))?,
            As::Lease => lease()?.map_or_else(owner, |t| Ok(Some(t)))?,
            As::Nobody => None,
        };
        found.map(Some).ok_or_else(|| {
            Failure::NoToken(format!(
                "no token for {}: run 'nas owner login', or give one with --token-file, --lease or NAS_TOKEN",
                self.client.url()
            ))
        })
    }

    fn lease_token(&self, lease: LeaseId) -> Result<Secret, Failure> {
        self.state.lease_token(lease)?.ok_or_else(|| {
            Failure::NoToken(format!(
                "the token of {lease} is not stored here: it is shown once, where the lease was created; \
                 give it with --token-file or NAS_TOKEN, or create a lease"
            ))
        })
    }

    fn implied_lease(&self) -> Result<Option<LeaseId>, Failure> {
        self.state.implied_lease(std::env::current_dir().ok().as_deref())
    }

    fn print<A: Show + Serialize>(&self, answer: &A) -> Result<(), Failure> {
        if self.global.json {
            let json = serde_json::to_string(answer).map_err(|e| Failure::Local(format!("cannot print: {e}")))?;
            text::print(&(json + "\n"));
        } else {
            text::print(&answer.show(&self.here));
        }
        Ok(())
    }
}

/// What only the owner may do says how to be the owner.
pub(crate) fn sign_in(mut info: ErrorInfo) -> ErrorInfo {
    if info.code == "denied" && info.details["rule"] == "owner-only" {
        info.message.push_str(": sign in with 'nas owner login' (the token of a lease was used)");
    }
    info
}

/// The owner names runs; a lease's bearer means its own.
fn owner_if(named: bool) -> As {
    if named { As::Owner } else { As::Lease }
}
