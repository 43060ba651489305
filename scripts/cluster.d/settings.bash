# Names and addresses of a cluster. Every file of scripts/cluster reads this one first.
#
#   this machine ── zonewise0 ──┐  198.18.0.254
#                               │
#   ┌ control ──────────────────┴──────── bridge fabric: 198.18.0.1 ┐
#   │ etcd, kube-apiserver, kube-controller-manager, kube-scheduler │
#   └───┬───────────────────────┬───────────────────────┬───────────┘
#   ┌ n1 ┴ zone-a ─────────┐ ┌ n2 ┴ zone-b ─────────┐ ┌ n3 ┴ zone-c ─────────┐
#   │ eth0 198.18.0.11     │ │ eth0 198.18.0.12     │ │ eth0 198.18.0.13     │
#   │ kubelet, containerd  │ │                      │ │                      │
#   │ cni0 10.244.1.0/24   │ │ cni0 10.244.2.0/24   │ │ cni0 10.244.3.0/24   │
#   └──────────────────────┘ └──────────────────────┘ └──────────────────────┘
#
# A machine is a network, mount, host name and process namespace. Its first process is a script that starts the others, so
# that everything on a machine, containers included, ends with that process.

say() { printf 'cluster: %s\n' "$*" >&2; }
fail() { printf 'cluster: %s\n' "$*" >&2; exit 1; }

readonly cache=${ZONEWISE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zonewise}
readonly state=$cache/cluster-state
readonly kubeconfig=$state/admin.kubeconfig
readonly kubernetes_version=v1.36.4

# The range that RFC 2544 sets aside for tests, which no network of this machine is likely to use.
readonly fabric=198.18.0.0/24 control_address=198.18.0.1 control_address6=fd00:30::1
readonly host_link=zonewise0 host_address=198.18.0.254 host_address6=fd00:30::fe
readonly api_server=https://$control_address:6443
readonly dns_address=10.96.0.10

both() { if [ -n "${DUAL:-}" ]; then echo "$1,$2"; else echo "$1"; fi; }
services() { both 10.96.0.0/16 fd00:96::/108; }
pods() { both 10.244.0.0/16 fd00:244::/48; }

# Of node number $1.
node_address() { echo "198.18.0.$((10 + $1))"; }
node_address6() { printf 'fd00:30::1:%x\n' "$1"; }
node_pods() { echo "10.244.$1.0/24"; }
node_pods6() { printf 'fd00:244:0:%x::/64\n' "$1"; }
node_zone() { local zones=(a b c); echo "zone-${zones[($1 - 1) % 3]}"; }

# The network namespace of a machine, as `ip netns` names it.
namespace() { echo "zonewise-$1"; }
namespaces() { ip netns list | awk '$1 ~ /^zonewise-(control|n[0-9]+)$/ { print $1 }'; }
machines() { namespaces | sed 's/^zonewise-//'; }
nodes() { machines | grep -v '^control$' | sort -V; }

# The number of this machine that the first process of a machine has: the only one there that has the number 1 inside.
first_process() {
  local process
  for process in $(ip netns pids "$(namespace "$1")" 2>/dev/null); do
    if awk '/^NSpid:/ { exit !(NF == 3 && $3 == 1) }' "/proc/$process/status" 2>/dev/null; then
      echo "$process"
      return
    fi
  done
  return 1
}

# inside MACHINE COMMAND…
inside() {
  local process
  process=$(first_process "$1") || fail "$1 does not run; scripts/cluster status says what does"
  shift
  nsenter --target "$process" --mount --uts --net --pid -- "$@"
}

kubectl() { "$state/programs/kubectl" --kubeconfig "$kubeconfig" "$@"; }
