//! `check`, `explain` and `plan` on clusters where the reference's programs run, and beside kubectl.

mod check;
#[path = "../../suite/observe/checking.rs"]
pub(crate) mod checking;
pub(crate) mod live;
#[path = "../../suite/observe/looking.rs"]
pub(crate) mod looking;
#[path = "../../suite/observe/run.rs"]
pub(crate) mod run;
mod running;
#[path = "../../suite/observe/schema.rs"]
pub(crate) mod schema;
#[path = "../../suite/observe/shop.rs"]
pub(crate) mod shop;
