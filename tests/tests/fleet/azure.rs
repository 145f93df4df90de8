//! The second tier in Azure's Blob Storage, as azurite, its maker's emulator, speaks it.
//!
//! The emulator is a package of npm with hundreds of others below it: nothing installs it unasked.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Origin, Request, free_port, skip};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::kit::{Nats, WAIT, page};
use crate::nats;
use crate::tier::{seen, start_with};

/// The account that azurite has unless told otherwise, and its key, which its manual names.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// Makes the container `bucket`: a request that is signed with the key of the account.
const MAKE_CONTAINER: &str = r"
const [account, key, port] = process.argv.slice(1);
const date = new Date().toUTCString();
const fields = { 'x-ms-date': date, 'x-ms-version': '2021-08-06' };
const lines = Object.entries(fields).map(([name, value]) => `${name}:${value}\n`).join('');
const resource = `/${account}/${account}/bucket\nrestype:container`;
const text = 'PUT' + '\n'.repeat(12) + lines + resource;
const hmac = require('crypto').createHmac('sha256', Buffer.from(key, 'base64'));
fields.Authorization = `SharedKey ${account}:${hmac.update(text).digest('base64')}`;
const url = `http://127.0.0.1:${port}/${account}/bucket?restype=container`;
const answer = fetch(url, { method: 'PUT', headers: fields });
answer.then(answer => process.exit(answer.status == 201 ? 0 : 1));
";

/// The emulator, with a container.
struct Azurite {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Azurite {
    /// Starts it; none where it is not installed.
    fn start() -> Result<Option<Azurite>> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = own.parent().context("a root")?;
        let named = std::env::var_os("AZURITE").map(PathBuf::from);
        let below = "target/tools/azurite/node_modules/.bin/azurite-blob";
        let program = named.unwrap_or_else(|| root.join(below));
        if !program.is_file() {
            skip(
                "azurite is not installed: `npm install --prefix target/tools/azurite \
                 azurite@3.35.0`",
            );
            return Ok(None);
        }
        let (port, dir) = (free_port()?, tempfile::tempdir()?);
        let child = Command::new(program)
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
            .args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"])
            .arg("--location")
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let azurite = Azurite {
            child,
            port,
            _dir: dir,
        };
        Deadline::after(WAIT)
            .poll(|| TcpStream::connect(("127.0.0.1", port)).ok())
            .context("azurite does not listen")?;
        let mut made = Command::new("node");
        made.args(["-e", MAKE_CONTAINER, ACCOUNT, KEY, &port.to_string()]);
        ensure!(made.status()?.success(), "the container is not made");
        Ok(Some(azurite))
    }

    fn tier(&self) -> String {
        format!(
            "az://bucket/a/prefix tier_endpoint=http://127.0.0.1:{}/{ACCOUNT} tier_timeout=3s",
            self.port
        )
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

#[test]
fn store_of_azure_keeps_copies_until_they_are_purged() -> Result<()> {
    let (nats, origin) = (nats!(), Origin::start()?);
    let Some(azurite) = Azurite::start()? else {
        return Ok(());
    };
    let account = [
        ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
        ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
    ];
    let start = |name: &str| start_with(name, &nats, &origin, (&azurite.tier(), &account));
    let a = start("a")?;
    for path in ["/x", "/y"] {
        origin.route(path, page("old"));
        a.write(path, &[])?;
        origin.route(path, page("new"));
    }
    let b = start("b")?;
    assert_eq!(b.seen("/x")?, seen("old", "MISS", "hit"));
    // Written over: what is there is of before the purge.
    let purged = b.client.send(&Request::new("PURGE", "/y"))?;
    assert_eq!(purged.status, 200);
    assert_eq!(b.seen("/y")?.0, "new");
    b.write("/y", &[])?;
    let c = start("c")?;
    assert_eq!(c.seen("/y")?, seen("new", "MISS", "hit"));
    assert_eq!(c.reads("fault")? + b.reads("fault")?, 0.0);
    assert_eq!(a.writes("fault")? + b.writes("fault")?, 0.0);
    Ok(())
}
