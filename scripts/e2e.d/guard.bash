# Guard mode beside kube-proxy and the built-in controller, as on a managed cluster: it keeps traffic in its zone, loses itself
# while endpoints come, and goes again (docs/guard.md).

# A Pod of `web` and the node that it runs on, a line each.
web_pods() { kubectl -n traffic get pods -l app=web -o 'jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}'; }

caller_on() { kubectl -n traffic get pods -l app=callers --field-selector "spec.nodeName=$1" -o name; }

# Sixty requests from every node, a line each: the zone of the caller, and the Pod that answered.
answers() {
  local node
  for node in $(nodes); do
    kubectl -n traffic exec "$(caller_on "$node")" -c new -- \
      bash -c 'for _ in {1..60}; do curl -sf "http://$WEB_SERVICE_HOST/hostname" && echo; done' | sed "s/^/$(node_zone "${node#n}") /"
  done
}

# The percentage of requests that are answered in the zone of their caller.
share_in_zone() {
  answers | awk 'FILENAME == ARGV[1] { zone[$1] = $2; next } { all++; if (zone[$2] == $1) own++ } END { printf "%d", 100 * own / all }' \
    <(web_pods | while read -r pod node; do echo "$pod $(node_zone "${node#n}")"; done) -
}

enforced() {
  [ "$(kubectl -n traffic get service web \
    -o 'jsonpath={.status.conditions[?(@.type=="zonewise.dev/RoutingPreferenceEnforced")].status}')" = True ]
}

# The hints of `web`: the zone of each endpoint, and the zones that it is hinted to; a line each.
hints_of_web() {
  kubectl -n traffic get endpointslices -l kubernetes.io/service-name=web \
    -o 'jsonpath={range .items[*].endpoints[*]}{.zone} {.hints.forZones[*].name}{"\n"}{end}'
}

# has_endpoints NUMBER: so many are in the slices of `web`, and each is hinted to a zone.
has_endpoints() { [ "$(hints_of_web | awk 'NF > 1' | wc -l)" = "$1" ]; }

# Whether an endpoint is hinted to another zone than its own: the floor, which kube-controller-manager writes, has no such hint.
has_hints_of_guard() { hints_of_web | awk '{ for (i = 2; i <= NF; i++) if ($i != $1) found = 1 } END { exit !found }'; }
has_hints_of_floor() { has_endpoints "$1" && ! has_hints_of_guard; }

# More Pods of `web` in the first zone, so that the floor would overload the others.
extra_pods() {
  cat <<EOF
apiVersion: apps/v1
kind: Deployment
metadata: {name: extra, namespace: traffic}
spec:
  replicas: $1
  selector: {matchLabels: {app: web, part: extra}}
  template:
    metadata: {labels: {app: web, part: extra}}
    spec:
      nodeSelector: {topology.kubernetes.io/zone: $(node_zone 1)}
$(web_containers)
EOF
}

scale_extra() {
  extra_pods "$1" | kubectl apply -f - >/dev/null
  kubectl -n traffic rollout status deployment extra --timeout=120s >/dev/null
}

# The percentage of the traffic that stays in its zone by `explain --mode guard`.
expected_in_zone() {
  KUBECONFIG=$kubeconfig "$(scripts/image --build)" explain traffic/web --mode guard -o json \
    | tr -d ' \n' | grep -o '"inZone":{[^}]*}' | grep -o '"planned":[0-9.]*' | cut -d: -f2 | awk '{ printf "%d", 100 * $1 + 0.5 }'
}

# goes_as_explained WHAT: 360 requests differ from the figure by chance, by less than 8 points in 9,996 of 10,000 runs.
goes_as_explained() {
  local expected share
  # kube-proxy gathers changes for a second.
  sleep 2
  expected=$(expected_in_zone)
  share=$(share_in_zone)
  awk -v a="$share" -v b="$expected" 'BEGIN { d = a - b; exit !(d * d <= 64) }' \
    || fail "$1: $share % of the requests stay in their zone, and explain says $expected %"
  found "$1" "$share % of the requests stay in their zone, $expected % by \`explain --mode guard\`"
}

# Five Pods of `web` in the first zone and two in each of the others.
guard_installed() {
  scale_extra 3
  helm install zonewise deploy/chart --create-namespace --set controller.mode=guard --set "image.tag=$(version_of HEAD)" --wait --timeout 3m
  kubectl -n traffic annotate service web zonewise.dev/routing-preference=zonewise.dev/balanced >/dev/null
  wait_until 30 'guard mode is in force for web' enforced
  has_hints_of_guard || fail 'guard mode is in force, but no endpoint of web is hinted to another zone than its own'
  goes_as_explained 'guard mode with kube-proxy, 5, 2 and 2 Pods of `web` in three zones'
}

end_controllers() {
  kubectl -n zonewise-system scale deployment zonewise-controller --replicas 0 >/dev/null
  kubectl -n zonewise-system wait --for=delete pod -l app.kubernetes.io/name=zonewise-controller --timeout=60s >/dev/null
}

# is_lost_and_back WHAT COMMAND…: without the controllers and what the command removes, endpoints come with the hints of the
# floor; hints of guard mode are back once the controllers run again.
is_lost_and_back() {
  local what=$1 began
  shift
  end_controllers
  "$@" >/dev/null
  scale_extra 4
  wait_until 30 'the endpoint that came without guard mode is in the slices with the hints of the floor' has_hints_of_floor 10
  kubectl -n zonewise-system scale deployment zonewise-controller --replicas 2 >/dev/null
  wait_until 60 'a controller runs again' kubectl -n zonewise-system rollout status deployment zonewise-controller --timeout=1s
  began=$SECONDS
  wait_until 10 'the hints of guard mode are back' has_hints_of_guard
  found "$what" "an endpoint that came meanwhile was in the slices, with the hints of the floor; hints of guard mode were back within \
$((SECONDS - began + 1)) s of the controllers being ready"
  wait_until 30 'guard mode is in force for web' enforced
  scale_extra 3
}

guard_lost() {
  is_lost_and_back 'guard mode without its controllers and its policy' \
    kubectl delete mutatingadmissionpolicybinding/zonewise-guard-web mutatingadmissionpolicy/zonewise-guard
}

# The way of older API servers, on the same cluster.
guard_by_webhook() {
  helm upgrade zonewise deploy/chart --reuse-values --set controller.configuration.guard.admission=webhook --wait --timeout 3m
  wait_until 60 'the policy is gone' no_policy
  wait_until 30 'guard mode is in force for web' enforced
  scale_extra 4
  wait_until 30 'a new endpoint has its hints by the webhook' has_endpoints 10
  has_hints_of_guard || fail 'with the webhook no endpoint of web is hinted to another zone than its own'
  goes_as_explained 'the same by the webhook, 6, 2 and 2 Pods'
  scale_extra 3
  is_lost_and_back 'guard mode without its controllers, which serve the webhook' true
}

no_policy() { ! kubectl get mutatingadmissionpolicy zonewise-guard; }

# The floor is given back, and the built-in controller has removed its hints.
guard_removed() {
  end_controllers
  KUBECONFIG=$kubeconfig "$(scripts/image --build)" guard remove >/dev/null
  kubectl -n traffic annotate service web zonewise.dev/routing-preference- >/dev/null
  helm uninstall zonewise --wait
  # Helm keeps it, so that what guard mode has written can be found; docs/guard.md says when to delete it.
  kubectl delete crd zoneallocations.zonewise.dev >/dev/null
  kubectl delete namespace zonewise-system >/dev/null
  kubectl delete events -A -l zonewise.dev/component >/dev/null
  wait_until 30 'the hints of web are gone' has_endpoints 0
  kubectl -n traffic delete deployment extra >/dev/null
}
