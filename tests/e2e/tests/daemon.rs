//! nasd as a process: privileges, one daemon a folder, the bootstrap token, a clean stop.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use nas_e2e::{TestBox, binary, passphrase, refused};
use nas_types::secret::Secret;
use nas_types::verb::{BoxStatus, OwnerInit, OwnerLogin, RecordVerify};

fn status_of(pid: u32) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(format!("/proc/{pid}/status"))?)
}

/// Goal: whoever started it, no thread of nasd has a capability, can regain one, or can hand one on (DESIGN §2).
#[test]
fn no_capability() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let pid = nas.pid();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let id: u32 = thread?.file_name().to_string_lossy().parse()?;
        let status = status_of(id)?;
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set} of thread {id}");
        }
        if nas_testkit::is_root() {
            assert_eq!(field("CapBnd:"), "0000000000000000", "thread {id}");
        }
        assert_eq!(field("NoNewPrivs:"), "1", "thread {id}");
    }
    Ok(())
}

/// Goal: nobody else can read the data folder; the bootstrap token works once and leaves no file; a second daemon on the
/// folder says what is wrong.
#[test]
fn folder_and_bootstrap() -> anyhow::Result<()> {
    let scratch = nas_testkit::Scratch::new("daemon");
    let data = scratch.join("data");
    let mut nas = TestBox::in_folder(&data, &[]);
    nas.boot()?;
    let mode = |path: &Path| std::fs::metadata(path).map(|meta| meta.permissions().mode() & 0o7777);
    assert_eq!(mode(&data)?, 0o700);
    let file = data.join("owner.bootstrap");
    assert_eq!(mode(&file)?, 0o600);
    assert_eq!(mode(&data.join("ledger.db"))?, 0o600);
    let bootstrap = Secret::new(std::fs::read_to_string(&file)?.trim().to_owned());
    // Before there is an owner nothing can be decided, and the token outlives a restart.
    assert_eq!(nas.call(None, &OwnerLogin { passphrase: passphrase() }).unwrap_err().code, "state");
    nas.restart()?;
    let short = OwnerInit { bootstrap: bootstrap.clone(), passphrase: Secret::new("short".to_owned()) };
    assert_eq!(nas.call(None, &short).unwrap_err().code, "invalid");
    nas.init_owner()?;
    assert!(!file.exists());
    let again = OwnerInit { bootstrap, passphrase: Secret::new("somebody else's passphrase".to_owned()) };
    assert_eq!(nas.call(None, &again).unwrap_err().code, "unauthenticated");
    assert!(nas.as_owner(&BoxStatus::default()).map_err(refused)?.details.is_some_and(|details| details.owner_ready));

    let second = Command::new(binary("nasd")?)
        .arg("--data")
        .arg(&data)
        .args(["--http", "127.0.0.1:0", "--nfs", "127.0.0.1:0"])
        .output()?;
    assert!(!second.status.success());
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("another nasd"),
        "{}",
        String::from_utf8_lossy(&second.stderr)
    );

    nas.restart()?;
    assert!(!file.exists(), "a box with an owner offers no bootstrap token");
    assert!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok);
    nas.stop()
}

/// Goal: a port that is taken is found before anything is made on disk: no image, no ledger, no bootstrap token.
#[test]
fn taken_port() -> anyhow::Result<()> {
    let scratch = nas_testkit::Scratch::new("daemon");
    let data = scratch.join("data");
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    for (http, nfs, what) in [(address.as_str(), "127.0.0.1:0", "HTTP"), ("127.0.0.1:0", address.as_str(), "NFS")] {
        let nasd =
            Command::new(binary("nasd")?).arg("--data").arg(&data).args(["--http", http, "--nfs", nfs]).output()?;
        let said = String::from_utf8_lossy(&nasd.stderr).into_owned();
        assert!(!nasd.status.success());
        assert!(said.contains(&format!("listening for {what} on {address}")) && said.contains("taken"), "{said}");
        let made: Vec<_> = std::fs::read_dir(&data)?.collect::<Result<_, _>>()?;
        let names: Vec<_> = made.iter().map(std::fs::DirEntry::file_name).collect();
        assert_eq!(names, ["nasd.lock"], "{what}");
    }
    Ok(())
}

/// Goal: secrets never reach the log.
#[test]
fn no_secret_in_the_log() -> anyhow::Result<()> {
    let nas = TestBox::start_with(&[])?;
    let lease = nas.full_lease("/shared").map_err(refused)?;
    let export = nas.export(&lease, "/shared", nas_types::lease::View::Branch)?;
    let ticket = export.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
    drop(nas.mount(&lease, "/shared")?);
    let _ = nas.call(Some(&lease.token), &OwnerLogin { passphrase: Secret::new("a wrong passphrase".to_owned()) });
    let log = nas.log();
    for secret in [lease.token.reveal(), nas.owner().reveal(), nas_e2e::PASSPHRASE, "a wrong passphrase", &ticket] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
    assert!(log.contains("mounted"), "the log says nothing at all");
    Ok(())
}

/// Goal: every unit file we ship gives the process nothing, and each socket has the name that nasd looks for.
#[test]
fn unit_files() -> anyhow::Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services/nasd");
    let service = std::fs::read_to_string(dir.join("nasd.service"))?;
    for line in
        ["CapabilityBoundingSet=", "AmbientCapabilities=", "NoNewPrivileges=yes", "ProtectSystem=strict", "User=nas"]
    {
        assert!(service.lines().any(|found| found == line), "nasd.service lacks '{line}'");
    }
    for (file, name) in [("nasd.socket", "http"), ("nasd-nfs.socket", "nfs")] {
        let socket = std::fs::read_to_string(dir.join(file))?;
        assert!(socket.contains(&format!("FileDescriptorName={name}\n")) && socket.contains("Service=nasd.service"));
        assert!(socket.contains("ListenStream=127.0.0.1:"), "{file} listens beyond loopback by default");
    }
    Ok(())
}
