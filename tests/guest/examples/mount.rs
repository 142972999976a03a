//! Mounts an NFSv3 export of this machine in a guest and looks at it: `cargo run -p nas-guest --example mount -- PORT MOUNTPORT EXPORT [SCRIPT]`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, mount_port, export, script @ ..] = arguments.as_slice() else {
        return Err("usage: mount PORT MOUNTPORT EXPORT [SCRIPT]".into());
    };
    let guest = nas_guest::Guest::builder().boot()?;
    println!("booted in {:?}", guest.boot_time());
    let started = std::time::Instant::now();
    guest.mount_nfs(port.parse()?, mount_port.parse()?, export, "/mnt", "")?;
    println!("mounted in {:?}", started.elapsed());
    let script = script.first().map_or("grep nfs /proc/mounts; ls -la /mnt", String::as_str);
    let output = guest.run(script)?;
    println!("{}status {}", output.text(), output.status);
    guest.unmount("/mnt")?;
    Ok(())
}
