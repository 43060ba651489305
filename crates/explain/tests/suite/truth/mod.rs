//! What the documents of `plan`, `route` and `explain` say is what happens.

mod claims;
mod documents;
mod draw;
mod fields;
mod figures;
mod findings;
mod here;
mod model;
mod overview;
mod plans;
mod reasons;
mod routes;
mod screens;
mod trials;
mod unmanaged;
mod verdicts;
mod widths;
