//! `nas-powerloss-server DIR BACKING LOG`: plays a disk on DIR until it is unmounted (see the library's `server`).
//! Prints `ready` once the disk is there. Started by `Recorder`, not by people.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [dir, backing, log] = arguments.as_slice() else {
        anyhow::bail!("usage: nas-powerloss-server DIR BACKING LOG");
    };
    let backing = OpenOptions::new().read(true).write(true).open(backing).context("opening the backing file")?;
    let log = File::create(log).context("creating the log")?;
    nas_powerloss::server::serve(dir, backing, log, || {
        let mut stdout = std::io::stdout();
        // If nobody listens any more, the mount will go away by itself.
        let _ = writeln!(stdout, "ready").and_then(|()| stdout.flush());
    })
    .context("serving the disk")
}
