//! The kernel's numbers for netlink and nftables, under the names they have in its headers.
//!
//! Each section names its header below `linux/`
//! (<https://github.com/torvalds/linux/tree/v6.12/include/uapi/linux>). The last section holds numbers of the `nft` program:
//! the kernel stores them for it and does not look at them.

// linux/netlink.h: messages

pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_APPEND: u16 = 0x800;
/// On `NLMSG_ERROR`: only the header of the request is repeated.
pub(crate) const NLM_F_CAPPED: u16 = 0x100;
/// On `NLMSG_ERROR`: attributes of `enum nlmsgerr_attrs` follow.
pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
/// Length of `struct nlmsghdr`.
pub(crate) const NLMSG_HDRLEN: usize = 16;
pub(crate) const NLMSG_ALIGNTO: usize = 4;

pub(crate) const NLMSGERR_ATTR_MSG: u16 = 1;
pub(crate) const NLMSGERR_ATTR_OFFS: u16 = 2;

// linux/netlink.h: attributes

/// Length of `struct nlattr`.
pub(crate) const NLA_HDRLEN: usize = 4;
pub(crate) const NLA_ALIGNTO: usize = 4;
pub(crate) const NLA_F_NESTED: u16 = 0x8000;
pub(crate) const NLA_TYPE_MASK: u16 = 0x3fff;

// linux/netfilter/nfnetlink.h

/// Length of `struct nfgenmsg`, which follows the netlink header.
pub(crate) const NFGENMSG_LEN: usize = 4;
pub(crate) const NFNL_SUBSYS_CTNETLINK: u16 = 1;
pub(crate) const NFNL_SUBSYS_NFTABLES: u16 = 10;
pub(crate) const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub(crate) const NFNL_MSG_BATCH_END: u16 = 0x11;
pub(crate) const NFNL_BATCH_GENID: u16 = 1;

/// `NFNL_MSG_TYPE`: a message type without its subsystem.
pub(crate) const fn nfnl_msg_type(kind: u16) -> u16 {
    kind & 0xff
}

/// The type of a message of a subsystem.
pub(crate) const fn nfnl_message(subsystem: u16, kind: u16) -> u16 {
    (subsystem << 8) | kind
}

// linux/netfilter.h

pub(crate) const NFPROTO_UNSPEC: u8 = 0;
pub(crate) const NFPROTO_IPV4: u8 = 2;
pub(crate) const NFPROTO_IPV6: u8 = 10;

pub(crate) const NF_INET_PRE_ROUTING: u32 = 0;
pub(crate) const NF_INET_LOCAL_IN: u32 = 1;
pub(crate) const NF_INET_FORWARD: u32 = 2;
pub(crate) const NF_INET_LOCAL_OUT: u32 = 3;
pub(crate) const NF_INET_POST_ROUTING: u32 = 4;

pub(crate) const NF_DROP: i32 = 0;
pub(crate) const NF_ACCEPT: i32 = 1;

// linux/netfilter/nf_tables.h: messages

pub(crate) const NFT_MSG_NEWTABLE: u16 = 0;
pub(crate) const NFT_MSG_GETTABLE: u16 = 1;
pub(crate) const NFT_MSG_DELTABLE: u16 = 2;
pub(crate) const NFT_MSG_NEWCHAIN: u16 = 3;
pub(crate) const NFT_MSG_GETCHAIN: u16 = 4;
pub(crate) const NFT_MSG_DELCHAIN: u16 = 5;
pub(crate) const NFT_MSG_NEWRULE: u16 = 6;
pub(crate) const NFT_MSG_GETRULE: u16 = 7;
pub(crate) const NFT_MSG_DELRULE: u16 = 8;
pub(crate) const NFT_MSG_NEWSET: u16 = 9;
pub(crate) const NFT_MSG_GETSET: u16 = 10;
pub(crate) const NFT_MSG_DELSET: u16 = 11;
pub(crate) const NFT_MSG_NEWSETELEM: u16 = 12;
pub(crate) const NFT_MSG_GETSETELEM: u16 = 13;
pub(crate) const NFT_MSG_DELSETELEM: u16 = 14;
pub(crate) const NFT_MSG_GETGEN: u16 = 16;
pub(crate) const NFT_MSG_NEWOBJ: u16 = 18;
pub(crate) const NFT_MSG_GETOBJ: u16 = 19;
pub(crate) const NFT_MSG_DELOBJ: u16 = 20;

