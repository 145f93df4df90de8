//! The test language: origin, proxy and client.
