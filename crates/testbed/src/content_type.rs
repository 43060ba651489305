//! The form in which our programs talk to the API server in tests.

/// Names it; without it, our programs use the one that they use by themselves, which is protobuf.
const VARIABLE: &str = "ZONEWISE_TEST_CONTENT_TYPE";

/// The media type that tests are to be run with, if one is named: `make test-json` runs all of them with JSON.
pub fn content_type() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|value| !value.is_empty())
}

/// The flag for it of `zonewise controller` and `zonewise proxy`.
pub fn content_type_flag() -> Option<String> {
    content_type().map(|media_type| format!("--kube-api-content-type={media_type}"))
}
