//! Promises of the repository itself. `dependencies` is in `crates/common/tests`, where it compiles in
//! seconds, so that `make lint` can run it.
//!
//! ```text
//!  requirements   docs/requirements.md: sentences by hand, tests from the names of test functions
//! ```

mod files;
mod requirements;
