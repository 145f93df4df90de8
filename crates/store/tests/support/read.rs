//! Reading what a body's regions hold.
//!
//! Regions in memory are taken as they are, those of files are read where they lie. Several tests
//! share this; it knows nothing of what the bytes should be.

use millpond_store::Region;

/// The bytes of some regions, one after the other.
pub(crate) fn read(regions: impl IntoIterator<Item = Region>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for region in regions {
        match region {
            Region::Memory(memory) => bytes.extend_from_slice(&memory),
            Region::File { file, offset, len } => {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                file.read_exact_at(&mut bytes[start..], offset)
                    .expect("read");
            }
        }
    }
    bytes
}
