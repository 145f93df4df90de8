//! Derives that declare configuration directives where they are obeyed.
