//! Custom heuristics without rebuilding: an expression in a configuration file says which zones an
//! endpoint is hinted to, or which shares a zone sends.
//!
//! ```text
//!  library      the definitions of a configuration ─► heuristics by name
//!  name         `<domain>/<name>`
//!  interpreter  text ─► Expression ─► Allocation + Reason      cargo feature `expressions`
//!  not_built_in refuses every definition                       without that feature
//! ```
//!
//! The language is the [Common Expression Language](https://cel.dev). What is wrong or too expensive
//! is refused when it is loaded, with line and column. What goes wrong later never takes endpoints
//! away: every zone uses every endpoint then.
//!
//! | variable | in | is |
//! |---|---|---|
//! | `endpoint` | `endpointZones` | `zone` (empty if it has none), `index` (its number in its zone, from 0) |
//! | `zone` | `zoneShares` | the zone that sends |
//! | `zones` | both | all zones in the order of their names: `name`, `index`, `share`, `nodes`, `endpoints`, `expected` |
//! | `total` | both | the number of endpoints |

mod error;
mod library;
mod name;

#[cfg(feature = "expressions")]
mod interpreter;
#[cfg(not(feature = "expressions"))]
mod not_built_in;

use std::fmt;

pub use self::error::ExpressionError;
#[cfg(feature = "expressions")]
pub use self::interpreter::Expression;
pub use self::library::{Definition, Library, LibraryError};
#[cfg(not(feature = "expressions"))]
pub use self::not_built_in::Expression;

/// What an expression is evaluated for, and what it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For each endpoint, the names of the zones it is hinted to.
    EndpointZones,
    /// For each sending zone, the shares of the others.
    ZoneShares,
}

impl fmt::Display for Kind {
    /// As in the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndpointZones => "endpointZones",
            Self::ZoneShares => "zoneShares",
        })
    }
}
