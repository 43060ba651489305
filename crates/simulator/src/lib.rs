//! Scores heuristics over data sets, and over time.
//!
//! ```text
//!  dataset   inputs: published sets, ranges, random, files           row number or file ─► zones
//!  evaluate  every heuristic on every input, in parallel             ─► Summary (+ rows)
//!  score     the published score, and the best score possible
//!  summary   sums, extremes, worst inputs: mergeable, exact
//!  timeline  a sequence of states instead of independent inputs      ─► churn
//!  report    Summary and rows as table, CSV, JSON, Parquet, HTML
//!  published the figures of KEP-2004, to compare with
//! ```

pub mod dataset;
pub mod decimal;
pub mod evaluate;
pub mod part;
pub mod published;
pub mod report;
pub mod score;
pub mod summary;
pub mod timeline;
