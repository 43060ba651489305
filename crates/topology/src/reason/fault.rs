//! What can go wrong with a custom expression.

use std::fmt;

use serde::Serialize;

/// What went wrong with a custom expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It stopped, such as at a division by zero.
    Evaluation,
    /// It would take too long for this many endpoints and zones.
    TooExpensive,
    /// It names a zone that does not exist.
    UnknownZone,
    /// It gives an endpoint more zones than the API allows.
    TooManyZones,
    /// It gives some endpoints zones and others none.
    EndpointLeftOut,
    /// It gives a share below zero, none that is a number, or not one for each zone.
    WrongShares,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evaluation => "its evaluation failed",
            Self::TooExpensive => "it takes too long for this many endpoints and zones",
            Self::UnknownZone => "it names a zone that does not exist",
            Self::TooManyZones => "it gives an endpoint more than 8 zones",
            Self::EndpointLeftOut => {
                "it gives an endpoint no zone, so proxies would ignore all hints"
            }
            Self::WrongShares => {
                "a share is negative or not a number, or the number of shares is not the number of zones"
            }
        })
    }
}
