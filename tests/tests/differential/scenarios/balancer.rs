//! Connections that begin with a header of the PROXY protocol.

use crate::scenario::Scenario;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![headers(), behind_many()]
}

const SERVER: &str = "
    set_real_ip_from 127.0.0.0/8;
    add_header X-Peer $remote_addr,$realip_remote_addr always;
    add_header X-Port $proxy_protocol_port;
    add_header X-Told $proxy_protocol_addr,$proxy_protocol_server_addr:$proxy_protocol_server_port;
    location / { return 200 x; }
    location /real { real_ip_header proxy_protocol; return 200 x; }
    location /denied { real_ip_header proxy_protocol; deny 192.0.2.0/24; }
    location /untrusted {
        set_real_ip_from 10.0.0.0/8; real_ip_header proxy_protocol; return 200 x;
    }
    location /body { real_ip_header proxy_protocol; proxy_pass http://%%ORIGIN%%; }";

const REQUEST: &str = "GET /real HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// A request behind a header.
fn behind(header: &[u8], request: &str) -> Vec<u8> {
    [header, request.as_bytes()].concat()
}

fn headers() -> Scenario {
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let binary = |command: u8, family: u8, rest: &[u8]| {
        let len = (rest.len() as u16).to_be_bytes();
        [&signature[..], &[command, family], &len, rest].concat()
    };
    let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0x16, 0x2e];
    let mut v6 = [0; 36];
    (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 3, 4);
    let long = [&v4[..], &[4, 0, 3, 0, 0, 0]].concat();
    let mut scenario = Scenario::new("proxy-protocol")
        // One line for the address is enough.
        .http("server { listen 127.0.0.1:%%PORT%% proxy_protocol; server_name other; }")
        .server(SERVER);
    for (index, header) in [
        b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n".to_vec(),
        b"PROXY TCP6 2001:db8::1 2001:db8::2 123 5678\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 192.0.2.2 0 65535\r\n".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN some more words\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 192.0.2.2 123 65536\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 192.0.2.2 123\r\n".to_vec(),
        b"PROXY TCP5 192.0.2.1 192.0.2.2 123 5678\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 x 123 5678\r\n".to_vec(),
        b"proxy TCP4 192.0.2.1 192.0.2.2 123 5678\r\n".to_vec(),
        Vec::new(),
        binary(0x21, 0x11, &v4),
        binary(0x21, 0x11, &long),
        binary(0x21, 0x21, &v6),
        binary(0x20, 0x00, &[]),
        binary(0x20, 0x11, &v4),
        binary(0x21, 0x12, &v4),
        binary(0x21, 0x31, &[1, 2, 3, 4]),
        binary(0x31, 0x11, &v4),
    ]
    .iter()
    .enumerate()
    {
        let about = String::from_utf8_lossy(header).into_owned();
        scenario = scenario
            .case(&crate::scenario::case_name(index, &about))
            .raw(behind(header, REQUEST));
    }
    scenario
}

/// The statements of a header hold for all requests of its connection.
fn behind_many() -> Scenario {
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n";
    let request = |path: &str, end: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {end}\r\n\r\n")
    };
    let all = [
        request("/", "keep-alive"),
        request("/real", "keep-alive"),
        request("/denied", "keep-alive"),
        request("/untrusted", "keep-alive"),
        "POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody".to_string(),
        request("/", "close"),
    ];
    Scenario::new("proxy-protocol-kept")
        .http("server { listen 127.0.0.1:%%PORT%% proxy_protocol; server_name other; }")
        .server(SERVER)
        .raw(behind(header, &all.concat()))
}
