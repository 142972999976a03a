//! `nas-powerloss-server DIR BACKING LOG VOLUME`: plays a disk on DIR until it is unmounted (see the library's `server`).
//! Prints `ready` once the disk is there. Started by `Recorder`, not by people.
//!
//! Its standard input is a pipe that nobody writes to. It ends when the test that started this program is gone, however
//! it went: then the file system on VOLUME, the loop device and the disk are taken down in this order, and no mount stays.

use std::fs::{File, OpenOptions, read_dir, read_to_string};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use nas_powerloss::server::{DISK, serve};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [dir, backing, log, volume] = arguments.as_slice() else {
        anyhow::bail!("usage: nas-powerloss-server DIR BACKING LOG VOLUME");
    };
    let backing = OpenOptions::new().read(true).write(true).open(backing).context("opening the backing file")?;
    let log = File::create(log).context("creating the log")?;
    let (disk, volume) = (dir.clone(), volume.clone());
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        // An error means the same as the end: nobody is there any more.
        let _ = std::io::stdin().read_to_end(&mut rest);
        take_down(&disk, &volume);
    });
    serve(dir, backing, log, || {
        let mut stdout = std::io::stdout();
        // If nobody listens any more, the watcher above ends it all.
        let _ = writeln!(stdout, "ready").and_then(|()| stdout.flush());
    })
    .context("serving the disk")
}

/// Undoes what an orphaned recording has mounted. Each step may have happened already.
fn take_down(disk: &Path, volume: &Path) {
    let quietly = |program: &str, arguments: &[&str], path: &Path| {
        let _ = Command::new(program).args(arguments).arg(path).output();
    };
    quietly("umount", &["--lazy"], volume);
    for device in read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim_end()) == disk.join(DISK) {
            quietly("losetup", &["--detach"], &Path::new("/dev").join(device.file_name()));
        }
    }
    quietly("umount", &["--lazy"], disk);
}
