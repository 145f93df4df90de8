//! The configuration language: text to tree to typed, merged settings.
