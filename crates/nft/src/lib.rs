//! nftables and conntrack over netlink.
