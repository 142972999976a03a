//! Answers as text for people. Machines take `--json`.

use std::fmt::Write as _;

use nas_types::lease::{BranchName, TreeName};
use nas_types::object::EntryKind;
use nas_types::verb::*;

use crate::card;
use crate::text::{Here, count, quoted, size, visible, visible_lines};

/// An answer that can be printed.
pub(crate) trait Show {
    /// Its text, ending with a newline.
    fn show(&self, here: &Here) -> String;
}

fn more(out: &mut String, cursor: Option<&String>) {
    if let Some(cursor) = cursor {
        let _ = writeln!(out, "more: --cursor {}", visible(cursor));
    }
}

/// One line per item; `empty` when there is none.
fn lines<T: Show>(items: &[T], cursor: Option<&String>, empty: &str, here: &Here) -> String {
    if items.is_empty() && cursor.is_none() {
        return format!("{empty}\n");
    }
    let mut out: String = items.iter().map(|item| item.show(here)).collect();
    more(&mut out, cursor);
    out
}

impl Show for BoxStatusAnswer {
    fn show(&self, here: &Here) -> String {
        let mut out = format!("nasd {} · degradation {}\n", visible(&self.version), visible(&self.level));
        for cause in &self.causes {
            let _ = writeln!(out, "  ! {}", visible(cause));
        }
        let Some(d) = &self.details else {
            out.push_str("(with a token there is more to see)\n");
            return out;
        };
        let commit: String = d.commit.chars().take(7).collect();
        let _ = writeln!(out, "main generation {} · commit {}", d.generation, visible(&commit));
        let _ = writeln!(
            out,
            "space {} free of {} · {} kept back",
            size(d.free_bytes),
            size(d.pool_bytes),
            size(d.reserve_bytes)
        );
        let _ = writeln!(
            out,
            "{} · {} waiting",
            count(d.branches, "branch", "branches"),
            count(d.gates_pending, "gate", "gates")
        );
        let _ = writeln!(out, "nfs {} · engine {}", visible(&d.nfs), visible(&d.engine));
        let clock = if d.clock_trusted {
            "trusted"
        } else {
            "not confirmed: nothing ends by age, leases from before a reboot wait"
        };
        let _ = writeln!(out, "clock {} ({clock})", here.time(d.time));
        if !d.owner_ready {
            out.push_str("no owner yet: nas owner init\n");
        }
        let _ = writeln!(out, "ledger head {}:{}", d.head.seq, visible(&d.head.hash));
        out
    }
}

impl Show for OwnerToken {
    fn show(&self, here: &Here) -> String {
        format!("owner token stored · expires {}\n", here.time(self.expires_at))
    }
}

impl Show for Done {
    fn show(&self, _: &Here) -> String {
        "done\n".to_owned()
    }
}

impl Show for TreeImported {
    fn show(&self, _: &Here) -> String {
        let mut out = format!(
            "imported {}, {} · commit {} · record {}\n",
            count(self.entries, "entry", "entries"),
            size(self.bytes),
            self.commit.short(),
            self.record
        );
        for skipped in &self.skipped {
            let _ = writeln!(out, "  left out: {}", visible(skipped));
        }
        out
    }
}

impl Show for TreeEntry {
    fn show(&self, _: &Here) -> String {
        let kind = match self.kind {
            EntryKind::File => '-',
            EntryKind::Symlink => 'l',
            EntryKind::Dir => 'd',
        };
        format!("{kind} {:04o} {:>10}  {}\n", self.mode, size(self.size), self.path)
    }
}

impl Show for TreeListing {
    fn show(&self, here: &Here) -> String {
        lines(&self.entries, self.cursor.as_ref(), "empty", here)
    }
}

impl Show for CommitInfo {
    fn show(&self, here: &Here) -> String {
        format!("{}  {}  {}\n", self.commit.short(), here.time(self.time), visible(&self.summary))
    }
}

impl Show for TreeLogAnswer {
    fn show(&self, here: &Here) -> String {
        lines(&self.commits, self.cursor.as_ref(), "no commits", here)
    }
}

impl Show for TreeInfo {
    fn show(&self, here: &Here) -> String {
        let kind = if self.protected { "protected: changes only by merges" } else { "unprotected: plain space" };
        let mut out = format!("tree {} · {} · {kind} · {}", self.tree, visible(&self.state), visible(&self.engine));
        if let Some(made) = self.created_at {
            let _ = write!(out, " · made {}", here.time(made));
        }
        if let Some(gone) = self.gone_at {
            let _ = write!(out, " · gone for good {}", here.time(gone));
        }
        out.push('\n');
        out
    }
}

