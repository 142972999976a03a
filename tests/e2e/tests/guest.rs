//! The kernel's own NFSv3 client, in an emulated machine, on a real box: what programs see that know nothing of us.
//! FINDINGS §5 tells where most of these cases come from.
//!
//! Two machines are booted, one for each test. A test is a row of sections; each says its goal.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use nas_e2e::{Leased, PATIENCE, TestBox, binary, refused};
use nas_guest::{Builder, Error, Guest, HOST_FROM_GUEST, shell_quote};
use nas_testkit::{Scratch, is_root, or_skip, wait_until};
use nas_types::lease::{Action, View};
use nas_types::verb::{BranchShow, LeaseRevoke, RecordVerify};

/// Files of the directory whose listing needs many replies.
const MANY: usize = 2_500;

/// A box and a machine that mounts it. In the machine, user `cleo` (1000) works.
struct World {
    // First: a machine that still writes must go before its server.
    guest: Guest,
    nas: TestBox,
}

impl World {
    /// `None` where no guest can be had (no emulator, no kernel): the test is skipped; CI forbids that.
    fn start(builder: Builder, more: &[&str]) -> Result<Option<Self>> {
        let guest = match builder.boot() {
            Err(error @ (Error::NoProgram { .. } | Error::NoKernelPackage { .. } | Error::Command { .. })) => {
                return Ok(or_skip::<Self, _>(Err(error)));
            }
            other => other?,
        };
        guest.run_ok("echo 'cleo::1000:1000::/tmp:/bin/sh' > /etc/passwd")?;
        let nas = TestBox::start_with(more)?;
        let source = Scratch::new("source");
        source.write("launch/notes.md", "# Notes\n\nold line\n");
        source.write("secret/key", "hidden\n");
        source.write("launch-evil/file", "hidden too\n");
        for number in 0..MANY {
            source.write(format!("launch/many/file-{number:04}"), "");
        }
        nas.import(source.path(), "/shared").map_err(refused)?;
        Ok(Some(Self { guest, nas }))
    }

    /// Mounts a view for cleo.
    fn mount(&self, leased: &Leased, path: &str, view: View, dir: &str, options: &str) -> Result<()> {
        let export = self.nas.export(leased, path, view)?;
        let (ticket, rest) = export[1..].split_once('/').unwrap_or((&export[1..], ""));
        let port = self.nas.nfs().port();
        Ok(self.guest.mount_nfs(port, port, &format!("/{ticket}+1000+1000/{rest}"), dir, options)?)
    }

    /// A shell script that has to succeed, every line of it, as user cleo.
    fn cleo(&self, script: &str) -> Result<String> {
        Ok(self.guest.run_ok(&as_cleo(script))?)
    }

    /// What a program says that has to fail.
    fn fails(&self, script: &str) -> Result<String> {
        let output = self.guest.run(&as_cleo(script))?;
        ensure!(output.status != 0, "this went well: {script}\n{}", output.text());
        Ok(output.text())
    }

    fn is_sound(&mut self) -> Result<()> {
        ensure!(self.nas.is_running(), "nasd is gone; its log:\n{}", self.nas.log());
        ensure!(!self.nas.log().contains("panic"), "nasd panicked:\n{}", self.nas.log());
        ensure!(self.nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok, "the records are broken");
        Ok(())
    }
}

fn as_cleo(script: &str) -> String {
    format!("su cleo -c {}", shell_quote(&format!("set -e; export PATH=/bin:/sbin:/usr/bin:/usr/sbin\n{script}")))
}

/// The git of this machine; wrappers in scripts are passed over.
fn git() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_program = |file: &PathBuf| std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
    std::env::split_paths(&path).map(|dir| dir.join("git")).find(is_program)
}

/// Goal: programs find a file system like any other on a mount, see nothing outside their lease and touch nobody
/// else's branch; what a person approves is what they did.
#[test]
fn programs_find_a_file_system() -> Result<()> {
    let mut builder = Guest::builder().mem(384).program(binary("nas")?);
    if let Some(git) = git() {
        builder = builder.program(git);
    }
    let Some(mut world) = World::start(builder, &[])? else { return Ok(()) };
    let cleo = world.nas.full_lease("/shared/launch").map_err(refused)?;
    world.mount(&cleo, "/shared/launch", View::Branch, "/work", "")?;
    big_file(&world, &cleo).context("a big file")?;
    names(&world).context("names")?;
    ways_to_save(&world).context("ways to save")?;
    odd_names(&world).context("odd names")?;
    long_listing(&world, &cleo).context("a long listing")?;
    git_works(&world).context("git")?;
    hidden(&world, &cleo).context("what is hidden")?;
    parallel_branches(&world, &cleo).context("two branches at once")?;
    quota(&world).context("quota")?;
    tickets(&world, &cleo).context("tickets")?;
    nas_mount(&world, &cleo).context("nas mount")?;
    approved(&world, &cleo).context("propose and approve")?;
    world.is_sound()
}