// linux/netfilter/nf_tables.h: tables, chains, rules, generation

pub(crate) const NFTA_TABLE_NAME: u16 = 1;
pub(crate) const NFTA_TABLE_FLAGS: u16 = 2;
pub(crate) const NFTA_TABLE_USERDATA: u16 = 6;
pub(crate) const NFTA_TABLE_OWNER: u16 = 7;

pub(crate) const NFT_TABLE_F_OWNER: u32 = 0x2;
/// Since Linux 6.9.
pub(crate) const NFT_TABLE_F_PERSIST: u32 = 0x4;

pub(crate) const NFTA_CHAIN_TABLE: u16 = 1;
pub(crate) const NFTA_CHAIN_NAME: u16 = 3;
pub(crate) const NFTA_CHAIN_HOOK: u16 = 4;
pub(crate) const NFTA_CHAIN_POLICY: u16 = 5;
pub(crate) const NFTA_CHAIN_TYPE: u16 = 7;
pub(crate) const NFTA_CHAIN_USERDATA: u16 = 12;

pub(crate) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(crate) const NFTA_HOOK_PRIORITY: u16 = 2;

pub(crate) const NFTA_RULE_TABLE: u16 = 1;
pub(crate) const NFTA_RULE_CHAIN: u16 = 2;
pub(crate) const NFTA_RULE_HANDLE: u16 = 3;
pub(crate) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(crate) const NFTA_RULE_USERDATA: u16 = 7;

pub(crate) const NFTA_GEN_ID: u16 = 1;

pub(crate) const NFTA_LIST_ELEM: u16 = 1;

// linux/netfilter/nf_tables.h: sets and their elements

pub(crate) const NFTA_SET_TABLE: u16 = 1;
pub(crate) const NFTA_SET_NAME: u16 = 2;
pub(crate) const NFTA_SET_FLAGS: u16 = 3;
pub(crate) const NFTA_SET_KEY_TYPE: u16 = 4;
pub(crate) const NFTA_SET_KEY_LEN: u16 = 5;
pub(crate) const NFTA_SET_DATA_TYPE: u16 = 6;
pub(crate) const NFTA_SET_DATA_LEN: u16 = 7;
pub(crate) const NFTA_SET_DESC: u16 = 9;
pub(crate) const NFTA_SET_ID: u16 = 10;
pub(crate) const NFTA_SET_USERDATA: u16 = 13;
pub(crate) const NFTA_SET_OBJ_TYPE: u16 = 15;
pub(crate) const NFTA_SET_EXPR: u16 = 17;

pub(crate) const NFT_SET_INTERVAL: u32 = 0x4;
pub(crate) const NFT_SET_MAP: u32 = 0x8;
pub(crate) const NFT_SET_TIMEOUT: u32 = 0x10;
pub(crate) const NFT_SET_EVAL: u32 = 0x20;
pub(crate) const NFT_SET_OBJECT: u32 = 0x40;
pub(crate) const NFT_SET_CONCAT: u32 = 0x80;

pub(crate) const NFTA_SET_DESC_SIZE: u16 = 1;
pub(crate) const NFTA_SET_DESC_CONCAT: u16 = 2;
pub(crate) const NFTA_SET_FIELD_LEN: u16 = 1;

/// The data type of verdict maps.
pub(crate) const NFT_DATA_VERDICT: u32 = 0xffff_ff00;
/// The longest key or data.
pub(crate) const NFT_DATA_VALUE_MAXLEN: usize = 64;

pub(crate) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(crate) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(crate) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;

pub(crate) const NFTA_SET_ELEM_KEY: u16 = 1;
pub(crate) const NFTA_SET_ELEM_DATA: u16 = 2;
pub(crate) const NFTA_SET_ELEM_FLAGS: u16 = 3;
pub(crate) const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
pub(crate) const NFTA_SET_ELEM_EXPIRATION: u16 = 5;
pub(crate) const NFTA_SET_ELEM_USERDATA: u16 = 6;
pub(crate) const NFTA_SET_ELEM_EXPR: u16 = 7;
pub(crate) const NFTA_SET_ELEM_OBJREF: u16 = 9;
pub(crate) const NFTA_SET_ELEM_KEY_END: u16 = 10;
pub(crate) const NFTA_SET_ELEM_EXPRESSIONS: u16 = 11;

pub(crate) const NFT_SET_ELEM_INTERVAL_END: u32 = 0x1;

// linux/netfilter/nf_tables.h: named objects

