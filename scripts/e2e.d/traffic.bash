# Connections that run while zonewise is installed, changed and removed, and what became of them.
#
#   callers, a Pod on every node ─── the Service's address ──┐
#   this machine ─────────────────── NodePort of every node ─┴─► web, 6 Pods
#
# Each calls in two ways, five times a second: `new` makes a connection for every request, `kept` has one for all. curl writes
# a line for each request: its status, how many connections it had to make, and how long it took. A request that is not answered
# has failed, and so has a kept connection when a second one is made.

readonly calls=$PWD/$results/calls ways=(new kept) outside_port=30080
readonly agnhost=registry.k8s.io/e2e-test-images/agnhost:2.63.0

# The processes that call from outside.
outside_callers=()

# call WAY ADDRESS: the words of the command, a line each. What it says goes to standard error, which is not buffered.
call() {
  printf '%s\n' curl --silent --rate 300/m --connect-timeout 5 --max-time 10 --output /dev/null \
    --write-out '%{stderr}%{http_code} %{num_connects} %{time_total}\n' "http://$2/hostname?[1-9999999]"
  [ "$1" = kept ] || printf '%s\n' --header 'Connection: close'
}

# A container of the callers for each way.
caller_containers() {
  local way
  for way in "${ways[@]}"; do
    printf '        - name: %s\n          image: %s\n          command:\n' "$way" "$agnhost"
    # In YAML a word in single quotes is taken as it is.
    call "$way" "\$(WEB_SERVICE_HOST)" | sed "s/.*/            - '&'/"
  done
}

# The containers of a Pod of `web`, as lines of its template. One that is deleted answers for as long as kube-proxy may need to
# hear of it, as any Pod must that is to be removed without a failed request.
web_containers() {
  cat <<EOF
      containers:
        - name: web
          image: $agnhost
          args: [netexec, --http-port=8080, --delay-shutdown=5]
          readinessProbe: {httpGet: {path: /hostname, port: 8080}}
EOF
}

traffic_objects() {
  cat <<EOF
apiVersion: v1
kind: Namespace
metadata: {name: traffic}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: traffic}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: $outside_port}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: traffic}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
$(web_containers)
EOF
}

callers() {
  cat <<EOF
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: callers, namespace: traffic}
spec:
  selector: {matchLabels: {app: callers}}
  template:
    metadata: {labels: {app: callers}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
$(caller_containers)
EOF
}

start_traffic() {
  local node way words
  rm -rf "$calls"
  mkdir -p "$calls"
  traffic_objects | kubectl apply -f - >/dev/null
  kubectl -n traffic rollout status deployment web --timeout=120s >/dev/null
  callers | kubectl apply -f - >/dev/null
  kubectl -n traffic rollout status daemonset callers --timeout=120s >/dev/null
  for node in $(nodes); do
    for way in "${ways[@]}"; do
      mapfile -t words < <(call "$way" "$(node_address "${node#n}"):$outside_port")
      "${words[@]}" 2>"$calls/outside-$node-$way.log" &
      outside_callers+=($!)
    done
  done
}

end_outside_callers() {
  [ ${#outside_callers[@]} = 0 ] || kill "${outside_callers[@]}" 2>/dev/null || true
  outside_callers=()
}

stop_traffic() {
  end_outside_callers
  kubectl delete namespace traffic >/dev/null
}

collect_calls() {
  local pod node way
  kubectl -n traffic get pods -l app=callers -o 'jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}' \
    | while read -r pod node; do
      for way in "${ways[@]}"; do kubectl -n traffic logs "$pod" -c "$way" >"$calls/pod-$node-$way.log"; done
    done
}

# The lines that were added since the last time: way, number in its file, status, connections, time.
new_calls() {
  local file lines seen way
  for file in "$calls"/*.log; do
    way=${file##*-}
    seen=$(cat "$file.seen" 2>/dev/null || echo 0)
    lines=$(wc -l <"$file")
    head -n "$lines" "$file" | tail -n "+$((seen + 1))" | awk -v way="${way%.log}" -v seen="$seen" '{ print way, seen + NR, $0 }'
    echo "$lines" >"$file.seen"
  done
}

# step WHAT COMMAND…: runs the command, and adds a line with what became of the connections meanwhile to the table.
step() {
  local what=$1 began=$SECONDS
  shift
  say "$what"
  "$@"
  # A connection that was cut at the end of the step shows a moment later.
  sleep 2
  collect_calls
  new_calls | awk -v what="$what" -v seconds=$((SECONDS - began)) '
    $1 == "new" { made++ }
    $3 != 200 || ($1 == "kept" && $2 > 1 && $4 > 0) { failed++; print "  failed: " $0 >"/dev/stderr" }
    $5 > slowest { slowest = $5 }
    END { printf "| %s | %d s | %d | %d | %d | %d ms |\n", what, seconds, NR, made, failed, slowest * 1000 }' >>"$calls/table"
}

traffic_table() {
  printf '| step | time | requests | of them on new connections | failed | slowest |\n|---|---:|---:|---:|---:|---:|\n'
  cat "$calls/table"
}

failed_calls() { awk -F ' *[|] *' '{ sum += $6 } END { print sum }' "$calls/table"; }
