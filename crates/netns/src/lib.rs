//! Nodes, pods and clients as network namespaces on one box.
