//! What the documents of `plan`, `route` and `explain` say is what happens.

mod documents;
mod findings;
