//! A cache zone: index, segments on disk, memory tier, recovery. Bytes, not HTTP.
