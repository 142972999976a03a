//! A child process that does not outlive its test.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A running child. Dropping the guard sends SIGKILL and reaps it.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self { child: command.spawn()? })
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// True while it has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// `kill -9`, then reaps: what a crash of this process looks like to everybody else.
    pub fn kill(&mut self) {
        // Both fail only when it is already gone, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits for the end; after `patience` it is killed.
    ///
    /// # Errors
    /// `TimedOut` if it had to be killed, or what the operating system said.
    pub fn terminate(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        let pid = rustix::process::Pid::from_child(&self.child);
        match rustix::process::kill_process(pid, rustix::process::Signal::TERM) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.wait(patience)
    }

    /// Waits for the end by itself; after `patience` it is killed.
    ///
    /// # Errors
    /// `TimedOut` if it had to be killed, or what the operating system said.
    pub fn wait(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.kill();
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("still running after {patience:?}")));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exists(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    /// Goal: a forgotten server does not outlive the test that started it.
    #[test]
    fn dies_with_its_guard() {
        let process = Process::spawn(Command::new("sleep").arg("1000")).unwrap();
        let pid = process.id();
        assert!(exists(pid));
        drop(process);
        assert!(!exists(pid));
    }

    /// Goal: a polite end is told apart from one that had to be forced.
    #[test]
    fn terminates_or_times_out() {
        let mut polite = Process::spawn(Command::new("sleep").arg("1000")).unwrap();
        assert!(!polite.terminate(Duration::from_secs(30)).unwrap().success());
        let mut stubborn = Process::spawn(Command::new("sleep").arg("1000")).unwrap();
        assert_eq!(stubborn.wait(Duration::ZERO).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(!stubborn.is_running());
    }
}