impl Show for Trees {
    fn show(&self, here: &Here) -> String {
        lines(&self.trees, None, "no trees", here)
    }
}

/// Where a run works.
fn place(tree: &TreeName, branch: Option<&BranchName>) -> String {
    branch.map_or_else(|| format!("tree {tree}"), |branch| format!("branch {branch}"))
}

impl Show for LeaseCreated {
    fn show(&self, here: &Here) -> String {
        let l = &self.lease;
        let place = place(&l.tree, l.branch.as_ref());
        format!("lease {} · run {} · {place} · expires {}\n", l.lease, l.run, here.time(l.expires_at))
    }
}

impl Show for LeaseInfo {
    fn show(&self, here: &Here) -> String {
        let paths: Vec<String> = self.paths.iter().map(|p| visible(p)).collect();
        let actions: Vec<&str> = self.actions.iter().map(|a| a.as_str()).collect();
        let mut out = format!(
            "lease {} · {} · run {} · {} · expires {}\n  {} · {}",
            self.lease,
            visible(&self.state),
            self.run,
            place(&self.tree, self.branch.as_ref()),
            here.time(self.expires_at),
            paths.join(", "),
            actions.join(", ")
        );
        let _ = write!(out, " · {}", visible(&self.principal));
        if let Some(owner) = &self.on_behalf_of {
            let _ = write!(out, " for {}", visible(owner));
        }
        if let Some(parent) = &self.parent {
            let _ = write!(out, " · from {parent}");
        }
        out.push('\n');
        if let Some(purpose) = &self.purpose {
            out.push_str(&quoted(purpose));
        }
        out
    }
}

impl Show for Leases {
    fn show(&self, here: &Here) -> String {
        lines(&self.leases, self.cursor.as_ref(), "no leases", here)
    }
}

impl Show for LeaseRevoked {
    fn show(&self, here: &Here) -> String {
        if self.already_there {
            return format!("it was revoked already at {} · record {}\n", here.time(self.revoked_at), self.record);
        }
        let ids: Vec<String> = self.revoked.iter().map(ToString::to_string).collect();
        format!("revoked {} · record {}\n", ids.join(", "), self.record)
    }
}

impl Show for StandingOpened {
    fn show(&self, here: &Here) -> String {
        let lease = &self.lease;
        format!(
            "{}lease {} · expires {} · mount it: nas mount --lease {} DIR\n",
            self.standing.show(here),
            lease.lease,
            here.time(lease.expires_at),
            lease.lease
        )
    }
}

impl Show for StandingInfo {
    fn show(&self, here: &Here) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| visible(path)).collect();
        let mut out = format!(
            "standing branch {} · {} · since {} · {}\n",
            self.branch,
            visible(&self.state),
            here.time(self.opened_at),
            paths.join(", ")
        );
        if let Some(merged) = &self.merged {
            let _ = writeln!(out, "  merged last: {}", merged.short());
        }
        let _ = writeln!(out, "  {} waiting", count(self.waiting, "path", "paths"));
        if let Some(stuck) = &self.stuck {
            let _ = writeln!(out, "  not merged: {}", visible(&stuck.because));
            for path in &stuck.paths {
                let _ = writeln!(out, "    {path}");
            }
        }
        out
    }
}

impl Show for RunInfo {
    fn show(&self, here: &Here) -> String {
        let mut out = format!(
            "run {} · {} · {} · {} · started {}",
            self.run,
            visible(&self.state),
            visible(&self.principal),
            place(&self.tree, self.branch.as_ref()),
            here.time(self.started_at)
        );
        if let Some(ended) = self.ended_at {
            let _ = write!(out, " · ended {}", here.time(ended));
        }
        out.push('\n');
        if let Some(purpose) = &self.purpose {
            out.push_str(&quoted(purpose));
        }
        out
    }
}

impl Show for Runs {
    fn show(&self, here: &Here) -> String {
        lines(&self.runs, self.cursor.as_ref(), "no runs", here)
    }
}

impl Show for MountTicketAnswer {
    fn show(&self, here: &Here) -> String {
        format!(
            "ticket {} · port {} · path {} · good once, until {} ({} s)\n",
            visible(self.ticket.reveal()),
            self.port,
            self.root,
            here.time(self.expires_at),
            self.seconds
        )
    }
}