pub(crate) const NFTA_OBJ_TABLE: u16 = 1;
pub(crate) const NFTA_OBJ_NAME: u16 = 2;
pub(crate) const NFTA_OBJ_TYPE: u16 = 3;
pub(crate) const NFTA_OBJ_DATA: u16 = 4;
pub(crate) const NFTA_OBJ_USERDATA: u16 = 8;

pub(crate) const NFT_OBJECT_COUNTER: u32 = 1;

// linux/netfilter/nf_tables.h: data and verdicts

pub(crate) const NFTA_DATA_VALUE: u16 = 1;
pub(crate) const NFTA_DATA_VERDICT: u16 = 2;

pub(crate) const NFTA_VERDICT_CODE: u16 = 1;
pub(crate) const NFTA_VERDICT_CHAIN: u16 = 2;

pub(crate) const NFT_JUMP: i32 = -3;
pub(crate) const NFT_GOTO: i32 = -4;
pub(crate) const NFT_RETURN: i32 = -5;

// linux/netfilter/nf_tables.h: expressions

pub(crate) const NFT_REG_VERDICT: u32 = 0;
/// The first of 16 registers of four bytes.
pub(crate) const NFT_REG32_00: u32 = 8;

pub(crate) const NFTA_EXPR_NAME: u16 = 1;
pub(crate) const NFTA_EXPR_DATA: u16 = 2;

pub(crate) const NFTA_IMMEDIATE_DREG: u16 = 1;
pub(crate) const NFTA_IMMEDIATE_DATA: u16 = 2;

pub(crate) const NFTA_BITWISE_SREG: u16 = 1;
pub(crate) const NFTA_BITWISE_DREG: u16 = 2;
pub(crate) const NFTA_BITWISE_LEN: u16 = 3;
pub(crate) const NFTA_BITWISE_MASK: u16 = 4;
pub(crate) const NFTA_BITWISE_XOR: u16 = 5;

pub(crate) const NFTA_CMP_SREG: u16 = 1;
pub(crate) const NFTA_CMP_OP: u16 = 2;
pub(crate) const NFTA_CMP_DATA: u16 = 3;
pub(crate) const NFT_CMP_EQ: u32 = 0;
pub(crate) const NFT_CMP_NEQ: u32 = 1;

pub(crate) const NFTA_LOOKUP_SET: u16 = 1;
pub(crate) const NFTA_LOOKUP_SREG: u16 = 2;
pub(crate) const NFTA_LOOKUP_DREG: u16 = 3;
pub(crate) const NFTA_LOOKUP_FLAGS: u16 = 5;
pub(crate) const NFT_LOOKUP_F_INV: u32 = 0x1;

pub(crate) const NFTA_DYNSET_SET_NAME: u16 = 1;
pub(crate) const NFTA_DYNSET_OP: u16 = 3;
pub(crate) const NFTA_DYNSET_SREG_KEY: u16 = 4;
pub(crate) const NFTA_DYNSET_SREG_DATA: u16 = 5;
pub(crate) const NFTA_DYNSET_TIMEOUT: u16 = 6;
pub(crate) const NFT_DYNSET_OP_UPDATE: u32 = 1;

pub(crate) const NFTA_PAYLOAD_DREG: u16 = 1;
pub(crate) const NFTA_PAYLOAD_BASE: u16 = 2;
pub(crate) const NFTA_PAYLOAD_OFFSET: u16 = 3;
pub(crate) const NFTA_PAYLOAD_LEN: u16 = 4;
pub(crate) const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
pub(crate) const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;

pub(crate) const NFTA_META_DREG: u16 = 1;
pub(crate) const NFTA_META_KEY: u16 = 2;
pub(crate) const NFTA_META_SREG: u16 = 3;
pub(crate) const NFT_META_MARK: u32 = 3;
pub(crate) const NFT_META_IIFNAME: u32 = 6;
pub(crate) const NFT_META_L4PROTO: u32 = 16;

pub(crate) const NFTA_CT_DREG: u16 = 1;
pub(crate) const NFTA_CT_KEY: u16 = 2;
pub(crate) const NFTA_CT_DIRECTION: u16 = 3;
pub(crate) const NFT_CT_STATE: u32 = 0;
pub(crate) const NFT_CT_STATUS: u32 = 2;
pub(crate) const NFT_CT_PROTO_DST: u32 = 12;
pub(crate) const NFT_CT_SRC_IP: u32 = 19;
pub(crate) const NFT_CT_DST_IP: u32 = 20;
pub(crate) const NFT_CT_SRC_IP6: u32 = 21;
pub(crate) const NFT_CT_DST_IP6: u32 = 22;

