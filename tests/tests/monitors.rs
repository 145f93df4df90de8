//! The definitions in `contrib` for Icinga 2, Nagios and Zabbix: taken by these programs, and run
//! by them against a server.
//!
//! In the definitions the binary under test stands in place of the installed one, which sudo runs.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, binary, skip};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Time for a monitor to start and to check everything once.
const WAIT: Duration = Duration::from_secs(60);

const CONF: &str = "
    proxy_cache_path %%DIR%%/one keys_zone=pond:1m max_size=6m memory=0 scrub=1d;
    upstream pool { server %%ORIGIN%%; server localhost:%%DEAD%% down; }
    server {
        listen 127.0.0.1:%%PORT%%;
        access_log %%DIR%%/access.log;
        location / { proxy_pass http://pool; proxy_cache pond; proxy_cache_valid 200 1h; }
    }";

fn contrib(path: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib");
    fs::read_to_string(root.join(path)).with_context(|| path.to_string())
}

/// Replaces a text that must be there.
fn replaced(text: &str, what: &str, by: &str) -> Result<String> {
    ensure!(text.contains(what), "there is no {what}");
    Ok(text.replace(what, by))
}

fn start() -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("here"));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .value("DEAD", "9")
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    // One miss, and enough hits.
    for _ in 0..10 {
        client.get("/a")?;
    }
    let ready = || {
        let mut command = Command::new(binary(Kind::Millpond)?);
        command
            .args(["sensor", "health", "--socket"])
            .arg(socket(&proxy));
        command.status().ok().filter(|status| status.success())
    };
    Deadline::after(WAIT).poll(ready).context("never ready")?;
    Ok((origin, proxy))
}

fn socket(proxy: &Proxy) -> PathBuf {
    proxy.dir().join("server.control")
}

/// The options that name the server, in place of the usual ones.
fn options(proxy: &Proxy) -> String {
    let conf = proxy.dir().join("nginx.conf");
    format!(
        "--socket {} --conf {}",
        socket(proxy).display(),
        conf.display()
    )
}

/// A monitor in a process group of its own, which is ended with it.
struct Monitor(Child);

