//! Parts of films: whatever the file is, nothing beyond it is read or sent, and what is put before
//! the pictures is not much longer than the file.

use bytes::Bytes;
use millpond_mp4::{Begin, Film, Wish, cut};

/// The longest description that is read.
const MOOV_MAX: u64 = 64 * 1024;

/// The greatest ratio of a part's head to the file: besides the description the head has an edit
/// list for each track and new heads of atoms, which take no more than those that were there.
const MORE: usize = 8;

/// Cuts a film; the first three bytes say from when, how long and how.
pub fn run(data: &[u8]) {
    let Some(([start, length, how], file)) = data.split_first_chunk() else {
        return;
    };
    let wish = Wish {
        start_ms: u64::from(*start) * 50,
        length_ms: Some(u64::from(*length) * 50).filter(|length| *length > 0),
        begin: match how % 2 {
            0 => Begin::Frame,
            _ => Begin::KeyFrame,
        },
    };
    let film = Film {
        len: file.len() as u64,
        read: |at: u64, len: u64| {
            let bytes = file
                .get(at as usize..)
                .and_then(|rest| rest.get(..len as usize));
            Ok::<Bytes, ()>(Bytes::copy_from_slice(bytes.expect("a region of the file")))
        },
        moov_max: MOOV_MAX,
    };
    if let Ok(Some(part)) = cut(&film, &wish) {
        assert!(part.data.start < part.data.end && part.data.end <= film.len);
        assert!(part.head.len() <= MORE * file.len());
    }
}