pub(crate) const NFTA_COUNTER_BYTES: u16 = 1;
pub(crate) const NFTA_COUNTER_PACKETS: u16 = 2;

pub(crate) const NFTA_REJECT_TYPE: u16 = 1;
pub(crate) const NFTA_REJECT_ICMP_CODE: u16 = 2;
pub(crate) const NFT_REJECT_ICMP_UNREACH: u32 = 0;

pub(crate) const NFTA_NAT_TYPE: u16 = 1;
pub(crate) const NFTA_NAT_FAMILY: u16 = 2;
pub(crate) const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
pub(crate) const NFTA_NAT_REG_PROTO_MIN: u16 = 5;
pub(crate) const NFT_NAT_DNAT: u32 = 1;

pub(crate) const NFTA_MASQ_FLAGS: u16 = 1;

pub(crate) const NFTA_FIB_DREG: u16 = 1;
pub(crate) const NFTA_FIB_RESULT: u16 = 2;
pub(crate) const NFTA_FIB_FLAGS: u16 = 3;
pub(crate) const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
pub(crate) const NFTA_FIB_F_SADDR: u32 = 0x1;
pub(crate) const NFTA_FIB_F_DADDR: u32 = 0x2;

pub(crate) const NFTA_OBJREF_IMM_TYPE: u16 = 1;
pub(crate) const NFTA_OBJREF_IMM_NAME: u16 = 2;
pub(crate) const NFTA_OBJREF_SET_SREG: u16 = 3;
pub(crate) const NFTA_OBJREF_SET_NAME: u16 = 4;

pub(crate) const NFTA_NG_DREG: u16 = 1;
pub(crate) const NFTA_NG_MODULUS: u16 = 2;
pub(crate) const NFTA_NG_TYPE: u16 = 3;
pub(crate) const NFTA_NG_OFFSET: u16 = 4;
pub(crate) const NFT_NG_RANDOM: u32 = 1;

// linux/netfilter/nf_conntrack_common.h, nf_conntrack_tuple_common.h, nf_nat.h

/// `NF_CT_STATE_BIT(IP_CT_NEW)`.
pub(crate) const NF_CT_STATE_BIT_NEW: u32 = 0x8;
pub(crate) const IPS_SEEN_REPLY: u32 = 0x02;
pub(crate) const IPS_ASSURED: u32 = 0x04;
pub(crate) const IPS_CONFIRMED: u32 = 0x08;
pub(crate) const IPS_DST_NAT: u32 = 0x20;
pub(crate) const IPS_DYING: u32 = 0x200;
pub(crate) const IP_CT_DIR_ORIGINAL: u8 = 0;
pub(crate) const NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 0x10;

// linux/netfilter/nf_conntrack_tcp.h, linux/in.h

pub(crate) const TCP_CONNTRACK_CLOSE: u8 = 8;
pub(crate) const IPPROTO_TCP: u8 = 6;

// linux/netfilter/nfnetlink_conntrack.h

pub(crate) const IPCTNL_MSG_CT_GET: u16 = 1;
pub(crate) const IPCTNL_MSG_CT_DELETE: u16 = 2;

/// The multicast group of flows that have ended.
pub(crate) const NFNLGRP_CONNTRACK_DESTROY: u32 = 3;

pub(crate) const CTA_TUPLE_ORIG: u16 = 1;
pub(crate) const CTA_TUPLE_REPLY: u16 = 2;
pub(crate) const CTA_STATUS: u16 = 3;
pub(crate) const CTA_PROTOINFO: u16 = 4;
pub(crate) const CTA_COUNTERS_ORIG: u16 = 9;
pub(crate) const CTA_COUNTERS_REPLY: u16 = 10;
pub(crate) const CTA_ID: u16 = 12;
pub(crate) const CTA_ZONE: u16 = 18;
pub(crate) const CTA_STATUS_MASK: u16 = 26;

pub(crate) const CTA_COUNTERS_BYTES: u16 = 2;

pub(crate) const CTA_PROTOINFO_TCP: u16 = 1;
pub(crate) const CTA_PROTOINFO_TCP_STATE: u16 = 1;

pub(crate) const CTA_TUPLE_IP: u16 = 1;
pub(crate) const CTA_TUPLE_PROTO: u16 = 2;

