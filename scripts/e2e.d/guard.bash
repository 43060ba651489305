# Guard mode beside kube-proxy and the built-in controller, as on a managed cluster: it keeps traffic in its zone, loses itself
# while endpoints come, and goes again (docs/guard.md).

# A Pod of `web` and the node that it runs on, a line each.
web_pods() { kubectl -n traffic get pods -l app=web -o 'jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}'; }

caller_on() { kubectl -n traffic get pods -l app=callers --field-selector "spec.nodeName=$1" -o name; }

# The percentage of requests that are answered in the zone of their caller.
share_in_zone() {
  local node
  for node in $(nodes); do
    kubectl -n traffic exec "$(caller_on "$node")" -c new -- \
      bash -c 'for _ in {1..60}; do curl -sf "http://$WEB_SERVICE_HOST/hostname" && echo; done' | sed "s/^/$(node_zone "${node#n}") /"
  done | awk 'FILENAME == ARGV[1] { zone[$1] = $2; next } { all++; if (zone[$2] == $1) own++ } END { printf "%d", 100 * own / all }' \
    <(web_pods | while read -r pod node; do echo "$pod $(node_zone "${node#n}")"; done) -
}

enforced() {
  [ "$(kubectl -n traffic get service web \
    -o 'jsonpath={.status.conditions[?(@.type=="zonewise.dev/RoutingPreferenceEnforced")].status}')" = True ]
}

# has_endpoints NUMBER: so many are in the slices of `web`, and each is hinted to a zone.
has_endpoints() {
  local hints
  hints=$(kubectl -n traffic get endpointslices -l kubernetes.io/service-name=web \
    -o 'jsonpath={range .items[*].endpoints[*]}{.hints.forZones[0].name}{"\n"}{end}')
  [ "$(grep -c . <<<"$hints")" = "$1" ]
}

guard_installed() {
  local before share
  before=$(share_in_zone)
  helm install zonewise deploy/chart --create-namespace --set controller.mode=guard --set "image.tag=$(version_of HEAD)" --wait --timeout 3m
  kubectl -n traffic annotate service web zonewise.dev/routing-preference=zonewise.dev/auto >/dev/null
  wait_until 30 'guard mode is in force for web' enforced
  # kube-proxy gathers changes for a second.
  sleep 2
  share=$(share_in_zone)
  [ "$share" = 100 ] || fail "$share % of the traffic of web stays in its zone in guard mode, not all of it"
  found 'guard mode with kube-proxy, two Pods of `web` in each zone' "$share % of the requests stay in their zone; $before % before"
}

guard_lost() {
  local began
  kubectl -n zonewise-system scale deployment zonewise-controller --replicas 0 >/dev/null
  kubectl -n zonewise-system wait --for=delete pod -l app.kubernetes.io/name=zonewise-controller --timeout=60s >/dev/null
  kubectl delete mutatingadmissionpolicybinding zonewise-guard-web >/dev/null
  kubectl delete mutatingadmissionpolicy zonewise-guard >/dev/null
  kubectl -n traffic scale deployment web --replicas 9 >/dev/null
  kubectl -n traffic rollout status deployment web --timeout=120s >/dev/null
  wait_until 30 'the endpoints that came without guard mode have the hints of the floor' has_endpoints 9
  began=$SECONDS
  kubectl -n zonewise-system scale deployment zonewise-controller --replicas 2 >/dev/null
  wait_until 30 'the policy is back' kubectl get mutatingadmissionpolicy zonewise-guard
  wait_until 30 'the binding is back' kubectl get mutatingadmissionpolicybinding zonewise-guard-web
  found 'guard mode without its controller and its policy' \
    "three endpoints that came meanwhile are in the slices, with the hints of the floor; policy and binding were back $((SECONDS - began)) s after the controller was started again"
}

# The floor is given back, and the built-in controller has removed its hints.
guard_removed() {
  kubectl -n zonewise-system scale deployment zonewise-controller --replicas 0 >/dev/null
  kubectl -n zonewise-system wait --for=delete pod -l app.kubernetes.io/name=zonewise-controller --timeout=60s >/dev/null
  KUBECONFIG=$kubeconfig "$(scripts/image --build)" guard remove >/dev/null
  kubectl -n traffic annotate service web zonewise.dev/routing-preference- >/dev/null
  helm uninstall zonewise --wait
  # Helm keeps it, so that what guard mode has written can be found; docs/guard.md says when to delete it.
  kubectl delete crd zoneallocations.zonewise.dev >/dev/null
  kubectl delete namespace zonewise-system >/dev/null
  kubectl delete events -A -l zonewise.dev/component >/dev/null
  wait_until 30 'the hints of web are gone' has_endpoints 0
}
