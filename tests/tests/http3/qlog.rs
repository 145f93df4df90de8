//! `quic_qlog`: what connections say, in files that tools for qlog read.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Deadline, Origin, offset_bytes};
use serde_json::Value;

use crate::kit::{CONF, connect, get, identity, proxy_of, run};

const WAIT: Duration = Duration::from_secs(30);

/// The records of the one file in a folder, once its connection has ended.
fn records(folder: &std::path::Path) -> Result<Vec<Value>> {
    let is_whole = || {
        let files: Vec<_> = fs::read_dir(folder).ok()?.flatten().collect();
        let [file] = &files[..] else { return None };
        let text = fs::read_to_string(file.path()).ok()?;
        text.contains("connection_close")
            .then(|| (file.file_name(), text))
    };
    let whole = Deadline::after(WAIT).poll(is_whole);
    let (name, text) = whole.context("no file, or no end of it")?;
    let name = name.to_string_lossy().into_owned();
    let all: Vec<Value> = text
        .split('\u{1e}')
        .skip(1)
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    // RFC 7464 §2.1: each record is between RS and LF.
    ensure!(text.ends_with('\n') && text.lines().count() == all.len());
    let id = all[0]["trace"]["common_fields"]["ODCID"].as_str();
    ensure!(id.is_some_and(|id| name == format!("{id}_server.sqlog")));
    Ok(all)
}

/// The packets of a name and a kind.
fn packets<'a>(all: &'a [Value], name: &str, kind: &str) -> Vec<&'a Value> {
    let name = format!("transport:{name}");
    let is_meant =
        |event: &&Value| event["name"] == name && event["data"]["header"]["packet_type"] == kind;
    all.iter().filter(is_meant).collect()
}

/// Packets of all kinds come both ways, and those of the server have rising numbers.
fn check_packets(all: &[Value]) -> Result<()> {
    for kind in ["initial", "handshake", "1RTT"] {
        for name in ["packet_sent", "packet_received"] {
            let found = packets(all, name, kind);
            ensure!(!found.is_empty(), "no {kind} {name}");
            let number = |it: &&Value| it["data"]["header"]["packet_number"].as_u64();
            let numbers: Vec<_> = found.iter().filter_map(number).collect();
            // Packets of the client may come in another order.
            let is_rising = numbers.windows(2).all(|pair| pair[0] < pair[1]);
            ensure!(numbers.len() == found.len(), "{kind} {name}");
            ensure!(is_rising || name == "packet_received", "{numbers:?}");
        }
    }
    Ok(())
}

/// Frames are those of a handshake, an answer of so many bytes, and acknowledgements.
fn check_frames(all: &[Value], len: u64) -> Result<()> {
    let frames_of = |name: &str, kind: &str| {
        let found = packets(all, name, kind).into_iter();
        found.flat_map(|it| it["data"]["frames"].as_array().cloned().unwrap_or_default())
    };
    let hello = frames_of("packet_received", "initial");
    ensure!(hello.into_iter().any(|it| it["frame_type"] == "crypto"));
    let sent = frames_of("packet_sent", "1RTT").filter(|it| it["stream_id"] == 0);
    let ends = sent.filter_map(|it| Some(it["offset"].as_u64()? + it["length"].as_u64()?));
    let end = ends.max().context("no frames of the answer")?;
    ensure!((len..len + 1000).contains(&end), "{end}");
    let mut acks = frames_of("packet_received", "1RTT");
    ensure!(acks.any(|it| it["frame_type"] == "ack" && it["acked_ranges"][0][1].is_u64()));
    Ok(())
}

#[test]
fn a_connection_is_written_down_with_its_packets_and_their_frames() -> Result<()> {
    const LEN: u64 = 300_000;
    let (origin, identity) = (Origin::start()?, identity()?);
    origin.route("/large", Answer::new(200).offset_body(LEN, 1));
    let on = "http3_advertise on; quic_qlog %%DIR%%/qlog;";
    let conf = CONF.replace("http3_advertise on;", on);
    let builder = proxy_of(&conf, &origin, &identity).file("qlog/.keep", "");
    let proxy = builder.start()?;
    let folder = proxy.dir().join("qlog");
    fs::remove_file(folder.join(".keep"))?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        ensure!(get(&mut client, "/large").await?.body.len() == LEN as usize);
        client.close().await;
        Ok(())
    })?;
    let all = records(&folder)?;
    ensure!(all[0]["qlog_version"] == "0.3" && all[0]["qlog_format"] == "JSON-SEQ");
    ensure!(all[0]["trace"]["vantage_point"]["type"] == "server");
    let mut last = 0.0;
    for event in &all[1..] {
        let time = event["time"].as_f64().context("a time")?;
        ensure!(time >= last, "{time} behind {last}");
        last = time;
    }
    check_packets(&all)?;
    check_frames(&all, LEN)?;
    let unknown = all
        .iter()
        .any(|it| it.to_string().contains("raw_frame_type"));
    ensure!(!unknown, "frames that were not understood");
    let metrics = all
        .iter()
        .filter(|it| it["name"] == "recovery:metrics_updated");
    ensure!(metrics.clone().count() > 1);
    for event in metrics {
        ensure!(
            event["data"]["congestion_window"].as_u64() > Some(0),
            "{event}"
        );
        ensure!(
            event["data"]["smoothed_rtt"].as_f64() > Some(0.0),
            "{event}"
        );
    }
    // INVARIANT 3 of the writer.
    let text = all.iter().map(Value::to_string).collect::<String>();
    let body = offset_bytes(0..LEN, 1);
    let part = String::from_utf8_lossy(&body[..32]).into_owned();
    ensure!(!text.contains(&part) && !text.contains("stateless_reset_token"));
    Ok(())
}

/// A folder that is not there costs a line of the log, and nobody else anything.
#[test]
fn a_folder_that_is_not_there_is_told_of_and_clients_are_served() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let on = "http3_advertise on; quic_qlog %%DIR%%/nowhere;";
    let conf = CONF.replace("http3_advertise on;", on);
    let builder = proxy_of(&conf, &origin, &identity);
    let proxy = builder.log_check(millpond_testkit::LogCheck::Off).start()?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        ensure!(get(&mut client, "/few").await?.text() == "few");
        Ok(())
    })?;
    let log = proxy.error_log();
    let lines = log.lines().filter(|line| line.contains("/nowhere/"));
    let told = lines.collect::<Vec<_>>();
    ensure!(told.len() == 1 && told[0].contains("[error]"), "{told:?}");
    ensure!(
        told[0].contains("failed (2: No such file or directory)"),
        "{told:?}"
    );
    Ok(())
}

/// `ssl_key_log`: what it takes to read the packets of a connection.
#[test]
fn secrets_of_a_connection_are_written_down() -> Result<()> {
    const LABELS: [&str; 4] = [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET ",
        "CLIENT_TRAFFIC_SECRET_0 ",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET ",
        "SERVER_TRAFFIC_SECRET_0 ",
    ];
    let (origin, identity) = (Origin::start()?, identity()?);
    let conf = CONF.replace(
        "http3_advertise on;",
        "http3_advertise on; ssl_key_log keys;",
    );
    let proxy = proxy_of(&conf, &origin, &identity).start()?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        ensure!(get(&mut client, "/few").await?.text() == "few");
        Ok(())
    })?;
    let keys = proxy.read_file("keys");
    for label in LABELS {
        let count = keys.lines().filter(|line| line.starts_with(label)).count();
        ensure!(count == 1, "{label}: {keys}");
    }
    Ok(())
}