pub(crate) const CTA_IP_V4_SRC: u16 = 1;
pub(crate) const CTA_IP_V4_DST: u16 = 2;
pub(crate) const CTA_IP_V6_SRC: u16 = 3;
pub(crate) const CTA_IP_V6_DST: u16 = 4;

pub(crate) const CTA_PROTO_NUM: u16 = 1;
pub(crate) const CTA_PROTO_SRC_PORT: u16 = 2;
pub(crate) const CTA_PROTO_DST_PORT: u16 = 3;

// linux/bpf_common.h, linux/filter.h

pub(crate) const BPF_LD: u16 = 0x00;
pub(crate) const BPF_LDX: u16 = 0x01;
pub(crate) const BPF_ALU: u16 = 0x04;
pub(crate) const BPF_JMP: u16 = 0x05;
pub(crate) const BPF_RET: u16 = 0x06;
pub(crate) const BPF_MISC: u16 = 0x07;
pub(crate) const BPF_W: u16 = 0x00;
pub(crate) const BPF_B: u16 = 0x10;
pub(crate) const BPF_IMM: u16 = 0x00;
pub(crate) const BPF_ABS: u16 = 0x20;
pub(crate) const BPF_IND: u16 = 0x40;
pub(crate) const BPF_AND: u16 = 0x50;
pub(crate) const BPF_JEQ: u16 = 0x10;
pub(crate) const BPF_TAX: u16 = 0x00;
/// -0x1000.
pub(crate) const SKF_AD_OFF: u32 = 0xffff_f000;
pub(crate) const SKF_AD_NLATTR: u32 = 12;
pub(crate) const SKF_AD_NLATTR_NEST: u32 = 16;

// linux/rtnetlink.h, linux/icmp.h, linux/icmpv6.h, linux/if.h

pub(crate) const RTN_LOCAL: u32 = 2;
pub(crate) const ICMP_PORT_UNREACH: u8 = 3;
pub(crate) const ICMPV6_PORT_UNREACH: u8 = 4;
pub(crate) const IFNAMSIZ: usize = 16;

// The `nft` program's user data: libnftnl's udata.h

pub(crate) const NFTNL_UDATA_TABLE_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_CHAIN_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_RULE_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_OBJ_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_SET_ELEM_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_SET_KEYBYTEORDER: u8 = 0;
pub(crate) const NFTNL_UDATA_SET_KEY_TYPEOF: u8 = 3;
pub(crate) const NFTNL_UDATA_SET_DATA_TYPEOF: u8 = 4;
pub(crate) const NFTNL_UDATA_SET_COMMENT: u8 = 7;
pub(crate) const NFTNL_UDATA_SET_TYPEOF_EXPR: u8 = 0;
pub(crate) const NFTNL_UDATA_SET_TYPEOF_DATA: u8 = 1;
/// The longest comment that `nft` accepts, with its NUL byte.
pub(crate) const NFTNL_UDATA_COMMENT_MAXLEN: usize = 128;

// The `nft` program's types and expressions: nftables' datatype.h, expression.h, proto.h

pub(crate) const BYTEORDER_INVALID: u32 = 0;
pub(crate) const BYTEORDER_HOST_ENDIAN: u32 = 1;
pub(crate) const BYTEORDER_BIG_ENDIAN: u32 = 2;

pub(crate) const TYPE_INTEGER: u32 = 4;
pub(crate) const TYPE_IPADDR: u32 = 7;
pub(crate) const TYPE_IP6ADDR: u32 = 8;
pub(crate) const TYPE_INET_PROTOCOL: u32 = 12;
pub(crate) const TYPE_INET_SERVICE: u32 = 13;
/// Bits of each type in the type of a concatenation.
pub(crate) const TYPE_BITS: u32 = 6;

pub(crate) const EXPR_VERDICT: u32 = 1;
pub(crate) const EXPR_PAYLOAD: u32 = 7;
pub(crate) const EXPR_META: u32 = 9;
pub(crate) const EXPR_CONCAT: u32 = 13;
pub(crate) const EXPR_NUMGEN: u32 = 23;

pub(crate) const PROTO_DESC_TH: u32 = 11;
pub(crate) const PROTO_DESC_IP: u32 = 12;
pub(crate) const PROTO_DESC_IP6: u32 = 13;
pub(crate) const THDR_DPORT: u32 = 2;
pub(crate) const IPHDR_DADDR: u32 = 12;
pub(crate) const IP6HDR_DADDR: u32 = 9;
