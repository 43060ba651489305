# Misconfigurations that people make, made on purpose on a cluster without zonewise: `zonewise check` names each of them, and the fix
# that it prints works. Where that is a sentence and no command, what it says is done here.

# A folder with the programs that printed commands call.
checking_tools() {
  local tools=$PWD/$results/tools
  mkdir -p "$tools"
  ln -sfn "$(realpath "$(scripts/image --build)")" "$tools/zonewise"
  ln -sfn "$(realpath "$(scripts/helm)")" "$tools/helm"
  ln -sfn "$(realpath "$state/programs/kubectl")" "$tools/kubectl"
  echo "$tools"
}

# with_tools COMMAND…
with_tools() { PATH=$PWD/$results/tools:$PATH KUBECONFIG=$kubeconfig "$@"; }

checked() { with_tools zonewise check "$@" 2>/dev/null || true; }

# about CHECK: the finding, its fix and commands if it has failed or warns; otherwise nothing.
about() { checked | awk -v name="$1" '/^[^ ]/ { on = ($1 == "✗" || $1 == "!") && $2 == name } on'; }

is_found() { [ -n "$(about "$1")" ]; }
is_mended() { [ -z "$(about "$1")" ]; }

# Commands of a finding, with what the reader has to fill in. kube-controller-manager is started by hand here, and can be told to
# leave slices alone: guard mode, for control planes that others run, is left out, as `check --pre` says.
commands_of() { sed -n 's/^      //p' | sed -e 's|REGISTRY/||' -e 's/ --set controller.mode=guard$//' -e "s/=ZONE$/=$(node_zone 2)/"; }

# fault WHAT CHECK HOW: waits until it is found, fixes it, and waits until it is gone. HOW is `printed` for the commands that were
# printed, or a command that does what the fix says.
fault() {
  local what=$1 check=$2 said line
  shift 2
  wait_until 120 "$what: \`$check\` finds it" is_found "$check"
  said=$(about "$check")
  if [ "$1" = printed ]; then
    commands_of <<<"$said" | while IFS= read -r line; do
      with_tools bash -c "$line" >/dev/null </dev/null || fail "$what: the printed command fails: $line"
    done
  else
    "$@" >/dev/null
  fi
  wait_until 120 "$what: \`$check\` passes after the fix: $said" is_mended "$check"
  mkdir -p "$results/faults"
  printf '| %s | `%s`: %s | %s |\n' "$what" "$check" "$(sed -n '1s/^[^ ]* [^ ]* *//p' <<<"$said" | sed 's/|/\\|/g')" \
    "$(if [ "$1" = printed ]; then echo 'the printed command'; else sed -n 's/^    fix: //p' <<<"$said"; fi)" >>"$results/faults/table"
  say "found and fixed: $what"
}

# release VALUE…: the release with other values.
release() {
  local value values=()
  for value in "$@"; do values+=(--set "$value"); done
  helm upgrade zonewise deploy/chart --reuse-values "${values[@]}" --wait --timeout 3m
}

# As release, without waiting: the Pods do not become ready.
broken_release() { helm upgrade zonewise deploy/chart --reuse-values --set "$1"; }

faults_run() {
  checking_tools >/dev/null
  rm -rf "$results/faults"
  checked --pre >"$results/pre"
  ! grep -q '^✗' "$results/pre" || fail "check --pre finds a fault in a cluster that is in order: $(cat "$results/pre")"
  traffic_objects | kubectl apply -f - >/dev/null
  kubectl -n traffic rollout status deployment web --timeout=120s >/dev/null
  kubectl -n traffic annotate service web zonewise.dev/routing-preference=zonewise.dev/balanced >/dev/null
  faults_of_the_controller
  faults_of_the_proxy
  faults_of_cpu_use
  faults_of_guard_mode
  kubectl delete namespace traffic >/dev/null
}

faults_of_the_controller() {
  fault 'zonewise is not installed' namespace printed
  kubectl -n zonewise-system rollout status deployment zonewise-controller --timeout=120s >/dev/null
  kubectl -n traffic scale deployment web --replicas 7 >/dev/null
  fault 'the built-in EndpointSlice controller still runs' second-writer turn_built_in_off
  kubectl label node n2 topology.kubernetes.io/zone- >/dev/null
  fault 'a node has no zone' node-zones printed
  broken_release image.tag=none
  wait_until 60 'a Pod waits for an image that does not exist' has_pod_without_image
  fault 'an image that no node can pull' controller release "image.tag=$(version_of HEAD)"
  kubectl -n zonewise-system scale deployment zonewise-controller --replicas 0 >/dev/null
  fault 'the controller has no replica' controller printed
}

has_pod_without_image() {
  kubectl -n zonewise-system get pods -o 'jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}' | grep -E 'ImagePull' >/dev/null
}

# As docs/install.md says.
turn_built_in_off() {
  scripts/cluster slices off
  with_tools kubectl -n zonewise-system rollout restart deployment zonewise-controller
  with_tools kubectl -n zonewise-system rollout status deployment zonewise-controller --timeout=120s
}