impl Drop for Monitor {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let ends = || self.0.try_wait().ok().flatten();
        if Deadline::after(WAIT).poll(ends).is_none() {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    let status = command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok()
}

/// Sensors and the states that the server of these tests has.
const EXPECTED: [(&str, &str, &str); 12] = [
    ("process", "0", "PROCESS OK: process "),
    ("health", "0", "HEALTH OK: ready"),
    ("reload", "0", "RELOAD OK: "),
    ("hit-ratio", "0", "HIT-RATIO OK: "),
    ("origin-errors", "0", "ORIGIN-ERRORS OK: 0 of "),
    ("peer", "0", "PEER OK: 1 peers"),
    ("zone", "0", "ZONE OK: pond "),
    ("disk", "0", "DISK OK: 1 disks"),
    ("space", "", "SPACE "),
    ("scrub", "0", "SCRUB OK: 1 disks"),
    ("dns", "0", "DNS OK: 1 names"),
    ("log", "0", "LOG OK: 0 of "),
];

/// Checks what a monitor has seen: state and line by sensor.
fn check(seen: &BTreeMap<String, (String, String)>) {
    for (sensor, state, start) in EXPECTED {
        let (is, line) = &seen[&format!("millpond-{sensor}")];
        // How much room this machine has is not the test's matter.
        assert!(state.is_empty() || is == state, "{sensor}: {is} {line}");
        assert!(line.starts_with(start), "{sensor}: {line}");
    }
}

#[test]
fn icinga_runs_every_service() -> Result<()> {
    if !is_installed("icinga2") || !rustix::process::geteuid().is_root() {
        skip("icinga2 is not installed, or this is not root");
        return Ok(());
    }
    let (_origin, proxy) = start()?;
    let dir = tempfile::tempdir()?;
    write_icinga(&proxy, dir.path())?;
    let command = |words: &[&str]| icinga(dir.path(), words);
    let output = command(&["-C"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}");
    let mut run = command(&[]);
    run.stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let _monitor = Monitor(run.spawn()?);
    let wanted = EXPECTED.len() + ["latency", "clock"].len();
    let all = || Some(icinga_results(dir.path())).filter(|seen| seen.len() == wanted);
    let found = Deadline::after(WAIT).poll(all);
    let seen = found.with_context(|| format!("{:?}", icinga_results(dir.path())))?;
    check(&seen);
    assert!(
        seen["millpond-latency"]
            .1
            .starts_with("LATENCY OK: status 200 "),
        "{seen:?}"
    );
    assert!(
        seen["millpond-clock"].1.starts_with("CLOCK OK: "),
        "{seen:?}"
    );
    Ok(())
}

/// Writes the definitions, and a machine that they are for.
fn write_icinga(proxy: &Proxy, dir: &Path) -> Result<()> {
    let at = dir.display().to_string();
    let program = binary(Kind::Millpond)
        .context("no binary")?
        .display()
        .to_string();
    let sudo = "\"/usr/bin/sudo\", \"-n\", \"-u\", \"millpond\", \"/usr/bin/millpond\"";
    let shipped = replaced(
        &contrib("icinga2/millpond.conf")?,
        sudo,
        &format!("\"{program}\""),
    )?;
    let text = replaced(&shipped, "check_interval = 1m", "check_interval = 1s")?;
    fs::write(dir.join("millpond.conf"), text)?;
    let (socket, conf) = (socket(proxy), proxy.dir().join("nginx.conf"));
    let (socket, conf) = (socket.display(), conf.display());
    let (port, log) = (proxy.port(), proxy.dir().join("access.log"));
    let own = format!(
        "include <itl>\nobject CheckerComponent \"checker\" {{}}\n\
         object PerfdataWriter \"p\" {{\n\
           service_perfdata_path = \"{at}/perf\"\n service_temp_path = \"{at}/temp\"\n\
           host_perfdata_path = \"{at}/hperf\"\n host_temp_path = \"{at}/htemp\"\n\
           rotation_interval = 1s\n service_format_template = \
           \"$service.name$\\t$service.state_id$\\t$service.output$\\t$service.perfdata$\"\n}}\n\
         object Host \"edge\" {{\n check_command = \"dummy\"\n vars.millpond = true\n\
           vars.millpond_socket = \"{socket}\"\n vars.millpond_conf = \"{conf}\"\n\
           vars.millpond_page = \"http://127.0.0.1:{port}/a\"\n\
           vars.millpond_access_log = \"{}\"\n}}\ninclude \"{at}/millpond.conf\"\n",
        log.display()
    );
    fs::write(dir.join("own.conf"), own)?;
    Ok(())
}

/// Icinga, with everything in one folder.
fn icinga(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("icinga2");
    command.arg("daemon").args(words);
    command.arg("-c").arg(dir.join("own.conf"));
    command.args(["-DRunAsUser=root", "-DRunAsGroup=root"]);
    for name in [
        "DataDir",
        "InitRunDir",
        "LogDir",
        "CacheDir",
        "SpoolDir",
        "ConfigDir",
    ] {
        command.arg(format!("-D{name}={}", dir.display()));
    }
    command
}

/// Results that Icinga has written: state and line with values, by service.
fn icinga_results(dir: &Path) -> BTreeMap<String, (String, String)> {
    let mut seen = BTreeMap::new();
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    for file in files.filter(|it| it.file_name().to_string_lossy().starts_with("perf")) {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            if let [name, state, output, values] = words.as_slice() {
                let line = format!("{output} | {values}");
                seen.insert(name.to_string(), (state.to_string(), line));
            }
        }
    }
    seen
}

/// Objects that a Nagios needs besides: a machine, and somebody to be told.
const NAGIOS: &str = "
define command {
    command_name check_up
    command_line /bin/true
}
define timeperiod {
    timeperiod_name 24x7
    alias always
    sunday 00:00-24:00
}
define contact {
    contact_name nobody
    host_notifications_enabled 0
    service_notifications_enabled 0
    host_notification_period 24x7
    service_notification_period 24x7
    host_notification_commands check_up
    service_notification_commands check_up
}
define contactgroup {
    contactgroup_name admins
    members nobody
}
define host {
    host_name edge
    address 127.0.0.1
    check_command check_up
    max_check_attempts 1
    check_period 24x7
    notification_period 24x7
    contact_groups admins
    hostgroups millpond-servers
}
";

#[test]
fn nagios_runs_every_service() -> Result<()> {
    if !is_installed("nagios4") || !rustix::process::geteuid().is_root() {
        skip("nagios4 is not installed, or this is not root");
        return Ok(());
    }
    let (_origin, proxy) = start()?;
    let dir = tempfile::tempdir()?;
    let at = dir.path().display().to_string();
    let program = binary(Kind::Millpond)
        .context("no binary")?
        .display()
        .to_string();
    let shipped = contrib("nagios/millpond.cfg")?;
    let sudo = "/usr/bin/sudo -n -u millpond /usr/bin/millpond sensor $ARG1$";
    let command = format!("{program} sensor $ARG1$ {}", options(&proxy));
    let called = replaced(&shipped, sudo, &command)?;
    let log = proxy.dir().join("error.log").display().to_string();
    let text = replaced(&called, "/var/log/millpond/error.log", &log)?;
    fs::write(dir.path().join("millpond.cfg"), text)?;
    let names = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
    ];
    let days: String = names
        .iter()
        .map(|day| format!("    {day} 00:00-24:00\n"))
        .collect();
    let own = NAGIOS.replace(
        "    sunday 00:00-24:00\n",
        &format!("    sunday 00:00-24:00\n{days}"),
    );
    fs::write(dir.path().join("own.cfg"), own)?;
    for folder in ["spool", "temp"] {
        fs::create_dir(dir.path().join(folder))?;
    }
    let main = format!(
        "cfg_file={at}/own.cfg\ncfg_file={at}/millpond.cfg\nlog_file={at}/nagios.log\n\
         object_cache_file={at}/objects.cache\nstatus_file={at}/status.dat\n\
         state_retention_file={at}/retention.dat\nstatus_update_interval=1\n\
         lock_file={at}/nagios.lock\ntemp_file={at}/nagios.tmp\ntemp_path={at}/temp\n\
         check_result_path={at}/spool\ncommand_file={at}/nagios.cmd\nquery_socket={at}/nagios.qh\n\
         nagios_user=root\nnagios_group=root\ncheck_external_commands=0\n\
         service_inter_check_delay_method=n\nillegal_macro_output_chars=`~$&|'\"<>\n"
    );
    let path = dir.path().join("nagios.cfg");
    fs::write(&path, main)?;
    let output = Command::new("nagios4").arg("-v").arg(&path).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && said.contains("Total Warnings: 0"),
        "{said}"
    );
    let mut run = Command::new("nagios4");
    run.arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let _monitor = Monitor(run.spawn()?);
    let status = dir.path().join("status.dat");
    let all = || Some(nagios_results(&status)).filter(|seen| seen.len() == EXPECTED.len());
    let seen = Deadline::after(WAIT).poll(all);
    check(&seen.with_context(|| format!("{:?}", nagios_results(&status)))?);
    Ok(())
}