/// Goal: bytes arrive, and come back when nothing is cached.
fn big_file(world: &World, cleo: &Leased) -> Result<()> {
    let sum = world.cleo(
        "dd if=/dev/urandom of=/tmp/big bs=1M count=8 2>/dev/null; cp /tmp/big /work/big; sync; sha256sum < /tmp/big",
    )?;
    world.guest.drop_caches()?;
    world.cleo("cmp /tmp/big /work/big; test $(stat -c %s /work/big) = 8388608")?;
    let mut other = world.nas.mount(cleo, "/shared/launch")?;
    let local = Scratch::new("sum");
    std::fs::write(local.join("big"), other.read_file("big")?)?;
    let seen = Command::new("sha256sum").stdin(std::fs::File::open(local.join("big"))?).output()?;
    ensure!(String::from_utf8_lossy(&seen.stdout).trim() == sum.trim(), "the server has other bytes");
    world.cleo("rm /work/big")?;
    Ok(())
}

/// Goal: every operation on names does what it does on a local disk.
fn names(world: &World) -> Result<()> {
    world.cleo(
        r#"mkdir /work/n; cd /work/n
        echo one > a; mv a b; test ! -e a; test "$(cat b)" = one
        mkdir -p d/e/f; ln -s ../b d/link; test "$(readlink d/link)" = ../b; test "$(cat d/link)" = one
        ln b second; test "$(stat -c %h b)" = 2; echo two >> second; test "$(cat b)" = "$(printf 'one\ntwo')"
        rm b; test "$(cat second)" = "$(printf 'one\ntwo')"; test "$(stat -c %h second)" = 1
        chmod 750 second; test "$(stat -c '%a %u %g' second)" = '750 1000 1000'
        truncate -s 3 second; test "$(cat second)" = one; truncate -s 100000 second; test "$(wc -c < second)" = 100000
        echo replaced > other; mv other second; test "$(cat second)" = replaced
        mkdir full empty; : > full/x; if mv empty full/x 2>/dev/null; then exit 1; fi
        if rmdir full 2>/dev/null; then exit 1; fi
        mv full d/e/moved; test -e d/e/moved/x; if mv d d/e/inside 2>/dev/null; then exit 1; fi
        touch -t 202001020304.05 second; test "$(stat -c %Y second)" = 1577934245
        mkfifo pipe; test -p pipe; rm pipe
        cd /work; rm -rf n; test ! -e n"#,
    )?;
    Ok(())
}

/// Goal: the ways in which programs save files: cut and write, read then write in place, a new file that is read-only
/// at once (git), O_EXCL, over a file that is open, unlinked while open, in a directory that was renamed.
fn ways_to_save(world: &World) -> Result<()> {
    world.cleo(
        r#"mkdir /work/s; cd /work/s
        echo a long first version > f; echo short > f; test "$(cat f)" = short
        printf 'head\nbody\n' > f; exec 3<>f; read line <&3; test $line = head; printf 'BODY\n' >&3; exec 3>&-
        printf 'XX' | dd of=f conv=notrunc 2>/dev/null; test "$(head -1 f)" = XXad; test "$(wc -c < f)" -ge 10
        (umask 222; printf 'made read-only' > ro); test "$(stat -c %a ro)" = 444; test "$(cat ro)" = 'made read-only'
        if (echo no > ro) 2>/dev/null; then exit 1; fi
        (set -C; echo mine > excl); if (set -C; echo theirs > excl) 2>/dev/null; then exit 1; fi; test "$(cat excl)" = mine
        exec 4<f; echo new > g; mv g f; test "$(head -1 <&4)" = XXad; test "$(cat f)" = new; exec 4<&-
        exec 5<>f; rm f; echo after >&5; exec 5>&-; test ! -e f
        mkdir here; cd here; mv ../here ../there; echo in > file; mkdir sub; cd -P sub; echo deep > file
        mv /work/s/there /work/s/again; test "$(cat file)" = deep; test "$(cat /work/s/again/file)" = in
        cd /work; rm -rf s; test ! -e s"#,
    )?;
    // What the kernel renames instead of unlinking an open file (.nfs…) is gone with the descriptor.
    ensure!(world.cleo("find /work -name '.nfs*' | wc -l")?.trim() == "0", "silly renames stay");
    Ok(())
}

