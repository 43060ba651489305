//! Which endpoints this node uses for each port of each Service, and why.
