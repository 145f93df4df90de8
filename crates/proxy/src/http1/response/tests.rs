//! Responses as they come: good, bad, in pieces.