/// Goal: names are bytes, up to 255 of them.
fn odd_names(world: &World) -> Result<()> {
    world.cleo(
        r#"mkdir /work/o; cd /work/o
        for name in "$(printf 'caf\351')" "$(printf 'cafe\314\201')" "$(printf 'caf\303\251')" 'two words' "$(printf 'new\nline')" README readme; do
            printf %s "$name" > "$name"
        done
        test "$(ls -1A | grep -c .)" -ge 7
        for name in *; do test "$(cat "$name")" = "$name"; done
        long=$(printf '%0255d' 0); echo long > $long; test "$(ls | grep -c "^$long\$")" = 1
        if (: > 0$long) 2>/tmp/why; then exit 1; fi; grep -q 'too long' /tmp/why
        cd /work; rm -rf o; test ! -e o"#,
    )?;
    Ok(())
}

/// Goal: a directory of 2,500 entries is listed once each, with READDIRPLUS and with READDIR, and a removal while it is
/// read removes all.
fn long_listing(world: &World, cleo: &Leased) -> Result<()> {
    world.mount(cleo, "/shared/launch", View::Branch, "/plain", "nordirplus")?;
    world.guest.drop_caches()?;
    for dir in ["/work", "/plain"] {
        let listed =
            format!("cd {dir}/many; ls -1 | sort > /tmp/l; test $(uniq < /tmp/l | wc -l) = {MANY}; wc -l < /tmp/l");
        ensure!(world.cleo(&listed)?.trim() == MANY.to_string(), "{dir}: not once each");
    }
    let left = world.cleo(
        "cd /plain/many; find . -name 'file-1*' -exec rm {} +; find . -type f | wc -l; ls -l | grep -c file-; rm -rf /work/many; test ! -e /work/many; echo gone",
    )?;
    ensure!(left.split_whitespace().eq(["1500", "1500", "gone"]), "{left}");
    world.guest.unmount("/plain")?;
    Ok(())
}

/// Goal: git works on a mount.
fn git_works(world: &World) -> Result<()> {
    if git().is_none() {
        or_skip::<(), _>(Err("there is no git"));
        return Ok(());
    }
    let status = world.cleo(
        r#"export HOME=/tmp; git config --global user.name Cleo; git config --global user.email cleo@example.org
        git config --global init.defaultBranch main; git config --global safe.directory '*'
        mkdir /work/repo; cd /work/repo; git init -q; for i in 1 2 3 4 5 6 7 8; do mkdir -p d$i; echo $i > d$i/file; done
        git add .; git commit -qm first; echo more >> d1/file; git mv d2/file d2/renamed; git rm -q d3/file; git commit -qam second
        git checkout -q -b side HEAD~1; git diff --stat main | tail -1; git checkout -q main; git gc -q; git fsck --strict
        git log --oneline | wc -l; git status --porcelain | wc -l"#,
    )?;
    ensure!(status.split_whitespace().rev().take(2).eq(["0", "2"]), "{status}");
    world.cleo("rm -rf /work/repo; test ! -e /work/repo")?;
    Ok(())
}

/// Goal: what is outside the lease is not there: not in listings, not by name; nothing can be put beside it.
fn hidden(world: &World, cleo: &Leased) -> Result<()> {
    world.mount(cleo, "/", View::Branch, "/all", "")?;
    ensure!(world.cleo("ls -A /all; ls -A /all/shared")?.split_whitespace().eq(["shared", "launch"]));
    for path in ["secret", "secret/key", "launch-evil", "launch-evil/file", "nothing"] {
        let said = world.fails(&format!("cat /all/shared/{path}"))?;
        ensure!(said.contains("No such file"), "{path}: {said}");
    }
    for deed in [
        "mkdir /all/shared/launch-evil",
        "mkdir /all/shared/new",
        "echo x > /all/shared/secret",
        "mv /all/shared/launch/notes.md /all/shared/",
    ] {
        let said = world.fails(deed)?;
        ensure!(said.contains("Permission denied"), "{deed}: {said}");
    }
    let said = world.fails("mv /all/shared/launch /all/shared/lunch")?;
    ensure!(said.contains("Permission denied"), "{said}");
    world.cleo("ln -s /etc/passwd /work/passwd; ln -s ../secret/key /work/key; test -L /work/passwd")?;
    world.fails("cat /all/shared/launch/key")?;
    // The link leads into the machine of the reader, never into the server's.
    world.cleo("cmp /work/passwd /etc/passwd; rm /work/passwd /work/key")?;
    world.guest.unmount("/all")?;
    Ok(())
}