/// Results that Nagios has written: state and line, by service that was checked.
fn nagios_results(path: &Path) -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut seen = BTreeMap::new();
    for block in text.split("servicestatus {").skip(1) {
        let value = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.trim().split_once('='));
            let found = lines.find(|(known, _)| *known == name);
            found
                .map(|(_, value)| value.to_string())
                .unwrap_or_default()
        };
        if value("has_been_checked") == "1" {
            let seen_here = (value("current_state"), value("plugin_output"));
            seen.insert(value("service_description"), seen_here);
        }
    }
    seen
}

#[test]
fn zabbix_template_has_what_each_of_its_keys_gives() -> Result<()> {
    let program = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";
    let python = Command::new("python3").args(["-c", "import yaml"]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        skip("there is no python3 with yaml");
        return Ok(());
    }
    let (_origin, proxy) = start()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/zabbix/millpond.yaml");
    let mut convert = Command::new("python3");
    convert.args(["-c", program]).stdin(fs::File::open(root)?);
    let export: serde_json::Value = serde_json::from_slice(&convert.output()?.stdout)?;
    let template = &export["zabbix_export"]["templates"][0];
    let items = template["items"].as_array().context("no items")?;
    let agent = contrib("zabbix/millpond.conf")?;
    let line = agent
        .lines()
        .find_map(|line| line.strip_prefix("UserParameter=millpond.sensor[*],"));
    let binary = binary(Kind::Millpond)
        .context("no binary")?
        .display()
        .to_string();
    let sudo = "/usr/bin/sudo -n -u millpond /usr/bin/millpond";
    let command = replaced(line.context("no parameter")?, sudo, &binary)? + " " + &options(&proxy);
    let mut answers = BTreeMap::new();
    for item in items {
        let key = item["key"].as_str().context("no key")?;
        let Some(words) = key.strip_prefix("millpond.sensor[") else {
            continue;
        };
        let words: Vec<&str> = words.trim_end_matches(']').split(',').collect();
        let mut line = command.clone();
        for number in 1..=5 {
            let word = words.get(number - 1).copied().unwrap_or_default();
            line = line.replace(&format!("${number}"), word);
        }
        let output = Command::new("sh").args(["-c", &line]).output()?;
        let answer: serde_json::Value =
            serde_json::from_slice(&output.stdout).with_context(|| format!("{key}: {line}"))?;
        assert_eq!(answer["sensor"], words[0], "{key}");
        // The configuration of this test has no certificate, and the machine has the room it has.
        let is_expected = answer["state"] == "ok" || ["certificate", "space"].contains(&words[0]);
        assert!(is_expected, "{answer}");
        answers.insert(key, answer);
    }
    assert_eq!(answers.len(), 12);
    for item in items.iter().filter(|item| item["type"] == "DEPENDENT") {
        let master = item["master_item"]["key"].as_str().context("no master")?;
        let answer = answers
            .get(master)
            .with_context(|| format!("no {master}"))?;
        let step = item["preprocessing"][0]["parameters"][0]
            .as_str()
            .context("no step")?;
        let Some(name) = step.strip_prefix("$.values[?(@.name==\"") else {
            assert_eq!(step, "$.state", "{item}");
            continue;
        };
        let name = name.trim_end_matches("\")].value.first()");
        let values = answer["values"].as_array().context("no values")?;
        assert!(
            values.iter().any(|value| value["name"] == name),
            "{name}: {answer}"
        );
    }
    Ok(())
}
