//! Guard mode beside the real built-in controller: what that makes of our hints, what it writes, and all tests of the
//! other suite again.

#[path = "../../suite/guard/demand.rs"]
mod demand;
#[path = "../../suite/guard/life.rs"]
mod life;
mod policy;
mod webhook;
mod writes;
