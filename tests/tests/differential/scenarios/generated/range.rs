//! Range fields in many forms, of a file, of a cached entry and of an answer that passes.
//!
//! Each form is a case; the entry was stored before. The If-Range cases take one range and many
//! conditions.

use crate::scenario::{Scenario, case_name};
use millpond_testkit::{Answer, Ranges, Request};

const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

const FORMS: &[&str] = &[
    "bytes=0-0",
    "bytes=0-",
    "bytes=1-",
    "bytes=999-",
    "bytes=1000-",
    "bytes=1001-",
    "bytes=-0",
    "bytes=-1",
    "bytes=-1000",
    "bytes=-1001",
    "bytes=-99999999999999999999",
    "bytes=0-999",
    "bytes=0-1000",
    "bytes=0-99999999999999999999",
    "bytes=99999999999999999999-",
    "bytes=10-5",
    "bytes=5-5",
    "bytes=-",
    "bytes=",
    "bytes",
    "",
    "bytes=a-b",
    "bytes=0-b",
    "bytes=0x10-0x20",
    "bytes= 0-1",
    "bytes =0-1",
    "bytes=0 - 1",
    "bytes=0-1 ",
    "Bytes=0-1",
    "BYTES=0-1",
    "lines=0-1",
    "bytes=0-1,",
    "bytes=,0-1",
    "bytes=0-1,,2-3",
    "bytes=0-1, 2-3",
    "bytes=0-1 ,2-3",
    "bytes=2-3,0-1",
    "bytes=0-1,0-1",
    "bytes=0-10,5-15",
    "bytes=0-499,500-999",
    "bytes=0-999,0-0",
    "bytes=0-0,1000-",
    "bytes=1000-,0-0",
    "bytes=2000-3000,4000-",
    "bytes=-5,0-4",
    "bytes=0-4,-5",
    "bytes=0-4,-0",
    "bytes=0-4,x",
    "bytes=0-4,5-",
    "bytes=+1-2",
    "bytes=1--2",
    "bytes=0-1;2-3",
    "bytes:0-1",
    "bytes=0-1,2-3,4-5,6-7,8-9,10-11,12-13,14-15",
];

fn body() -> Vec<u8> {
    (0..1000_u32)
        .map(|n| b"0123456789abcdef"[n as usize % 16])
        .collect()
}

fn server(id: &'static str) -> Scenario {
    let answer = Answer::new(200)
        .header("Cache-Control", "max-age=60")
        .body(body())
        .etag("\"3b9aca00-3e8\"")
        .last_modified(MODIFIED);
    Scenario::new(id)
        .http("proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;")
        .server(
            "location /file { }
             location /stored { proxy_pass http://%%ORIGIN%%; proxy_cache zone; }
             location /passed { proxy_pass http://%%ORIGIN%%; }
             location /forced { proxy_pass http://%%ORIGIN%%; proxy_force_ranges on; }
             location /one { max_ranges 1; } location /none { max_ranges 0; }",
        )
        .file("html/file", body())
        .file("html/one", body())
        .file("html/none", body())
        .answer("/stored", answer.clone().ranges(Ranges::Supported))
        .answer("/forced", answer.clone())
        .answer("/passed", answer.ranges(Ranges::Supported))
        .ignore_words()
        .gets(&["/stored", "/stored"])
        .send(Request::head("/file").header("Range", "bytes=1-2"))
}

/// Forms of Range.
pub fn forms() -> Scenario {
    let mut scenario = server("range-forms");
    for (index, form) in FORMS.iter().enumerate() {
        scenario = scenario.case(&case_name(index, form));
        for path in ["/file", "/stored", "/forced", "/one", "/none"] {
            scenario = scenario.get_with(path, "Range", form);
        }
    }
    scenario
}

/// Forms of If-Range, and conditions beside a range.
pub fn conditions() -> Scenario {
    let conditions = [
        ("If-Range", "\"3b9aca00-3e8\""),
        ("If-Range", "W/\"3b9aca00-3e8\""),
        ("If-Range", "\"other\""),
        ("If-Range", "3b9aca00-3e8"),
        ("If-Range", "\"3b9aca00-3e8"),
        ("If-Range", MODIFIED),
        ("If-Range", "Sun, 09 Sep 2001 01:46:39 GMT"),
        ("If-Range", "Sun, 09 Sep 2001 01:46:41 GMT"),
        ("If-Range", "Sunday, 09-Sep-01 01:46:40 GMT"),
        ("If-Range", "*"),
        ("If-Range", ""),
        ("If-None-Match", "\"3b9aca00-3e8\""),
        ("If-None-Match", "\"other\""),
        ("If-Modified-Since", MODIFIED),
        ("If-Match", "\"other\""),
        ("If-Match", "\"3b9aca00-3e8\""),
        ("If-Unmodified-Since", "Sun, 09 Sep 2001 01:46:39 GMT"),
    ];
    let mut scenario = server("range-conditions");
    for (index, (name, value)) in conditions.iter().enumerate() {
        scenario = scenario.case(&case_name(index, &format!("{name} {value}")));
        for range in ["bytes=0-4", "bytes=2000-"] {
            for path in ["/file", "/stored"] {
                let request = Request::get(path).header("Range", range);
                scenario = scenario.send(request.header(name, value));
            }
        }
    }
    scenario
}
