//! Parts of MP4 films. The films are made here: one track, samples of a tenth of a second.

use crate::scenario::Scenario;
use millpond_testkit::Request;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        parts(),
        parts_of_a_film_with_its_description_behind(),
        key_frames(),
        broken_films(),
        limits(),
    ]
}

/// Place of the description in a film.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Description {
    Before,
    Behind,
}

/// Writes an atom.
fn atom(name: &str, data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    let size = (data.len() as u32 + 8).to_be_bytes();
    [&size, name.as_bytes(), data].concat()
}

/// Writes a table of these numbers, without flags.
fn table(name: &str, words: &[u32]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_be_bytes());
    atom(name, [0; 4].into_iter().chain(words).collect::<Vec<u8>>())
}

/// An atom of so many bytes with a clock of 1000 ticks a second, and a duration of 2 seconds.
fn clock(name: &str, len: usize, [at, duration_at]: [usize; 2]) -> Vec<u8> {
    let mut data = vec![0; len];
    for (at, number) in [(at, 1000_u32), (duration_at, 2000)] {
        data.splice(at..at + 4, number.to_be_bytes());
    }
    atom(name, data)
}

fn description(data_at: u32, sizes: &[u32]) -> Vec<u8> {
    let chunk = |first: usize| data_at + sizes.iter().take(first).sum::<u32>();
    let stbl = [
        table("stsd", &[1, 16, 0]),
        table("stts", &[2, 5, 100, 15, 100]),
        table("stss", &[4, 1, 7, 13, 19]),
        table("ctts", &[3, 4, 1, 9, 2, 7, 3]),
        table("stsc", &[3, 1, 4, 1, 3, 3, 1, 5, 6, 1]),
        table("stsz", &[&[0, 20], sizes].concat()),
        table(
            "stco",
            &[5, chunk(0), chunk(4), chunk(8), chunk(11), chunk(14)],
        ),
    ];
    let minf = [
        atom("vmhd", "video"),
        atom("dinf", "where"),
        atom("gone", "gone"),
        atom("stbl", stbl.concat()),
    ];
    let mdia = [
        clock("mdhd", 24, [12, 16]),
        atom("hdlr", "handler"),
        atom("minf", minf.concat()),
    ];
    let trak = [
        clock("tkhd", 84, [40, 20]),
        atom("edts", "gone"),
        atom("mdia", mdia.concat()),
    ];
    let moov = [
        clock("mvhd", 100, [12, 16]),
        atom("trak", trak.concat()),
        atom("udta", "gone"),
    ];
    atom("moov", moov.concat())
}

fn film(place: Description) -> Vec<u8> {
    let sizes: Vec<u32> = (0..20).map(|sample| 3 + sample * 5 % 7).collect();
    let samples = sizes
        .iter()
        .zip(b'a'..)
        .flat_map(|(size, byte)| vec![byte; *size as usize]);
    let data = atom("mdat", samples.collect::<Vec<u8>>());
    let ftyp = atom("ftyp", "isom");
    let before = match place {
        Description::Before => description(0, &sizes).len(),
        Description::Behind => 0,
    };
    let moov = description((ftyp.len() + before + 8) as u32, &sizes);
    match place {
        Description::Before => [ftyp, moov, data].concat(),
        Description::Behind => [ftyp, data, moov].concat(),
    }
}

fn parts() -> Scenario {
    let scenario = Scenario::new("mp4")
        .http("types { video/mp4 mp4; }")
        .server("location / { mp4; } location /index/ { mp4; index a.mp4; }")
        .file("html/a.mp4", film(Description::Before))
        .file("html/index/a.mp4", film(Description::Before));
    every_part(scenario)
        .gets(&["/none.mp4?start=1", "/index", "/index/?start=1", "/"])
        .head("/a.mp4?start=1")
        .send(Request::post("/a.mp4", "x"))
        .get_with("/a.mp4?start=1", "Range", "bytes=0-9")
        .get_with("/a.mp4?start=1", "Range", "bytes=-9")
        .get_with("/a.mp4?start=1", "Range", "bytes=0-1,3-4")
        .get_with("/a.mp4?start=1", "Range", "bytes=99999-")
        .get_with("/a.mp4", "Range", "bytes=0-1,3-4")
}

