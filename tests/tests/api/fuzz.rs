//! Requests made from the document, right and wrong: whatever is asked, the answer is one that the
//! document describes, and the process lives on.
//!
//! `API_FUZZ_REQUESTS` asks so many times, `SEED` begins elsewhere; a failure tells the seed.

use super::bench::{Bench, document};
use super::schema::check;
use anyhow::{Context, Result, bail, ensure};
use millpond_testkit::Response;
use serde_json::Value;

/// Requests of a run in the usual tests (about two seconds).
const REQUESTS: u64 = 800;
/// Methods that are asked with.
const METHODS: [&str; 10] = [
    "GET", "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE",
];
/// Values for parameters, good and bad.
const VALUES: [&str; 20] = [
    "",
    "0",
    "1",
    "9",
    "10",
    "-1",
    "18446744073709551616",
    "pond",
    "shop",
    "pages",
    "farm",
    "all",
    "prefix",
    "tag",
    "/pages/one",
    "%20",
    "%C3%A4",
    "%FF",
    "a%2Fb",
    "%5B%22%7B",
];

/// Members of servers, and values of them.
const MEMBERS: [&str; 12] = [
    "server",
    "server",
    "server",
    "weight",
    "max_conns",
    "max_fails",
    "fail_timeout",
    "slow_start",
    "route",
    "backup",
    "down",
    "drain",
];
const MEMBER_VALUES: [&str; 8] = [
    "127.0.0.1:1",
    "[::1]:2",
    "unix:/none",
    "a.example",
    "10s",
    "0",
    "",
    "127.0.0.1:70000",
];

/// Numbers that look random (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[(self.next() % list.len() as u64) as usize]
    }

    fn value(&mut self) -> String {
        match self.next() % 20 {
            0 => "x".repeat((self.next() % 3000) as usize),
            1 => format!("{:x}{:016x}", self.next(), self.next()),
            _ => self.of(&VALUES).to_string(),
        }
    }
}

/// A request and what of the document it is.
struct Made {
    method: String,
    target: String,
    body: Option<String>,
}

fn make(random: &mut Random, document: &Value) -> Made {
    let paths = document["paths"].as_object().expect("paths");
    let paths: Vec<(&String, &Value)> = paths.iter().collect();
    let (path, methods) = *random.of(&paths);
    let mut segments: Vec<String> = Vec::new();
    for segment in path.split('/').filter(|it| !it.is_empty()) {
        segments.push(match segment {
            "{version}" if !random.one_in(6) => "9".to_string(),
            "{zone}" | "{cache}" if !random.one_in(3) => "pond".to_string(),
            "{upstream}" if !random.one_in(4) => "farm".to_string(),
            text if text.starts_with('{') || random.one_in(30) => random.value(),
            text => text.to_string(),
        });
    }
    if random.one_in(15) {
        segments.push(random.value());
    }
    let described: Vec<&String> = methods.as_object().expect("methods").keys().collect();
    let method = if random.one_in(3) {
        random.of(&METHODS).to_string()
    } else {
        random.of(&described).to_uppercase()
    };
    let operation = &methods[method.to_lowercase()];
    let mut query = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        if parameter["in"] == "query" && !random.one_in(3) {
            let name = parameter["name"].as_str().expect("a name");
            query.push(format!("{name}={}", random.value()));
        }
    }
    if random.one_in(12) {
        query.push(format!("{}={}", random.value(), random.value()));
    }
    if path.ends_with("/events") {
        query.retain(|pair| !pair.starts_with("for="));
        query.push("for=0".to_string());
    }
    let end = if random.one_in(4) { "/" } else { "" };
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("?{}", query.join("&"))
    };
    Made {
        target: format!("/api/{}{end}{query}", segments.join("/")),
        body: body(random, &method),
        method,
    }
}

/// Body that comes with a request: servers, or anything.
fn body(random: &mut Random, method: &str) -> Option<String> {
    if !matches!(method, "POST" | "PATCH") || random.one_in(3) {
        return None;
    }
    if random.one_in(4) {
        return Some(random.value());
    }
    let members = (0..random.next() % 4).map(|_| {
        let value = match random.next() % 4 {
            0 => "true".to_string(),
            1 => (random.next() % 9).to_string(),
            _ => format!("{:?}", random.of(&MEMBER_VALUES)),
        };
        format!("{:?}: {value}", random.of(&MEMBERS))
    });
    let members: Vec<String> = members.collect();
    Some(format!("{{{}}}", members.join(", ")))
}

