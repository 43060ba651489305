//! Events: what the planner and the proxy report about a Service, and `cluster` writes.

/// An event on a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its type.
    pub kind: EventType,
    /// A code in CamelCase, such as those of the table of reasons.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// The types of events that Kubernetes knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// All is as it should be.
    Normal,
    /// Something that a person should look into.
    Warning,
}
