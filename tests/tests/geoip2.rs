//! `geoip2`: variables out of databases in MaxMind's format, which the tests make themselves.
//!
//! Source of the format: MaxMind DB File Format Specification 2.0.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, Proxy, Request};
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// The time after which a test has failed.
const LONG: Duration = Duration::from_secs(20);

/// A value of a record.
enum Field {
    Text(&'static str),
    Fraction(f64),
    Number(u32),
    Short(u16),
    Long(u64),
    Flag(bool),
    List(Vec<Field>),
    Map(Vec<(&'static str, Field)>),
}

/// Appends the control bytes of a value.
fn put_control(kind: u8, len: usize, out: &mut Vec<u8>) {
    let top = if kind < 8 { kind << 5 } else { 0 };
    let size = if len < 29 { len as u8 } else { 29 };
    out.push(top | size);
    if kind >= 8 {
        out.push(kind - 7);
    }
    if len >= 29 {
        out.push((len - 29) as u8);
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_control(2, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

fn put(field: &Field, out: &mut Vec<u8>) {
    match field {
        Field::Text(text) => put_text(text, out),
        Field::Fraction(number) => {
            put_control(3, 8, out);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Field::Number(number) => {
            put_control(6, 4, out);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Field::Short(number) => {
            put_control(5, 2, out);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Field::Long(number) => {
            put_control(9, 8, out);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Field::Flag(is_set) => put_control(14, usize::from(*is_set), out),
        Field::List(fields) => {
            put_control(11, fields.len(), out);
            fields.iter().for_each(|field| put(field, out));
        }
        Field::Map(fields) => {
            put_control(7, fields.len(), out);
            for (name, field) in fields {
                put_text(name, out);
                put(field, out);
            }
        }
    }
}

/// A database with a record for each network of IPv4.
fn database(records: &[(Ipv4Addr, u32, Field)]) -> Vec<u8> {
    const NOTHING: u32 = u32::MAX;
    const DATA: u32 = 1 << 31;
    let (mut nodes, mut data) = (vec![[NOTHING; 2]], Vec::new());
    for (network, bits, field) in records {
        let offset = data.len() as u32;
        put(field, &mut data);
        let mut node = 0;
        for depth in 0..*bits {
            let side = (network.to_bits() >> (31 - depth) & 1) as usize;
            if depth + 1 == *bits {
                nodes[node][side] = DATA | offset;
            } else if nodes[node][side] == NOTHING {
                nodes[node][side] = nodes.len() as u32;
                nodes.push([NOTHING; 2]);
            }
            node = nodes[node][side] as usize;
        }
    }
    let count = nodes.len() as u32;
    let mut out = Vec::new();
    for record in nodes.into_iter().flatten() {
        let value = match record {
            NOTHING => count,
            record if record & DATA != 0 => count + 16 + (record & !DATA),
            node => node,
        };
        out.extend_from_slice(&value.to_be_bytes()[1..]);
    }
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&data);
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let metadata = Field::Map(vec![
        ("node_count", Field::Number(count)),
        ("record_size", Field::Short(24)),
        ("ip_version", Field::Short(4)),
        ("database_type", Field::Text("Test")),
        ("languages", Field::List(vec![Field::Text("en")])),
        ("binary_format_major_version", Field::Short(2)),
        ("binary_format_minor_version", Field::Short(0)),
        ("build_epoch", Field::Long(1_700_000_000)),
        (
            "description",
            Field::Map(vec![("en", Field::Text("made by a test"))]),
        ),
    ]);
    put(&metadata, &mut out);
    out
}

fn country(code: &'static str) -> Field {
    Field::Map(vec![(
        "country",
        Field::Map(vec![("iso_code", Field::Text(code))]),
    )])
}

/// Two cities, and this machine.
fn cities() -> Vec<u8> {
    let names = |en, de| Field::Map(vec![("en", Field::Text(en)), ("de", Field::Text(de))]);
    let zurich = Field::Map(vec![
        ("country", Field::Map(vec![("iso_code", Field::Text("CH"))])),
        (
            "subdivisions",
            Field::List(vec![Field::Map(vec![("names", names("Zurich", "Zürich"))])]),
        ),
        (
            "location",
            Field::Map(vec![
                ("latitude", Field::Fraction(47.366_67)),
                ("accuracy_radius", Field::Number(20)),
            ]),
        ),
        (
            "traits",
            Field::Map(vec![("is_anonymous_proxy", Field::Flag(true))]),
        ),
    ]);
    database(&[
        (Ipv4Addr::new(192, 0, 2, 0), 24, zurich),
        (Ipv4Addr::new(198, 51, 100, 0), 25, country("NZ")),
        (Ipv4Addr::new(127, 0, 0, 0), 8, country("XX")),
    ])
}

const BLOCK: &str = "geoip2 %%DIR%%/city.mmdb {
    $geoip2_built metadata build_epoch;
    $geoip2_here country iso_code;
    $geoip2_country default=none source=$arg_ip country iso_code;
    $geoip2_region source=$arg_ip subdivisions 0 names de;
    $geoip2_latitude source=$arg_ip location latitude;
    $geoip2_radius source=$arg_ip location accuracy_radius;
    $geoip2_proxied source=$arg_ip traits is_anonymous_proxy;
}
geoip2_proxy 127.0.0.1;
geoip2_proxy_recursive off;
";

fn get(proxy: &Proxy, request: Request) -> Result<String> {
    Ok(Client::new(proxy.port()).send(&request)?.text())
}

#[test]
fn values_are_those_of_the_longest_network_of_an_address() -> Result<()> {
    let conf = format!(
        "{BLOCK} server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 \
         '$geoip2_country|$geoip2_region|$geoip2_latitude|$geoip2_radius|$geoip2_proxied'; }} \
         location /here {{ return 200 '$geoip2_here $geoip2_built'; }} }}"
    );
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .file("city.mmdb", cities())
        .start()?;
    for (ip, expected) in [
        ("192.0.2.77", "CH|Zürich|47.36667|20|1"),
        ("198.51.100.127", "NZ||||"),
        ("198.51.100.128", "none||||"),
        ("203.0.113.1", "none||||"),
        ("::ffff:192.0.2.77", "CH|Zürich|47.36667|20|1"),
        ("2001:db8::1", "none||||"),
        ("nobody", "none||||"),
        ("", "none||||"),
    ] {
        let found = get(&proxy, Request::get(&format!("/?ip={ip}")))?;
        assert_eq!(found, expected, "{ip}");
    }
    assert_eq!(get(&proxy, Request::get("/here"))?, "XX 1700000000");
    // The proxy's word is taken, for the nearest address only.
    let forwarded = |list: &str| Request::get("/here").header("X-Forwarded-For", list);
    for (list, expected) in [
        ("198.51.100.1", "NZ 1700000000"),
        ("198.51.100.1, 192.0.2.1", "CH 1700000000"),
        ("198.51.100.1, 127.0.0.1", "XX 1700000000"),
    ] {
        assert_eq!(get(&proxy, forwarded(list))?, expected, "{list}");
    }
    Ok(())
}

#[test]
fn sessions_have_them_too() -> Result<()> {
    let conf = "%%GLOBALS%%\nevents {}\nstream { \
                geoip2 %%DIR%%/city.mmdb { $place country iso_code; } \
                server { listen 127.0.0.1:%%PORT%%; return $place; } }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .file("city.mmdb", cities())
        .start()?;
    let mut text = String::new();
    TcpStream::connect(("127.0.0.1", proxy.port()))?.read_to_string(&mut text)?;
    assert_eq!(text, "XX");
    Ok(())
}

/// Puts another file in the place of one.
fn replace(dir: &Path, content: &[u8]) -> Result<()> {
    fs::write(dir.join("next"), content)?;
    Ok(fs::rename(dir.join("next"), dir.join("city.mmdb"))?)
}

#[test]
fn file_that_changes_is_read_again_and_one_that_breaks_changes_nothing() -> Result<()> {
    let conf = "geoip2 %%DIR%%/city.mmdb { auto_reload 1s; $place country iso_code; } \
                server { listen 127.0.0.1:%%PORT%%; location / { return 200 $place; } }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .file("city.mmdb", cities())
        .start()?;
    let place = || get(&proxy, Request::get("/")).unwrap_or_default();
    assert_eq!(place(), "XX");
    let home = Ipv4Addr::new(127, 0, 0, 0);
    replace(proxy.dir(), &database(&[(home, 8, country("YY"))]))?;
    let until = |holds: &dyn Fn() -> bool| Deadline::after(LONG).poll(|| holds().then_some(()));
    until(&|| place() == "YY").context("the new file")?;
    replace(proxy.dir(), b"no database")?;
    until(&|| place() == "YY" && proxy.error_log().contains("reading the database"))
        .context("a line about the broken file")?;
    assert_eq!(place(), "YY");
    Ok(())
}

#[test]
fn database_that_cannot_be_used_is_refused_with_the_reason() -> Result<()> {
    for (content, reason) in [
        (None, "No such file"),
        (Some("no database"), "cannot use the database"),
    ] {
        let conf = "geoip2 %%DIR%%/city.mmdb { $place country iso_code; } \
                    server { listen 127.0.0.1:%%PORT%%; }";
        let bare = Proxy::new(Kind::Millpond, conf);
        let builder = match content {
            Some(content) => bare.file("city.mmdb", content),
            None => bare,
        };
        let why = format!("{:#}", builder.start().err().context("a refusal")?);
        ensure!(why.contains(reason), "{why}");
    }
    Ok(())
}