fn parts_of_a_film_with_its_description_behind() -> Scenario {
    let scenario = Scenario::new("mp4-behind")
        .server("location / { mp4; }")
        .file("html/a.mp4", film(Description::Behind));
    every_part(scenario)
}

fn key_frames() -> Scenario {
    let scenario = Scenario::new("mp4-start-key-frame")
        .server("location / { mp4; mp4_start_key_frame on; }")
        .file("html/a.mp4", film(Description::Before));
    every_part(scenario)
}

fn every_part(scenario: Scenario) -> Scenario {
    scenario.gets(&[
        "/a.mp4",
        "/a.mp4?start=0",
        "/a.mp4?start=x",
        "/a.mp4?start=0.1",
        "/a.mp4?start=0.2999",
        "/a.mp4?start=0.4",
        "/a.mp4?start=.55",
        "/a.mp4?start=1",
        "/a.mp4?start=1.45&end=1.9",
        "/a.mp4?start=0.2&end=0.8",
        "/a.mp4?start=0.8&end=1.1",
        "/a.mp4?start=0.9&end=1.7",
        "/a.mp4?start=1&end=1",
        "/a.mp4?start=1&end=0",
        "/a.mp4?start=1&end=99",
        "/a.mp4?end=0.4",
        "/a.mp4?end=1.234",
        "/a.mp4?end=0",
        "/a.mp4?start=1.9",
        "/a.mp4?start=1.999",
        "/a.mp4?start=2",
        "/a.mp4?start=3",
        "/a.mp4?start=1.2.3",
    ])
}

fn broken_films() -> Scenario {
    let film = film(Description::Before);
    let without = |name: &str| {
        let mut film = film.clone();
        let at = film.windows(4).position(|it| it == name.as_bytes());
        if let Some(at) = at {
            film.splice(at..at + 4, *b"gone");
        }
        film
    };
    Scenario::new("mp4-broken")
        .server("location / { mp4; }")
        .file("html/empty.mp4", "")
        .file("html/text.mp4", "This is no film at all.")
        .file(
            "html/half.mp4",
            film.get(..film.len() / 2).unwrap_or_default(),
        )
        .file("html/mdat.mp4", without("mdat"))
        .file("html/moov.mp4", without("moov"))
        .file("html/trak.mp4", without("trak"))
        .file("html/stts.mp4", without("stts"))
        .file("html/stsc.mp4", without("stsc"))
        .file("html/stco.mp4", without("stco"))
        .file("html/ctts.mp4", without("ctts"))
        .file("html/mvhd.mp4", without("mvhd"))
        .gets(&[
            "/text.mp4?start=1",
            "/half.mp4?start=1",
            "/mdat.mp4?start=1",
            "/moov.mp4?start=1",
            "/trak.mp4?start=1",
            "/stts.mp4?start=1",
            "/stsc.mp4?start=1",
            "/stco.mp4?start=1",
            "/ctts.mp4?start=1",
            "/mvhd.mp4?start=1",
            "/text.mp4",
        ])
}

fn limits() -> Scenario {
    Scenario::new("mp4-max-buffer-size")
        .server(
            "location / { mp4; mp4_buffer_size 256; mp4_max_buffer_size 512; }
             location /large/ { mp4; mp4_buffer_size 256; mp4_max_buffer_size 1k; }",
        )
        .file("html/a.mp4", film(Description::Before))
        .file("html/large/a.mp4", film(Description::Before))
        .gets(&["/a.mp4", "/a.mp4?start=1", "/large/a.mp4?start=1"])
}
