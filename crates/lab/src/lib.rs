//! A multi-zone cluster on one Linux box.
