//! What acts on this machine: importing a directory, mounting, completions and manual pages.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use clap::CommandFactory as _;
use nas_types::path::TreePath;
use nas_types::verb::{LeaseShow, MountList, MountTicket, TreeImport, TreeImported};

use super::{As, Session, owner};
use crate::cli::{Cli, MountArgs, MountVerb, MountView, PassphraseArgs};
use crate::client::host_of;
use crate::failure::Failure;
use crate::state::MountedHere;
use crate::{mount, pack, text};

impl Session {
    pub(super) fn import(
        &self,
        dir: &Path,
        into: TreePath,
        why: Option<String>,
        passphrase: &PassphraseArgs,
    ) -> Result<(), Failure> {
        // Before the passphrase is asked for.
        let token = self.token(As::Owner)?;
        if !dir.is_dir() {
            return Err(Failure::Usage(format!("{} is no directory that can be read", dir.display())));
        }
        let import = TreeImport { into, why, passphrase: owner::ask(passphrase)? };
        let line = serde_json::to_vec(&import).map_err(|e| Failure::Local(format!("cannot write the request: {e}")))?;
        let (sent, packed) = pack::with_stream(line, dir, |body| {
            self.client.stream::<TreeImported>("tree/import", token.as_ref(), body)
        })
        .map_err(|e| Failure::Local(e.to_string()))?;
        let answer = sent?;
        for skipped in &packed.skipped {
            eprintln!("nas: left out: {skipped}");
        }
        self.print(&answer)
    }

    pub(super) fn mount(&self, args: MountArgs) -> Result<(), Failure> {
        let ticket = |view: MountView| MountTicket { view: view.view, read_only: view.read_only, commit: view.commit };
        match (args.verb, args.dir) {
            (Some(_), Some(_)) => Err(Failure::Usage("name a directory or a verb, not both".to_owned())),
            (Some(MountVerb::Ticket(view)), None) => self.simple(As::Lease, ticket(view)),
            (Some(MountVerb::List), None) => self.simple(As::Owner, MountList {}),
            (None, Some(dir)) => self.mount_here(&dir, &ticket(args.view)),
            (None, None) => Err(Failure::Usage("name the directory to mount on".to_owned())),
        }
    }

    fn mount_here(&self, dir: &Path, ticket: &MountTicket) -> Result<(), Failure> {
        let dir = mount::directory(dir)?;
        let owner = mount::owner_of(&dir)?;
        let obstacle = mount::obstacle();
        let answer = self.call(As::Lease, ticket)?;
        let host = host_of(&self.global.url)?;
        let arguments = mount::arguments(host, &answer, ticket.read_only, &dir, owner);
        if let Some(obstacle) = obstacle {
            return Err(Failure::Local(format!(
                "{obstacle}. On a machine that can, root mounts it within {} s with\n  {}",
                answer.seconds,
                mount::command_line(&arguments)
            )));
        }
        mount::run("mount", &arguments)?;
        // The token may have come from anywhere: only the box knows whose it is. The mount stands without it.
        let lease = self.call(As::Lease, &LeaseShow { lease: None }).ok().map(|info| info.lease);
        if let Some(lease) = lease {
            self.state.add_mount(MountedHere { dir: dir.clone(), lease })?;
        }
        if self.global.json {
            let json = serde_json::json!({ "dir": dir.to_string_lossy(), "lease": lease, "root": answer.root });
            text::print(&format!("{json}\n"));
        } else {
            text::print(&format!("{} is mounted on {}\n", answer.root, dir.display()));
        }
        Ok(())
    }

    pub(super) fn unmount(&self, dir: &Path) -> Result<(), Failure> {
        // The directory may not answer any more: do not look at it more than needed.
        let full = std::path::absolute(dir).map_err(Failure::io(format!("looking at {}", dir.display())))?;
        mount::run("umount", &[full.clone().into_os_string()])?;
        self.state.forget_mount(&full)?;
        if let Ok(canonical) = full.canonicalize() {
            self.state.forget_mount(&canonical)?;
        }
        if self.global.json {
            text::print("{\"done\":true}\n");
        } else {
            text::print(&format!("{} is unmounted\n", full.display()));
        }
        Ok(())
    }
}

pub(super) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "nas", &mut script);
    text::print(&String::from_utf8_lossy(&script));
    Ok(())
}

pub(super) fn man(dir: Option<&Path>) -> Result<(), Failure> {
    let doing = || "writing the manual page".to_owned();
    if let Some(dir) = dir {
        return clap_mangen::generate_to(Cli::command(), dir).map_err(Failure::io(doing()));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Failure::io(doing()))?;
    text::print(&String::from_utf8_lossy(&page));
    Ok(())
}

/// Becomes `nas-conformance`, found beside this program or on PATH: the suite is a product of its own, and this one
/// carries nothing of it.
pub(super) fn conformance(arguments: &[OsString]) -> Result<(), Failure> {
    const PROGRAM: &str = "nas-conformance";
    let beside = std::env::current_exe().ok().and_then(|here| Some(here.parent()?.join(PROGRAM)));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into());
    let error = std::process::Command::new(program).args(arguments).exec();
    Err(Failure::Local(format!("cannot start {PROGRAM}, which is installed beside nas or on PATH: {error}")))
}
