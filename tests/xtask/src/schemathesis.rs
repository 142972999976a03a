//! The stage `api`: schemathesis makes requests from the OpenAPI document of a running box, legal and illegal ones, and checks
//! that the answers are those the document promises and that none is a 5xx.
//!
//! It comes from PyPI into a virtual environment in the target directory, once for each version.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::demo::device::Device;
use crate::program::{run, succeeds, target_dir};

/// The version that is installed.
const VERSION: &str = "4.32.5";
/// Time for making requests after the fixed cases; starting and the fixed cases come on top.
const FUZZING_SECONDS: &str = "60";
/// What every answer must hold.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance";
/// Calls that are left out: the first ends the token that all others need, the second has a stream as its body.
const LEFT_OUT: [&str; 2] = ["/v1/owner/logout", "/v1/tree/import"];
/// The token comes from the environment: arguments are for everybody to see.
const CONFIG: &str = "headers = { Authorization = \"Bearer ${NAS_OWNER_TOKEN}\" }\n";

/// Runs it on a box that is thrown away.
pub(crate) fn check() -> anyhow::Result<()> {
    let schemathesis = install()?;
    let dir = tempfile::Builder::new().prefix("api-").tempdir_in(target_dir()).context("making a place for the box")?;
    let mut device = Device::start(&dir.path().join("data"))?;
    let checked = fuzz(&schemathesis, &device, dir.path());
    let stopped = device.stop();
    checked.map_err(|error| error.context(format!("the box's log is kept in {}", dir.keep().display())))?;
    stopped
}

fn fuzz(schemathesis: &Path, device: &Device, dir: &Path) -> anyhow::Result<()> {
    let token = device.owner_token().context("reading the owner's token")?;
    let config = dir.join("schemathesis.toml");
    std::fs::write(&config, CONFIG).context("writing the configuration of schemathesis")?;
    let mut command = Command::new(schemathesis);
    command.arg("--config-file").arg(&config).arg("run").arg(format!("{}/v1/openapi.json", device.url()));
    command.args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--max-time", FUZZING_SECONDS]);
    command.args(["--max-examples", "20", "--request-timeout", "60", "--generation-database", "none"]);
    command.args(["--no-color", "--warnings", "off"]);
    for path in LEFT_OUT {
        command.args(["--exclude-path", path]);
    }
    run(command.env("NAS_OWNER_TOKEN", token.trim()).current_dir(dir))
}

/// The program, installed when it is not there yet.
fn install() -> anyhow::Result<PathBuf> {
    let home = target_dir().join(format!("schemathesis-{VERSION}"));
    let program = home.join("bin/schemathesis");
    if succeeds(Command::new(&program).arg("--version")) {
        return Ok(program);
    }
    std::fs::create_dir_all(target_dir()).context("creating the target directory")?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))
        .context("python3 with its venv module is needed; on Debian: apt-get install python3-venv")?;
    let package = format!("schemathesis=={VERSION}");
    run(Command::new(home.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check", &package]))
        .context("installing schemathesis from PyPI")?;
    Ok(program)
}
