//! Watches folded into compact indexes, the lease, events and writes.
