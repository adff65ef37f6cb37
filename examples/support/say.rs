//! Lines for the reader. Where nobody reads any more (`| head`), a line is no reason to panic.

use std::io::{Write, stderr, stdout};

/// A line on stdout; ends the program quietly where stdout is closed.
pub fn out(line: &str) {
    if writeln!(stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// A line on stderr.
pub fn note(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}
