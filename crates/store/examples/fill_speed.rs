//! Speed at which bodies of a mebibyte are stored, against one writer that does nothing else.
//!
//! `cargo run --release -p millpond-store --example fill_speed -- [--dir DIR] [--bodies N]
//! [--rounds N]`
//!
//! Rounds alternate between a plain writer (preallocated files as large as segments, a mebibyte at
//! a time, synced at the end), one zone, two zones that share the bodies, and one zone on two disks
//! (two directories of one device); so what else the machine does meets all. Bodies come in pieces
//! as they come from a socket. The time ends when everything is on the device. It fails when a zone
//! stores less than 90 % of what the writer writes, or two zones or disks less than 90 % of what
//! one does.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use millpond_store::{DiskConf, DiskIo, Key, RealIo, SystemClock, Writer, Zone, ZoneConf};

const BODY: usize = 1 << 20;
/// Bytes that one read of a socket brings.
const PIECE: usize = 64 << 10;
const SEGMENT: u64 = 64 << 20;
/// Ratio of throughputs below which the store is not good enough.
const BOUND: f64 = 0.9;

struct Options {
    dir: PathBuf,
    bodies: u64,
    rounds: usize,
}

fn main() -> ExitCode {
    let options = options();
    let (mut plain, mut one, mut two) = (Vec::new(), Vec::new(), Vec::new());
    let mut disks = Vec::new();
    for round in 0..options.rounds {
        let dir = options
            .dir
            .join(format!("fill-{}-{round}", std::process::id()));
        let timed = |run: &dyn Fn(&Path)| {
            std::fs::create_dir_all(&dir).expect("a directory");
            let began = Instant::now();
            run(&dir);
            let speed = options.bodies as f64 / began.elapsed().as_secs_f64();
            std::fs::remove_dir_all(&dir).expect("removed");
            speed
        };
        plain.push(timed(&|dir| write_plainly(dir, options.bodies)));
        one.push(timed(&|dir| store(&dir.join("a"), None, options.bodies)));
        disks.push(timed(&|dir| {
            store(&dir.join("a"), Some(dir.join("b")), options.bodies);
        }));
        two.push(timed(&|dir: &Path| {
            std::thread::scope(|scope| {
                for name in ["a", "b"] {
                    let dir = dir.join(name);
                    scope.spawn(move || store(&dir, None, options.bodies / 2));
                }
            });
        }));
    }
    let of = |some: &[f64], others: &[f64]| {
        let ratios = some.iter().zip(others).map(|(one, other)| one / other);
        median(ratios.collect())
    };
    let (share, share_of_two) = (of(&one, &plain), of(&two, &one));
    let share_of_disks = of(&disks, &one);
    println!("plain writer: {:.0} MiB/s", median(plain));
    println!("one zone:     {:.0} MiB/s, {share:.2} of it", median(one));
    println!(
        "two zones:    {:.0} MiB/s, {share_of_two:.2} of one",
        median(two)
    );
    println!(
        "two disks:    {:.0} MiB/s, {share_of_disks:.2} of one",
        median(disks)
    );
    if share >= BOUND && share_of_two >= BOUND && share_of_disks >= BOUND {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn options() -> Options {
    let mut options = Options {
        dir: std::env::temp_dir(),
        bodies: 1024,
        rounds: 5,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        let number = || value.parse::<u64>().expect("a number");
        match word.as_str() {
            "--dir" => options.dir = value.into(),
            "--bodies" => options.bodies = number(),
            "--rounds" => options.rounds = number().max(1) as usize,
            _ => panic!("unknown option {word}"),
        }
    }
    options
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The pieces of a body that no other body has.
fn pieces(number: u64) -> impl Iterator<Item = Bytes> {
    (0..BODY / PIECE).map(move |piece| {
        let mut bytes = vec![0xa5; PIECE];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8] = piece as u8;
        Bytes::from(bytes)
    })
}

fn write_plainly(dir: &Path, bodies: u64) {
    let mut files: Vec<File> = Vec::new();
    let each = SEGMENT / BODY as u64;
    for number in 0..bodies {
        if number % each == 0 {
            let path = dir.join(format!("file-{number}"));
            files.push(RealIo.create(&path, SEGMENT).expect("a file"));
        }
        let mut body = Vec::with_capacity(BODY);
        for piece in pieces(number) {
            body.extend_from_slice(&piece);
        }
        let file = files.last().expect("one was made");
        let at = number % each * BODY as u64;
        file.write_all_at(&body, at).expect("written");
    }
    for file in files {
        file.sync_data().expect("synced");
    }
}

fn store(dir: &Path, other: Option<PathBuf>, bodies: u64) {
    let disk = |path| DiskConf { path, weight: 1 };
    let conf = ZoneConf {
        disks: other.map(disk).into_iter().collect(),
        max_size: Some((bodies + 128) * BODY as u64 * 2),
        segment_size: Some(SEGMENT),
        ..ZoneConf::new("fill", dir)
    };
    let zone = Zone::open(conf, Arc::new(SystemClock)).expect("a zone opens");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        for number in 0..bodies {
            store_one(&zone, number).await;
        }
    });
    assert!(zone.sync(), "what was stored is synced");
    assert_eq!(zone.usage().entries, bodies, "nothing was refused");
}

async fn store_one(zone: &Arc<Zone>, number: u64) {
    let begin = || zone.begin(Key::of(&number.to_le_bytes()), Some(BODY as u64));
    let mut writer: Writer = loop {
        match begin() {
            Ok(writer) => break writer,
            // A queue that is full drains while we wait.
            Err(_) => zone.flush(),
        }
    };
    writer.set_head(Bytes::from_static(b"head"));
    for piece in pieces(number) {
        while zone.usage().queued_bytes > 24 << 20 {
            zone.flush();
        }
        writer.append(piece).expect("appended");
        writer.room().await;
    }
    writer.finish().expect("stored");
}
