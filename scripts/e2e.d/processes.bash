# The program of the image as a process on the nodes of a cluster. Each function is a line of the table: what was looked at, and what came of
# it. It ends the run if that is not as it should be.

readonly proxy_process='^/usr/local/bin/zonewise proxy ' verified='tables read as a whole, as SIGUSR1 asks'

proxy_on() { inside "$1" pgrep -f "$proxy_process"; }
proxy_pod() { kubectl -n zonewise-system get pods -l app.kubernetes.io/name=zonewise-proxy --field-selector "spec.nodeName=$1" -o name; }

# wait_until SECONDS WHAT COMMAND…
wait_until() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "$what: not so far"
    sleep 0.2
  done
}

# found WHAT RESULT
found() { printf '| %s | %s |\n' "$1" "$2" >>"$results/processes"; }

# Bit 12 alone is CAP_NET_ADMIN.
has_net_admin_alone() {
  local node sets
  for node in $(nodes); do
    sets=$(inside "$node" awk '/^Cap(Prm|Eff|Bnd):/ { print $2 }' "/proc/$(proxy_on "$node")/status" | sort -u)
    [ "$sets" = 0000000000001000 ] || fail "the proxy on $node has the capabilities $sets, not NET_ADMIN alone"
  done
  found 'capabilities of the process (permitted, effective, bounding)' "NET_ADMIN alone, on $(nodes | wc -l) nodes"
}

has_made_the_settings() {
  local node codes setting=/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal
  codes=$(kubectl -n zonewise-system get pods -l app.kubernetes.io/name=zonewise-proxy \
    -o 'jsonpath={range .items[*]}{.status.initContainerStatuses[0].state.terminated.exitCode}{"\n"}{end}' | sort -u)
  [ "$codes" = 0 ] || fail "the init containers (--init-only) ended with $codes"
  for node in $(nodes); do
    [ "$(inside "$node" cat "$setting")" = 1 ] || fail "$setting on $node is not 1: --init-only has not made it"
  done
  found '`--init-only`, the init container' 'ended with 0 on each node, its settings are made; the size of the conntrack table, which belongs to the machine, was left'
}

answers() { inside "$1" curl -sf --max-time 2 -o /dev/null "http://$2/hostname"; }
is_in_table() { inside "$1" nft list map ip "$2" "$3" | grep -F "$4 . tcp . 80" >/dev/null; }

takes_only_labelled_services() {
  local node labelled other
  kubectl apply -f - >/dev/null <<EOF
apiVersion: v1
kind: Service
metadata: {name: labelled, namespace: traffic, labels: {service.kubernetes.io/service-proxy-name: zonewise}}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
EOF
  labelled=$(kubectl -n traffic get service labelled -o 'jsonpath={.spec.clusterIP}')
  other=$(kubectl -n traffic get service web -o 'jsonpath={.spec.clusterIP}')
  for node in $(nodes); do
    wait_until 10 "the labelled Service answers on $node" answers "$node" "$labelled"
    is_in_table "$node" zonewise services "$labelled" || fail "the labelled Service is not in our table on $node"
    ! is_in_table "$node" zonewise services "$other" || fail "our table on $node has a Service without the label"
    ! is_in_table "$node" kube-proxy service-ips "$labelled" || fail "kube-proxy's table on $node has the labelled Service"
    is_in_table "$node" kube-proxy service-ips "$other" || fail "kube-proxy's table on $node lacks a Service without the label"
  done
  kubectl -n traffic delete service labelled >/dev/null
  found '`--proxy-name zonewise`, beside kube-proxy' \
    "the labelled Service is in our table alone and answers on each node; the others are in kube-proxy's alone"
}

verified_times() { kubectl -n zonewise-system logs "$(proxy_pod "$1")" -c proxy | grep -cF "$verified" || true; }
has_verified_again() { [ "$(verified_times "$1")" -gt "$2" ]; }