/// Goal: two branches mounted by one machine at once never see each other's bytes (branchfs 28).
fn parallel_branches(world: &World, cleo: &Leased) -> Result<()> {
    let dora = world.nas.full_lease("/shared/launch").map_err(refused)?;
    world.mount(&dora, "/shared/launch", View::Branch, "/dora", "")?;
    let writer = |dir: &str| {
        as_cleo(&format!(
            "mkdir {dir}/p; for i in $(seq 40); do echo {dir} $i > {dir}/p/same; cp {dir}/p/same {dir}/p/f$i; done"
        ))
    };
    let (one, two) = (world.guest.start(&writer("/work"))?, world.guest.start(&writer("/dora"))?);
    ensure!(one.wait()?.status == 0 && two.wait()?.status == 0, "a writer failed");
    world.guest.drop_caches()?;
    for (leased, dir) in [(cleo, "/work"), (&dora, "/dora")] {
        let seen = world.cleo(&format!(
            "for i in $(seq 40); do test \"$(cat {dir}/p/f$i)\" = \"{dir} $i\"; done; ls {dir}/p | wc -l"
        ))?;
        ensure!(seen.trim() == "41", "{dir}: {seen}");
        let mut server = world.nas.mount(leased, "/shared/launch")?;
        for name in server.list("p")? {
            let content = server.read_file([b"p/", name.as_slice()].concat())?;
            ensure!(content.starts_with(dir.as_bytes()), "{dir}: foreign bytes in {name:?}");
        }
    }
    world.cleo("rm -r /work/p")?;
    world.guest.unmount("/dora")?;
    Ok(())
}

/// Goal: a spent quota is told as such, buffered writes do not overshoot it, and removing makes room (ganesha 42).
fn quota(world: &World) -> Result<()> {
    let create = nas_types::verb::LeaseCreate {
        tree: None,
        role: Some("cleo".parse()?),
        paths: vec!["/shared/launch/**".to_owned()],
        actions: Action::ALL.to_vec(),
        ttl_seconds: None,
        purpose: None,
        quota_bytes: Some(2 << 20),
    };
    let created = world.nas.as_owner(&create).map_err(refused)?;
    let small = Leased { info: created.lease, token: created.token };
    world.mount(&small, "/shared/launch", View::Branch, "/small", "")?;
    let said = world.fails("dd if=/dev/zero of=/small/big bs=64k count=64 conv=fsync")?;
    ensure!(said.to_lowercase().contains("quota"), "{said}");
    let branch = world.nas.call(Some(&small.token), &BranchShow::default()).map_err(refused)?;
    // The automatic commit may have added its objects since: a few KiB of compressed zeros, and nothing of the file.
    ensure!(branch.used_bytes <= branch.quota_bytes + (256 << 10), "{} bytes are used", branch.used_bytes);
    // Of the file itself the box took no more than the quota, whatever the kernel still believes of its size.
    let kept = world.nas.mount(&small, "/shared/launch")?.find("big")?;
    ensure!(kept.attr.as_ref().is_some_and(|attr| attr.size <= branch.quota_bytes), "{kept:?}");
    world.cleo("rm /small/big; dd if=/dev/zero of=/small/less bs=64k count=16 conv=fsync 2>/dev/null; test $(stat -c %s /small/less) = 1048576")?;
    world.guest.unmount("/small")?;
    Ok(())
}

/// Goal: a ticket mounts once; a wrong one never; a file is no place to mount.
fn tickets(world: &World, cleo: &Leased) -> Result<()> {
    let port = world.nas.nfs().port();
    let mount = |export: &str| world.guest.mount_nfs(port, port, export, "/once", "");
    let export = world.nas.export(cleo, "/shared/launch", View::Branch)?;
    mount(&export)?;
    world.guest.unmount("/once")?;
    let Err(twice) = mount(&export) else { bail!("a ticket mounted twice") };
    ensure!(matches!(&twice, Error::Status { output, .. } if output.contains("No such file")), "{twice}");
    ensure!(mount("/tkt_0123/shared/launch").is_err(), "a made-up ticket");
    ensure!(mount(&world.nas.export(cleo, "/shared/secret", View::Branch)?).is_err(), "a hidden directory");
    ensure!(mount(&world.nas.export(cleo, "/shared/launch/notes.md", View::Branch)?).is_err(), "a file");
    Ok(())
}

