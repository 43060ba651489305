# The network of a cluster: a namespace per machine, a bridge that connects them, routes to the Pods of each node.

# in_namespace MACHINE COMMAND…, without the machine's other namespaces.
in_namespace() {
  local name
  name=$(namespace "$1")
  shift
  ip netns exec "$name" "$@"
}

# add_namespace MACHINE
add_namespace() {
  ip netns add "$(namespace "$1")"
  in_namespace "$1" ip link set lo up
  in_namespace "$1" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
  [ -z "${DUAL:-}" ] || in_namespace "$1" sysctl -qw net.ipv6.conf.all.forwarding=1
}

# add_addresses MACHINE LINK IPV4 IPV6
add_addresses() {
  in_namespace "$1" ip addr add "$3/24" dev "$2"
  [ -z "${DUAL:-}" ] || in_namespace "$1" ip addr add "$4/64" dev "$2" nodad
  in_namespace "$1" ip link set "$2" up
}

# The bridge is in the namespace of the control plane, where no firewall of this machine sees what passes.
add_fabric() {
  add_namespace control
  in_namespace control ip link add fabric type bridge
  add_addresses control fabric "$control_address" "$control_address6"
  ip link add "$host_link" type veth peer name host netns "$(namespace control)"
  in_namespace control ip link set host master fabric up
  ip addr add "$host_address/24" dev "$host_link"
  [ -z "${DUAL:-}" ] || ip addr add "$host_address6/64" dev "$host_link" nodad
  ip link set "$host_link" up
}

# add_node_network NUMBER
add_node_network() {
  local node=n$1
  add_namespace "$node"
  ip link add eth0 netns "$(namespace "$node")" type veth peer name "$node" netns "$(namespace control)"
  in_namespace control ip link set "$node" master fabric up
  add_addresses "$node" eth0 "$(node_address "$1")" "$(node_address6 "$1")"
  in_namespace "$node" ip route add default via "$control_address"
  [ -z "${DUAL:-}" ] || in_namespace "$node" ip -6 route add default via "$control_address6"
  # Answers between Pods of one node pass the bridge, and must find the way back through the Service's address.
  in_namespace "$node" sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1
}

# add_pod_routes NUMBER MACHINE: the way from that machine to the Pods of that node.
add_pod_routes() {
  in_namespace "$2" ip route add "$(node_pods "$1")" via "$(node_address "$1")"
  [ -z "${DUAL:-}" ] || in_namespace "$2" ip -6 route add "$(node_pods6 "$1")" via "$(node_address6 "$1")"
}

# add_network NODES
add_network() {
  local to from
  add_fabric
  for to in $(seq "$1"); do add_node_network "$to"; done
  for to in $(seq "$1"); do
    add_pod_routes "$to" control
    for from in $(seq "$1"); do [ "$from" = "$to" ] || add_pod_routes "$to" "n$from"; done
  done
}
