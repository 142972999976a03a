//! The Gate Card as text (SPEC GATE-1). What the box computed is plain; what the run wrote is behind a bar and called so.

use std::fmt::Write as _;

use nas_types::object::{Change, EntryKind};
use nas_types::path::TreePath;
use nas_types::verb::{GateCard, GateRisk, ReadSummary};

use crate::text::{Here, count, quoted, size, visible, visible_lines};

/// Reads and paths that a list shows before it only counts.
const LISTED_MAX: usize = 20;

/// What one must know before approving: everything but the diff.
pub(crate) fn summary(card: &GateCard, here: &Here) -> String {
    let mut out = String::new();
    let action = &card.action;
    let _ = writeln!(out, "gate {} · {} · expires {}", card.gate, visible(&card.state), here.time(card.expires_at));
    let _ = writeln!(
        out,
        "{} {} into {} · {} · commit {}",
        visible(&action.op),
        action.from,
        visible(&action.into),
        count(action.files_changed, "file", "files"),
        action.commit.short()
    );
    let _ = write!(out, "asked by {}", visible(&card.principal));
    if let Some(owner) = &card.on_behalf_of {
        let _ = write!(out, " for {}", visible(owner));
    }
    let _ = writeln!(out, " · run {} · lease {} · {}", card.run, card.lease, here.time(card.created_at));
    let _ = writeln!(out, "digest {}", visible(&action.digest));
    match &card.why {
        Some(why) => {
            let _ = write!(out, "why, in the run's own words (nobody checked them):\n{}", quoted(why));
        }
        None => out.push_str("why: the run gave no reason\n"),
    }
    if let Some(decision) = &card.decision {
        let _ = write!(out, "decided by {} · {}", visible(&decision.by), here.time(decision.at));
        if let Some(commit) = &decision.commit {
            let _ = write!(out, " · commit {}", commit.short());
        }
        out.push('\n');
        if let Some(reason) = &decision.reason {
            out.push_str(&quoted(reason));
        }
    }
    if let Some(successor) = &card.successor {
        let _ = writeln!(out, "a fresh card took its place: nas gate show {successor}");
    }
    out.push_str(&risk(&card.risk));
    out.push_str(&changes(&card.changes));
    out
}

/// The whole card.
pub(crate) fn card(card: &GateCard, here: &Here) -> String {
    let mut out = summary(card, here);
    out.push_str(&reads(&card.read, card.read_more));
    out.push_str("\ndiff, computed by the box:\n");
    out.push_str(&visible_lines(&card.diff));
    if !card.diff.is_empty() && !card.diff.ends_with('\n') {
        out.push('\n');
    }
    let options: Vec<String> = card.options.iter().map(|o| visible(o)).collect();
    let _ = writeln!(
        out,
        "\nanswers: {} · without an answer until {}: {}",
        options.join(", "),
        here.time(card.expires_at),
        visible(&card.default)
    );
    let _ = writeln!(out, "ledger head {}:{}", card.head.seq, visible(&card.head.hash));
    out
}

fn risk(risk: &GateRisk) -> String {
    let facts: [(&str, &[TreePath]); 7] = [
        ("deleted", &risk.deletions),
        ("mode changed", &risk.mode_changes),
        ("symbolic links", &risk.symlinks),
        ("not text", &risk.binaries),
        ("invisible characters in name or text", &risk.invisible),
        ("runs by itself (CI, hooks)", &risk.runs_by_itself),
        ("not kept (pipes, sockets)", &risk.not_kept),
    ];
    let mut out = String::from("\nrisk\n");
    let mut none = Vec::new();
    for (name, paths) in facts {
        if paths.is_empty() {
            none.push(name);
            continue;
        }
        let _ = writeln!(out, "  ! {name}: {}", paths.len());
        for path in paths.iter().take(LISTED_MAX) {
            let _ = writeln!(out, "      {path}");
        }
        if paths.len() > LISTED_MAX {
            let _ = writeln!(out, "      … and {} more", paths.len() - LISTED_MAX);
        }
    }
    if !none.is_empty() {
        let _ = writeln!(out, "  nothing: {}", none.join(" · "));
    }
    let _ = writeln!(out, "  what the session read from outside: {}", visible(&risk.session_taint));
    out
}

/// Changes, one a line.
pub(crate) fn changes(changes: &[Change]) -> String {
    let mut out = format!("\nchanges: {}\n", changes.len());
    for change in changes {
        let _ = writeln!(out, "  {}", change_line(change));
    }
    out
}

fn change_line(change: &Change) -> String {
    let kind = |k: EntryKind| match k {
        EntryKind::File => "",
        EntryKind::Symlink => " (symbolic link)",
        EntryKind::Dir => " (directory)",
    };
    match (&change.old, &change.new) {
        (None, Some(new)) => format!("added    {}  {}{}", change.path, size(new.size), kind(new.kind)),
        (Some(old), None) => format!("deleted  {}  {}{}", change.path, size(old.size), kind(old.kind)),
        (Some(old), Some(new)) => {
            let mut line = format!("changed  {}", change.path);
            if old.size != new.size {
                let _ = write!(line, "  {} → {}", size(old.size), size(new.size));
            }
            if old.mode != new.mode {
                let _ = write!(line, "  mode {:04o} → {:04o}", old.mode, new.mode);
            }
            line + kind(new.kind)
        }
        (None, None) => format!("         {}", change.path),
    }
}

/// The read manifest, shortened.
pub(crate) fn reads(reads: &[ReadSummary], more: u64) -> String {
    let all = more.saturating_add(reads.len() as u64);
    let mut out = format!("\nread by the run: {}\n", count(all, "path", "paths"));
    for read in reads.iter().take(LISTED_MAX) {
        let _ = write!(out, "  {}", read.path);
        if let Some(commit) = &read.commit {
            let _ = write!(out, " @{}", commit.short());
        }
        for (start, end) in read.ranges.iter().take(3) {
            let _ = write!(out, " {start}–{end}");
        }
        out.push_str(if read.ranges.len() > 3 { " …\n" } else { "\n" });
    }
    let shown = reads.len().min(LISTED_MAX) as u64;
    if all > shown {
        let _ = writeln!(out, "  … and {} more", all - shown);
    }
    out
}