faults_of_the_proxy() {
  release proxy.mode=replace proxy.nodes=all
  # Helm does not wait for the last node, and the printed commands are for the nodes that have the proxy.
  kubectl -n zonewise-system rollout status daemonset zonewise-proxy --timeout=120s >/dev/null
  fault 'kube-proxy runs on nodes that have our proxy' service-proxy printed
  # The first of the printed commands has kept the DaemonSet as it was: restore_daemon_set brings that back.
  mv kube-proxy.yaml "$results/kube-proxy.yaml"
  kubectl -n zonewise-system rollout restart daemonset zonewise-proxy >/dev/null
  kubectl -n zonewise-system rollout status daemonset zonewise-proxy --timeout=120s >/dev/null
  kubectl label namespace zonewise-system pod-security.kubernetes.io/enforce=baseline --overwrite >/dev/null
  kubectl -n zonewise-system delete "$(proxy_pod n1)" >/dev/null
  fault 'Pod Security forbids the proxy' proxies printed
  kubectl -n zonewise-system rollout status daemonset zonewise-proxy --timeout=120s >/dev/null
  kubectl -n zonewise-system delete rolebinding zonewise-proxy >/dev/null
  fault 'a RoleBinding of the proxy is missing' proxy-reports printed
}

# With a real metrics-server: what Pods use decides how much the zones of `web` get, and what is missing for that is found.
faults_of_cpu_use() {
  kubectl -n traffic scale deployment web --replicas 6 >/dev/null
  kubectl -n traffic delete pods -l app=web --wait >/dev/null
  kubectl -n traffic rollout status deployment web --timeout=120s >/dev/null
  callers | kubectl apply -f - >/dev/null
  kubectl -n traffic rollout status daemonset callers --timeout=120s >/dev/null
  scripts/cluster metrics on
  keep_busy "$(node_zone 1)"
  kubectl -n traffic annotate service web zonewise.dev/endpoint-weight=cpu-use >/dev/null
  fault 'the CPU that endpoints use is not read' cpu-use printed
  wait_until 300 'the endpoints of the busy zone count for less' counts_for_less "$(node_zone 1)"
  goes_by_use "$(node_zone 1)"
  scripts/cluster metrics off
  fault 'there is no metrics API' cpu-use scripts/cluster metrics on
  kubectl -n traffic annotate service web zonewise.dev/endpoint-weight- >/dev/null
  kubectl -n traffic delete daemonset callers >/dev/null
  release demand.podMetrics=false
  scripts/cluster metrics off
}

# keep_busy ZONE: the Pods of `web` there use about a third of a core each, for ten minutes.
keep_busy() {
  local pod node
  web_pods | while read -r pod node; do
    [ "$(node_zone "${node#n}")" = "$1" ] || continue
    kubectl -n traffic exec "$pod" -- bash -c '
      work() { while [ "$SECONDS" -lt 600 ]; do for ((i = 0; i < 30000; i++)); do :; done; sleep 0.2; done; }
      work >/dev/null 2>&1 </dev/null &' </dev/null
  done
}

# What `explain` says of the CPU use of a zone's endpoints, without what stands in front of it.
use_of() {
  with_tools zonewise explain traffic/web -o json | grep -A 1 "\"source\": \"zone $1\"" \
    | sed -nE 's/.*(its endpoints count for [^"]*).*/\1/p'
}

counts_for_less() { [ "$(use_of "$1" | grep -oE '^its endpoints count for [0-9]+' | grep -oE '[0-9]+$')" -le 90 ]; }

# goes_by_use ZONE: with two of six endpoints, it answers a third of the requests if all count the same. Of 360 requests that is
# 33 % give or take 2.5.
goes_by_use() {
  local share
  [ "$(web_pods | wc -l)" = 6 ] || fail "web has not six Pods: $(web_pods | xargs)"
  share=$(share_answered_in "$1")
  [ "$share" -lt 25 ] || fail "the endpoints of $1 answer $share % of the requests, as if they counted the same: $(use_of "$1")"
  say "the endpoints of $1 answer $share % of the requests, and a third if all count the same: $(use_of "$1")"
}

# share_answered_in ZONE: of requests from all nodes, as many from each, the percentage that is answered there.
share_answered_in() {
  local pods pod node
  pods=$(web_pods | while read -r pod node; do [ "$(node_zone "${node#n}")" != "$1" ] || echo "$pod"; done | paste -sd ' ')
  answers | awk -v pods="$pods" '
    BEGIN { split(pods, names); for (place in names) there[names[place]] = 1 }
    { all++; if ($2 in there) found++ }
    END { printf "%d", all ? 100 * found / all : 100 }'
}

faults_of_guard_mode() {
  # Back to what a managed cluster has.
  restore_daemon_set
  release proxy.mode=none
  scripts/cluster slices on
  release controller.mode=guard
  wait_until 60 'guard mode is in force for web' enforced
  kubectl delete crd zoneallocations.zonewise.dev >/dev/null
  fault 'the definition of ZoneAllocations is missing' guard-policy printed
  wait_until 60 'guard mode is in force for web again' enforced
  end_controllers
  kubectl patch mutatingadmissionpolicy zonewise-guard --type=merge -p '{"spec":{"failurePolicy":"Fail"}}' >/dev/null
  fault 'the admission policy refuses slices when it fails' guard-policy printed
  helm uninstall zonewise --wait
  fault 'guard mode is uninstalled without `guard remove`' guard-policy printed
  kubectl delete crd/zoneallocations.zonewise.dev namespace/zonewise-system >/dev/null
  kubectl label nodes --all zonewise.dev/proxy- >/dev/null
}

faults_table() {
  printf '| misconfiguration | what `zonewise check` said | fix that worked |\n|---|---|---|\n'
  cat "$results/faults/table"
}