/// Goal: the command line of `nas mount` is one that the kernel understands, and its files are the agent's.
fn nas_mount(world: &World, cleo: &Leased) -> Result<()> {
    let (http, token) = (world.nas.http().port(), cleo.token.reveal());
    // Without mount.nfs in the machine it prints what to run; only what that program would add is added.
    let line = world.guest.run(&format!(
        "mkdir -p /home/work && chown 1000:1000 /home/work; NAS_TOKEN={token} nas --url http://{HOST_FROM_GUEST}:{http} mount /home/work"
    ))?;
    let line = line.text();
    let command =
        line.lines().find_map(|line| line.trim().strip_prefix("sudo mount ")).with_context(|| line.clone())?;
    let options = format!(",addr={HOST_FROM_GUEST},mountaddr={HOST_FROM_GUEST} {HOST_FROM_GUEST}:/");
    let command = command.replacen(&format!(" {HOST_FROM_GUEST}:/"), &options, 1);
    world.guest.run_ok(&format!("mount -i {command}"))?;
    world.cleo("test \"$(stat -c %u /home/work/notes.md)\" = 1000; echo mine > /home/work/by-cleo; cat /work/by-cleo; rm /home/work/by-cleo")?;
    let listed = world.guest.run_ok("grep ' /home/work nfs ' /proc/mounts")?;
    ensure!(listed.contains("nosuid") && listed.contains("nodev"), "{listed}");
    world.guest.unmount("/home/work")?;
    Ok(())
}

/// Goal: the demo's flow: main shows what was approved, and nothing of it before (SPEC L0.1, L1.5).
fn approved(world: &World, cleo: &Leased) -> Result<()> {
    world.mount(cleo, "/shared/launch", View::Main, "/main", "")?;
    world.cleo("sed -i 's/old/new/' /work/notes.md; mkdir /work/draft; echo ready > /work/draft/release.md; chmod 755 /work/draft/release.md; sync")?;
    ensure!(world.cleo("tail -1 /main/notes.md")? == "old line");
    for (deed, why) in
        [("mkdir /main/new", "Read-only file system"), ("echo direct > /main/notes.md", "Permission denied")]
    {
        let said = world.fails(deed)?;
        ensure!(said.contains(why), "{deed}: {said}");
    }
    let proposed = world.nas.propose(cleo).map_err(refused)?;
    let card = world.nas.card(&proposed).map_err(refused)?;
    ensure!(card.diff.contains("+new line"), "{}", card.diff);
    ensure!(world.nas.approve(&card).map_err(refused)?.state == "approved");
    world.guest.drop_caches()?;
    let seen = world
        .cleo("tail -1 /main/notes.md; cat /main/draft/release.md; stat -c %a /main/draft/release.md; ls /main")?;
    ensure!(seen == "new line\nready\n755\ndraft\nnotes.md", "{seen}");
    world.guest.unmount("/main")?;
    Ok(())
}

/// Goal: a mount outlives its server: what was written before and after a `kill -9` is there, also through handles of
/// before. The end of a lease is told as SPEC MOUNT-5 says.
#[test]
fn a_mount_outlives_its_server() -> Result<()> {
    let more = ["--read-grace-ms", "600000"];
    let Some(mut world) = World::start(Guest::builder(), &more)? else { return Ok(()) };
    // The one whose end is waited for at the end of the test.
    let short = world.nas.lease(&["/shared/launch/**"], &Action::ALL, Some(30)).map_err(refused)?;
    world.mount(&short, "/shared/launch", View::Branch, "/short", "")?;
    world.cleo("echo in time > /short/notes.md; sync")?;
    let cleo = world.nas.full_lease("/shared/launch").map_err(refused)?;
    world.mount(&cleo, "/shared/launch", View::Branch, "/work", "")?;
    killed_while_written(&mut world, &cleo).context("killed while written")?;
    old_handles(&mut world, &cleo).context("old handles")?;
    expired(&world).context("an expired lease")?;
    revoked(&world, &cleo).context("a revoked lease")?;
    world.is_sound()
}

