//! Deletes what is not needed any more, one thing at a time: the file system's cleaner is slower than its
//! callers (FINDINGS §1). Nothing waits for it; what a crash leaves is cleaned when the store is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::engine::Engine;
use crate::generation::Generation;

/// Something to delete.
#[derive(Debug)]
pub(crate) enum Reap {
    /// A directory nobody uses.
    Now(PathBuf),
    /// A branch: its live directory, then the directory around it.
    Branch(PathBuf),
    /// A former generation of main: from `after` on, when no operation holds it any more.
    Generation { generation: Arc<Generation>, after: Instant },
    /// Stop; former generations stay for the next start to clean.
    Stop,
    /// Answer when everything sent before is done (except generations whose time has not come).
    Flush(Sender<()>),
}

/// The thread's body.
pub(crate) fn run(engine: &dyn Engine, inbox: &Receiver<Reap>) {
    let mut waiting: Vec<(Instant, Arc<Generation>)> = Vec::new();
    loop {
        let next = waiting.iter().map(|(at, _)| *at).min();
        let received = match next {
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => inbox.recv_deadline(at),
        };
        match received {
            Ok(Reap::Now(path)) => delete(engine, path),
            Ok(Reap::Branch(dir)) => {
                delete(engine, dir.join("live"));
                if let Err(e) = std::fs::remove_dir_all(&dir) {
                    tracing::warn!(dir = %dir.display(), error = %e, "a recycled branch is left; the next start cleans it");
                }
            }
            Ok(Reap::Generation { generation, after }) => waiting.push((after, generation)),
            Ok(Reap::Flush(done)) => drop(done.send(())),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Reap::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        waiting.retain_mut(|(at, generation)| {
            if *at > now {
                return true;
            }
            if Arc::strong_count(generation) > 1 {
                // Still in use: look again in a second.
                *at = now + std::time::Duration::from_secs(1);
                return true;
            }
            delete(engine, generation.dir().to_owned());
            false
        });
    }
}

fn delete(engine: &dyn Engine, path: PathBuf) {
    if let Err(e) = engine.delete(&path) {
        tracing::warn!(path = %path.display(), error = %e, "could not be deleted; the next start tries again");
    }
}
