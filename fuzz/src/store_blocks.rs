//! Blocks that the store decodes from a disk, with their checksums made right: nothing panics,
//! lengths agree, and what was decoded is encoded alike.

/// Hands the input to every decoder of the disk's format.
///
/// The decoders are open to a fuzzer only: without `--cfg fuzzing` nothing happens.
pub fn run(data: &[u8]) {
    #[cfg(not(fuzzing))]
    let _ = data;
    #[cfg(fuzzing)]
    millpond_store::fuzz::decode_all(data);
}