/// Goal: programs that write while nasd is killed see nothing but a pause, and every byte is there (RFC 1813 §4.8).
fn killed_while_written(world: &mut World, cleo: &Leased) -> Result<()> {
    let script = "mkdir /work/k; dd if=/dev/urandom of=/tmp/k bs=64k count=16 2>/dev/null
        for i in $(seq 30); do cp /tmp/k /work/k/f$i; mv /work/k/f$i /work/k/g$i; done; sync";
    let writing = world.guest.start(&as_cleo(script))?;
    for some in [5, 15] {
        let mut seen = world.nas.mount(cleo, "/shared/launch")?;
        let begun =
            wait_until(PATIENCE, || seen.find(format!("k/f{some}")).is_ok() || seen.find(format!("k/g{some}")).is_ok());
        ensure!(begun, "the writer does not get on");
        world.nas.kill();
        world.nas.boot()?;
    }
    let written = writing.wait()?;
    ensure!(written.status == 0, "{}", written.text());
    world.guest.drop_caches()?;
    world.cleo("for i in $(seq 30); do cmp /tmp/k /work/k/g$i; done; test $(ls /work/k | wc -l) = 30")?;
    Ok(())
}

/// Goal: a program that has a file open while its directory is renamed by somebody else, the server is killed and
/// forgets every cache, writes on to the same file, and nothing is lost (hf-mount 177).
fn old_handles(world: &mut World, cleo: &Leased) -> Result<()> {
    let script = "mkdir -p /work/old/sub; cd /work/old/sub; echo before > file; sync; exec 3>>file
        : > /tmp/open; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo after >&3; exec 3>&-; echo made > beside; cat file beside";
    let writing = world.guest.start(&as_cleo(script))?;
    world.guest.run_ok("while [ ! -e /tmp/open ]; do sleep 0.1; done")?;
    let mut other = world.nas.mount(cleo, "/shared/launch")?;
    other.rename_path("old", "renamed")?;
    world.nas.kill();
    if is_root() {
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    world.nas.boot()?;
    world.guest.run_ok("touch /tmp/go")?;
    let written = writing.wait()?;
    ensure!(written.status == 0 && written.text() == "before\nafter\nmade\n", "{}", written.text());
    let mut other = world.nas.mount(cleo, "/shared/launch")?;
    ensure!(other.read_file("renamed/sub/file")? == b"before\nafter\n");
    ensure!(other.read_file("renamed/sub/beside")? == b"made\n");
    ensure!(other.find("old").is_err(), "the old name is there again");
    Ok(())
}

/// Goal: after the end of a lease changes fail as stale once for each handle, then as read-only; reads go on for the
/// grace. (The kernel looks a stale name up again by itself, so programs may see only the second answer.)
fn expired(world: &World) -> Result<()> {
    let says = |deed: &str, words: &[&str]| {
        let mut said = String::new();
        let refused = wait_until(PATIENCE, || {
            said = world.guest.run(&as_cleo(deed)).map_or_else(|error| error.to_string(), |output| output.text());
            words.iter().any(|word| said.contains(word))
        });
        ensure!(refused, "{deed}: {said}");
        Ok(())
    };
    says("echo in time > /short/notes.md && sync", &["Stale file handle", "Read-only file system"])?;
    says("echo late > /short/notes.md && sync", &["Read-only file system"])?;
    says("mkdir /short/new", &["Read-only file system"])?;
    says("rm /short/notes.md", &["Read-only file system"])?;
    world.guest.drop_caches()?;
    let read = world.cleo("cat /short/many/file-0001; cat /short/notes.md")?;
    ensure!(read == "in time", "reads do not go on: {read}");
    world.guest.run_ok("umount -l /short")?;
    Ok(())
}

/// Goal: a revoked lease gives nothing any more, at once.
fn revoked(world: &World, cleo: &Leased) -> Result<()> {
    world.cleo("cat /work/notes.md; echo x > /work/x; sync")?;
    world.nas.as_owner(&LeaseRevoke { lease: cleo.info.lease, why: None }).map_err(refused)?;
    world.guest.drop_caches()?;
    for deed in ["cat /work/notes.md", "ls /work", "echo y > /work/x", "mkdir /work/y"] {
        let said = world.fails(deed)?;
        ensure!(said.contains("tale"), "{deed}: {said}");
    }
    world.guest.run_ok("umount -l /work")?;
    Ok(())
}
