# The files that a node's programs read. A node sees its folder as /mnt, the programs as /opt, the images as /srv.

# configure_node NUMBER
configure_node() {
  local folder=$state/n$1
  mkdir -p "$folder"/{log,kubelet,containerd,cni,cni-state,pod-logs,container-logs}
  add_node_certificates "$1"
  node_addresses "$1" >"$folder/addresses"
  pod_network "$1" >"$folder/cni/10-pods.conflist"
  containerd_settings >"$folder/containerd.toml"
  kubelet_settings "$1" >"$folder/kubelet.yaml"
  # No name server outside the cluster is asked.
  : >"$folder/resolv.conf"
}

node_addresses() { both "$(node_address "$1")" "$(node_address6 "$1")"; }

pod_network() {
  local ranges="[{\"subnet\": \"$(node_pods "$1")\"}]" routes='{"dst": "0.0.0.0/0"}'
  if [ -n "${DUAL:-}" ]; then
    ranges+=", [{\"subnet\": \"$(node_pods6 "$1")\"}]"
    routes+=', {"dst": "::/0"}'
  fi
  cat <<EOF
{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "hairpinMode": true,
      "ipam": {"type": "host-local", "dataDir": "/mnt/cni-state", "ranges": [$ranges], "routes": [$routes]}
    },
    {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}
  ]
}
EOF
}

containerd_settings() {
  cat <<'EOF'
version = 3
root = "/mnt/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "registry.k8s.io/pause:3.10.2"
[plugins."io.containerd.cri.v1.runtime"]
  # Where this machine does not allow a process to be killed later than others, containers start all the same.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/opt"]
    conf_dir = "/mnt/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "/opt/runc"
      SystemdCgroup = false
EOF
}

kubelet_settings() {
  cat <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $(node_address "$1")
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /mnt/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /mnt/kubelet.crt
tlsPrivateKeyFile: /mnt/kubelet.key
clusterDNS: ["$dns_address"]
clusterDomain: cluster.local
resolvConf: /mnt/resolv.conf
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
# Each node has its part of this machine's control groups.
cgroupDriver: cgroupfs
cgroupRoot: /zonewise/n$1
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
# A machine whose disk is nearly full is no reason to evict Pods of a test.
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 4s
EOF
}

# The Node is made before its kubelet starts, which may not choose the range of its Pods by itself.
node_object() {
  cat <<EOF
apiVersion: v1
kind: Node
metadata:
  name: n$1
  labels:
    topology.kubernetes.io/region: zonewise
    topology.kubernetes.io/zone: $(node_zone "$1")
spec:
  podCIDR: $(node_pods "$1")
  podCIDRs: [$(both "\"$(node_pods "$1")\"" "\"$(node_pods6 "$1")\"")]
EOF
}