impl Show for MountInfo {
    fn show(&self, here: &Here) -> String {
        let view = match self.view {
            nas_types::lease::View::Main => "main".to_owned(),
            nas_types::lease::View::Branch if self.tree.is_protected() => "branch".to_owned(),
            nas_types::lease::View::Branch => format!("tree {}", self.tree),
        };
        let mode = if self.read_only { "read-only" } else { "read-write" };
        format!(
            "mount {} · lease {} · {view} {} · {mode} · {} · since {}\n",
            self.mount,
            self.lease,
            self.root,
            visible(&self.peer),
            here.time(self.created_at)
        )
    }
}

impl Show for Mounts {
    fn show(&self, here: &Here) -> String {
        lines(&self.mounts, None, "no mounts", here)
    }
}

impl Show for BranchInfo {
    fn show(&self, here: &Here) -> String {
        format!(
            "branch {} · {} · tip {} · base {} · {} · {} of {} · until {}\n",
            self.branch,
            visible(&self.state),
            self.tip.short(),
            self.base.short(),
            count(self.dirty_paths, "path not committed", "paths not committed"),
            size(self.used_bytes),
            size(self.quota_bytes),
            here.time(self.expires_at)
        )
    }
}

impl Show for Branches {
    fn show(&self, here: &Here) -> String {
        lines(&self.branches, None, "no branches", here)
    }
}

impl Show for BranchDiffAnswer {
    fn show(&self, _: &Here) -> String {
        let mut out = format!("{} → {}\n", self.from.short(), self.to.short());
        out.push_str(card::changes(&self.changes).trim_start());
        if let Some(text) = &self.text {
            let _ = write!(out, "\n{}", visible_lines(text));
            if !text.is_empty() && !text.ends_with('\n') {
                out.push('\n');
            }
        }
        out
    }
}

impl Show for BranchCommitted {
    fn show(&self, _: &Here) -> String {
        let note = if self.made { "" } else { " · nothing had changed" };
        format!("commit {}{note}\n", self.commit.short())
    }
}

impl Show for BranchRestored {
    fn show(&self, _: &Here) -> String {
        format!(
            "restored · commit {} · {} changed · what was there before: {}\n",
            self.commit.short(),
            count(self.changed, "path", "paths"),
            self.before.short()
        )
    }
}

impl Show for CheckpointInfo {
    fn show(&self, _: &Here) -> String {
        format!("checkpoint {} · commit {}\n", visible(&self.name), self.commit.short())
    }
}

impl Show for Checkpoints {
    fn show(&self, here: &Here) -> String {
        lines(&self.checkpoints, None, "no checkpoints", here)
    }
}

impl Show for Trashed {
    fn show(&self, here: &Here) -> String {
        let run = self.run.map_or_else(String::new, |run| format!(" · {run}"));
        let what = if self.entry.kind == EntryKind::Dir { "directory".to_owned() } else { size(self.entry.size) };
        format!("{}  {}  {}  {what}{run}\n", here.time(self.deleted_at), self.commit, self.path)
    }
}

impl Show for Trash {
    fn show(&self, here: &Here) -> String {
        let mut out = lines(&self.entries, self.cursor.as_ref(), "the trash is empty", here);
        let _ = writeln!(
            out,
            "(deletions are listed for {}; they stay in the history after that)",
            count(self.days.into(), "day", "days")
        );
        out
    }
}

impl Show for TrashRestored {
    fn show(&self, _: &Here) -> String {
        let restored = count(self.restored, "path", "paths");
        format!("restored · {restored} · commit {} · record {}\n", self.commit.short(), self.record)
    }
}

impl Show for Proposed {
    fn show(&self, _: &Here) -> String {
        let note = if self.already_there { " · it was waiting already" } else { "" };
        format!(
            "gate {} waiting for approval: merge {} into {} ({}){note}\n",
            self.gate,
            self.branch,
            visible(&self.into),
            count(self.files_changed, "file", "files")
        )
    }
}

impl Show for GateSummary {
    fn show(&self, here: &Here) -> String {
        let mut out = format!(
            "gate {} · {} · merge {} into {} ({}) · expires {}\n",
            self.gate,
            visible(&self.state),
            self.branch,
            visible(&self.into),
            count(self.files_changed, "file", "files"),
            here.time(self.expires_at)
        );
        if let Some(why) = &self.why {
            out.push_str(&quoted(why));
        }
        out
    }
}

impl Show for Gates {
    fn show(&self, here: &Here) -> String {
        lines(&self.gates, self.cursor.as_ref(), "no gates", here)
    }
}