/// Operation that the document has for a target, of the path with the fewest parameters that fits;
/// none if there is none.
fn described<'a>(document: &'a Value, made: &Made) -> Option<&'a Value> {
    let path = made.target.split('?').next()?.strip_prefix("/api")?;
    let asked: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let paths = document["paths"].as_object()?.iter();
    let fitting = paths.filter_map(|(path, methods)| {
        let known: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
        let is_it = known.len() == asked.len()
            && known.iter().zip(&asked).all(|(known, asked)| match *known {
                "{version}" => matches!(asked.parse(), Ok(1..=9)),
                known => known.starts_with('{') || known == *asked,
            });
        let parameters = known.iter().filter(|it| it.starts_with('{')).count();
        is_it.then_some((parameters, &methods[made.method.to_lowercase()]))
    });
    let closest = fitting.min_by_key(|(parameters, _)| *parameters)?;
    Some(closest.1).filter(|operation| operation.is_object())
}

/// Checks that the answer is one that the document has for the request.
fn judge(document: &Value, made: &Made, response: &Response) -> Result<()> {
    let status = response.status;
    if status == 414 {
        // The head is larger than any buffer: nobody looks for its location.
        ensure!(made.target.len() > 7000, "{status}");
        return Ok(());
    }
    let is_told = match made.method.as_str() {
        "OPTIONS" => {
            ensure!(status == 204, "{status}");
            return Ok(());
        }
        "HEAD" => {
            ensure!(status < 500 && response.body.is_empty(), "{status}");
            return Ok(());
        }
        _ => described(document, made),
    };
    let text = response.text();
    let status_text = status.to_string();
    let told = is_told.map(|operation| &operation["responses"][&status_text]);
    if told.is_some_and(|told| told.is_object() && told.get("content").is_none()) {
        ensure!(text.is_empty(), "{status} {text}");
        return Ok(());
    }
    let kind = response.header("Content-Type").context("a type")?;
    let schema = match is_told {
        Some(operation) => operation["responses"][&status_text]["content"][kind]["schema"].clone(),
        None => {
            ensure!(matches!(status, 403..=405), "{status} {text}");
            let name = if made.target.starts_with("/api/millpond") {
                "Problem"
            } else {
                "Failure"
            };
            serde_json::json!({"$ref": format!("#/components/schemas/{name}")})
        }
    };
    ensure!(
        schema.is_object(),
        "{status} {kind} is not described: {text}"
    );
    ensure!(response.is_complete(), "the answer is cut");
    let has_lines = kind == "application/x-ndjson";
    let values: Vec<&str> = if has_lines {
        text.lines().collect()
    } else if kind == "text/event-stream" {
        text.lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect()
    } else {
        vec![&text]
    };
    // Members that were not asked for are not there.
    let is_reduced = made.target.contains("fields=") && status == 200;
    for value in values.into_iter().filter(|_| !is_reduced) {
        let value: Value = serde_json::from_str(value)?;
        if let Err(error) = check(document, &schema, &value) {
            bail!("{error}");
        }
    }
    Ok(())
}

#[test]
fn whatever_is_asked_the_answer_is_described() -> Result<()> {
    let number = |name: &str, usual: u64| -> u64 {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let seed = number("SEED", 1);
    let bench = Bench::start()?;
    for path in ["/pages/one", "/pages/two", "/pages/three"] {
        ensure!(bench.get("shop", path)?.status == 200);
    }
    let document = document()?;
    let mut random = Random(seed);
    let mut connection = bench.client.connect()?;
    let turns = number("API_FUZZ_REQUESTS", REQUESTS);
    let mut answered = 0;
    for turn in 0..turns {
        let made = make(&mut random, &document);
        let request = super::bench::asking(&made.method, &made.target);
        let request = match &made.body {
            Some(body) => request.body(body),
            None => request,
        };
        let asked = || {
            format!(
                "SEED={seed}, request {turn}: {} {}",
                made.method, made.target
            )
        };
        let response = connection.exchange(&request).with_context(asked)?;
        judge(&document, &made, &response).with_context(asked)?;
        answered += u64::from(response.status == 200);
        if response.header("Connection") == Some("close") {
            connection = bench.client.connect()?;
        }
    }
    // Requests that are all wrong would try nothing.
    ensure!(answered > turns / 5, "{answered} of {turns} are right");
    Ok(())
}
