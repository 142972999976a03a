//! How a command fails, and the exit code that says so.

use std::fmt::Write as _;

use nas_types::verb::{ErrorBody, ErrorInfo, GateDecided};

use crate::text;

/// Printed below every `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused or failed, for a reason not listed here
  2  the command line makes no sense, or the box says so of a value on it
  3  not authenticated: no token, an old one, a lease that is over, a wrong passphrase
  4  denied: known, but not allowed
  5  there is no such thing
  6  not in the present state: conflicts, a gate that is void or decided otherwise
  7  busy, full or degraded: the same command can succeed later
  8  the box cannot be reached
  9  verification failed: the records do not fit";

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What was asked for cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// There is no token to call with.
    #[error("{0}")]
    NoToken(String),
    /// The box answered with an error.
    #[error("{}", text::visible(&.0.message))]
    Refused(Box<ErrorInfo>),
    /// The gate became void; what there is to say was printed.
    #[error("{}", void_text(.0))]
    Void(Box<GateDecided>),
    /// No answer from the box.
    #[error("cannot reach the box at {url}: {why}. Is nasd running there? --url or NAS_URL choose another box")]
    Unreachable {
        /// Its address.
        url: String,
        /// The cause.
        why: String,
    },
    /// The connection broke while a stream was being sent.
    #[error(
        "the box at {url} stopped reading in the middle ({why}), and nothing was imported: it refused, with an answer \
         that was lost, or it was stopped. Check the passphrase and 'nas status', then try again"
    )]
    Broken {
        /// Its address.
        url: String,
        /// The cause.
        why: String,
    },
    /// The chain of records is broken.
    #[error("the records do not verify: {0}")]
    Verification(String),
    /// Something on this machine.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, to what.
        doing: String,
        /// The cause. Part of the text: this is the last stop before the person.
        source: std::io::Error,
    },
    /// Something on this machine, in a sentence.
    #[error("{0}")]
    Local(String),
}

impl Failure {
    /// For `map_err`.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// See [`EXIT_CODES`].
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::NoToken(_) => 3,
            Self::Refused(info) => refused_code(info),
            Self::Void(_) => 6,
            Self::Unreachable { .. } | Self::Broken { .. } => 8,
            Self::Verification(_) => 9,
            Self::Io { .. } | Self::Local(_) => 1,
        }
    }

    /// Tells the person, or with `--json` the program. Answers that were printed already only get their sentence.
    pub(crate) fn report(&self, json: bool) {
        match self {
            Self::Void(_) | Self::Verification(_) if json => {}
            _ if json => {
                let body = ErrorBody { error: self.info() };
                text::print(&(serde_json::to_string(&body).unwrap_or_default() + "\n"));
            }
            Self::Refused(info) => eprintln!("nas: {self} [{}]", text::visible(&info.request_id)),
            _ => eprintln!("nas: {self}"),
        }
    }

    fn info(&self) -> ErrorInfo {
        let code = match self {
            Self::Refused(info) => return (**info).clone(),
            Self::Usage(_) => "usage",
            Self::NoToken(_) => "no_token",
            Self::Void(_) => "void",
            Self::Unreachable { .. } | Self::Broken { .. } => "unreachable",
            Self::Verification(_) => "verification",
            Self::Io { .. } | Self::Local(_) => "local",
        };
        ErrorInfo {
            code: code.to_owned(),
            message: self.to_string(),
            retryable: matches!(self, Self::Unreachable { .. }),
            request_id: String::new(),
            details: serde_json::Value::Null,
        }
    }
}

fn refused_code(info: &ErrorInfo) -> u8 {
    match info.code.as_str() {
        "unauthenticated" | "wrong_passphrase" | "lease_over" => 3,
        "denied" | "unknown_host" | "foreign_origin" => 4,
        "not_found" | "unknown_verb" => 5,
        "state" | "conflicts" => 6,
        // What clap would have refused, had it known: the box knows better what a value may be.
        "invalid" | "bad_json" => 2,
        _ if info.retryable => 7,
        _ => 1,
    }
}

fn void_text(decided: &GateDecided) -> String {
    let mut out = format!("{} is void, and nothing was merged", decided.gate);
    if let Some(because) = &decided.because {
        let _ = write!(out, ": {}", text::visible(because));
    }
    for conflict in &decided.conflicts {
        let _ = write!(out, "\n  {}: {}", conflict.path, conflict.kind.as_sentence());
    }
    if let Some(successor) = &decided.successor {
        let _ = write!(out, "\nA fresh card waits: nas gate show {successor}");
    }
    out
}
