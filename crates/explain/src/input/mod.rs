//! Manifests and dumps, YAML or JSON, read as a stream.
