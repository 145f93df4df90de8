//! `types`, `default_type`: media types by file name.