impl Show for GateCard {
    fn show(&self, here: &Here) -> String {
        card::card(self, here)
    }
}

impl Show for GateDecided {
    fn show(&self, _: &Here) -> String {
        let note = if self.already_there { " · it had been decided so before" } else { "" };
        match (self.state.as_str(), &self.commit) {
            ("approved", Some(commit)) => {
                format!("merged · commit {} · record {}{note}\n", commit.short(), self.record)
            }
            (state, _) => format!("{} · record {}{note}\n", visible(state), self.record),
        }
    }
}

impl Show for Explanation {
    fn show(&self, here: &Here) -> String {
        let mut out = format!(
            "commit {} · {} · {}\n",
            self.commit.commit,
            here.time(self.commit.time),
            visible(&self.commit.summary)
        );
        for (key, value) in &self.commit.trailers {
            let _ = writeln!(out, "  {}: {}", visible(key), visible(value));
        }
        if let Some(note) = &self.note {
            let _ = writeln!(out, "note: {}", visible(note));
        }
        if !self.from.is_empty() {
            let from: Vec<String> = self.from.iter().map(nas_types::object::Oid::short).collect();
            let _ = writeln!(out, "made of {}", from.join(", "));
        }
        out.push_str(&self.run.as_ref().map_or_else(|| "no run is known\n".to_owned(), |run| run.show(here)));
        if let Some(lease) = &self.lease {
            out.push_str(&lease.show(here));
        }
        if let Some(gate) = &self.gate {
            let _ = writeln!(
                out,
                "gate {} · decided by {} · {} · digest {}",
                gate.gate,
                visible(&gate.decision.by),
                here.time(gate.decision.at),
                visible(&gate.digest)
            );
            if let Some(why) = &gate.why {
                let _ = write!(out, "why, in the run's own words:\n{}", quoted(why));
            }
            if let Some(reason) = &gate.decision.reason {
                let _ = write!(out, "reason of the decision:\n{}", quoted(reason));
            }
        }
        out.push_str(&card::reads(&self.read, 0));
        out.push_str(&card::changes(&self.changes));
        let _ = writeln!(out, "\nrecords: {}", self.records.len());
        out.push_str(&self.records.iter().map(|r| r.show(here)).collect::<String>());
        out
    }
}

impl Show for RecordInfo {
    fn show(&self, here: &Here) -> String {
        let mut out = format!("{:>6}  {}  {}", self.seq, here.time(self.time), visible(&self.kind));
        if let Some(principal) = &self.principal {
            let _ = write!(out, " · {}", visible(principal));
        }
        if let Some(run) = &self.run {
            let _ = write!(out, " · {run}");
        }
        if let Some(path) = &self.path {
            let _ = write!(out, " · {path}");
        }
        if let Some(commit) = &self.commit {
            let _ = write!(out, " · commit {}", commit.short());
        }
        if let Some(effect) = &self.effect {
            let _ = write!(out, " · {}", visible(effect));
            if let Some(rule) = &self.rule {
                let _ = write!(out, " by {}", visible(rule));
            }
        }
        out.push('\n');
        out
    }
}

impl Show for Records {
    fn show(&self, here: &Here) -> String {
        lines(&self.records, self.cursor.as_ref(), "no records", here)
    }
}

impl Show for Head {
    fn show(&self, _: &Here) -> String {
        format!("{}:{}\n", self.seq, visible(&self.hash))
    }
}

impl Show for LossAccepted {
    fn show(&self, here: &Here) -> String {
        format!(
            "loss accepted at {} · records after {} up to {} are lost · record {}\n",
            here.time(self.time),
            self.kept.seq,
            self.lost.seq,
            self.record.seq
        )
    }
}

impl Show for RecordVerified {
    fn show(&self, here: &Here) -> String {
        let losses: String = self.losses.iter().map(|loss| loss.show(here)).collect();
        if !self.ok {
            let seq = self.first_bad.map_or_else(String::new, |seq| format!(" · first bad record {seq}"));
            return format!("NOT verified{seq} · good up to {}:{}\n{losses}", self.head.seq, visible(&self.head.hash));
        }
        let mut out = format!(
            "verified · {} on {} · head {}:{}\n",
            count(self.head.seq, "record", "records"),
            count(self.days, "day", "days"),
            self.head.seq,
            visible(&self.head.hash)
        );
        if let Some(anchor) = &self.anchor {
            let _ = writeln!(out, "contains the head seen before, {}:{}", anchor.seq, visible(&anchor.hash));
        }
        out + &losses
    }
}
