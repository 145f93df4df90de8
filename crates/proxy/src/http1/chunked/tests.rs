//! Chunked bodies: good, bad, in pieces.