# By the command of docs/proxy.md.
verifies_on_a_signal() {
  local before
  before=$(verified_times n1)
  kubectl debug node/n1 --profile=sysadmin --image="$agnhost" -- pkill -USR1 -f "$proxy_process" >/dev/null 2>&1
  wait_until 30 'the proxy on n1 has read its tables after SIGUSR1' has_verified_again n1 "$before"
  kubectl delete pod -l app.kubernetes.io/managed-by=kubectl-debug --now >/dev/null
  found 'SIGUSR1, by `kubectl debug node`' 'the tables are read as a whole, and the log says what came of it'
}

# Where tables have an owner, the kernel refuses; elsewhere the proxy writes them again.
keeps_its_tables() {
  local address began how=healed
  address=$(kubectl -n traffic get service web -o 'jsonpath={.spec.clusterIP}')
  inside n1 nft delete table ip zonewise 2>/dev/null || how='refused by the kernel'
  began=$(date +%s%N)
  until is_in_table n1 zonewise services "$address" 2>/dev/null; do
    [ $(($(date +%s%N) - began)) -lt 1000000000 ] || fail 'the rules on n1 are not back within a second'
  done
  found '`nft delete table ip zonewise`' "$how, rules complete after $((($(date +%s%N) - began) / 1000000)) ms"
}

is_another_process() { local now; now=$(proxy_on "$1") && [ "$now" != "$2" ]; }
has_taken_over() { kubectl -n zonewise-system logs "$(proxy_pod "$1")" -c proxy | grep 'rules are in place' >/dev/null; }

survives_a_kill() {
  local before
  before=$(proxy_on n1)
  inside n1 kill -KILL "$before"
  has_table n1 zonewise || fail 'the rules on n1 are gone with the process'
  wait_until 60 'the proxy on n1 runs again' is_another_process n1 "$before"
  wait_until 30 'the next proxy on n1 has taken the tables over' has_taken_over n1
  rolled_out
  found 'SIGKILL' 'the rules stay, and the next process takes them over'
}

# A Pod of the image, whose kubeconfig names the API server as DNS has it. It may read what people may who observe.
explainer() {
  cat <<EOF
apiVersion: v1
kind: ConfigMap
metadata: {name: by-name, namespace: zonewise-system}
data:
  config: |
    apiVersion: v1
    kind: Config
    current-context: by-name
    contexts: [{name: by-name, context: {cluster: by-name, user: by-name}}]
    clusters: [{name: by-name, cluster: {server: "https://kubernetes.default.svc", certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}}]
    users: [{name: by-name, user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}}]
---
apiVersion: v1
kind: Pod
metadata: {name: by-name, namespace: zonewise-system}
spec:
  serviceAccountName: zonewise-observer
  restartPolicy: Never
  securityContext: {runAsNonRoot: true}
  volumes: [{name: config, configMap: {name: by-name}}]
  containers:
    - name: explain
      image: zonewise:$(version_of HEAD)
      imagePullPolicy: Never
      args: [explain, traffic/web, --kubeconfig, /etc/by-name/config]
      volumeMounts: [{name: config, mountPath: /etc/by-name}]
EOF
}

has_ended() { [[ "$(kubectl -n zonewise-system get pod by-name -o 'jsonpath={.status.phase}')" =~ ^(Succeeded|Failed)$ ]]; }

resolves_names() {
  local said
  explainer | kubectl apply -f - >/dev/null
  wait_until 60 'the Pod that explains traffic/web has ended' has_ended
  said=$(kubectl -n zonewise-system logs by-name)
  [[ "$said" == *traffic/web* ]] || fail "the image's program does not find the API server by its name: $said"
  kubectl -n zonewise-system delete pod/by-name configmap/by-name --now >/dev/null
  found '`explain` in a Pod, with `https://kubernetes.default.svc` in its kubeconfig' 'the name is resolved, and the Service explained'
}

processes_table() {
  printf '| what was looked at | what came of it |\n|---|---|\n'
  cat "$results/processes"
}
