# The chart's life on a cluster, by the commands of docs/install.md, docs/proxy.md and docs/upgrade.md: installed beside
# kube-proxy from an earlier commit, in kube-proxy's place, upgraded, rolled back, removed.

readonly kept_images=$cache/images

helm() { KUBECONFIG=$kubeconfig "$(scripts/helm)" --namespace zonewise-system "$@" >/dev/null; }

# version_of COMMIT
version_of() { git show "$1:Cargo.toml" | sed -n 's/^version = "\(.*\)"$/\1/p' | head -n 1; }

# Builds the image of what is here, keeps it for later upgrades if it is that of a commit (the last ten), and prints its archive.
current_image() {
  local archive
  scripts/image >/dev/null
  archive=target/image/zonewise-$(version_of HEAD).oci.tar
  if git diff --quiet HEAD --; then
    mkdir -p "$kept_images"
    cp "$archive" "$kept_images/$(git rev-parse HEAD).oci.tar"
    find "$kept_images" -name '*.oci.tar' -printf '%T@ %p\n' | sort -rn | tail -n +11 | cut -d' ' -f2- | xargs -r rm --
  fi
  printf '%s\n' "$archive"
}

# The last commit before this one whose image is kept on this machine, or the one that FROM names.
choose_former() {
  local commit
  if [ -n "${FROM:-}" ]; then
    git rev-parse --verify "$FROM^{commit}"
    return
  fi
  for commit in $(git rev-list HEAD~1); do
    if [ -s "$kept_images/$commit.oci.tar" ]; then
      printf '%s\n' "$commit"
      return
    fi
  done
  git rev-parse HEAD~1
}

# former_image COMMIT: prints the archive with its image, which is built from a copy of that commit if none is kept.
former_image() {
  local archive=$kept_images/$1.oci.tar copy=$PWD/$results/former-source
  if [ ! -s "$archive" ]; then
    say "no image of ${1:0:9}, from which zonewise is upgraded, is kept on this machine: building it, which takes as long as a first build"
    rm -rf "$copy"
    git clone --quiet --shared --no-checkout . "$copy"
    git -C "$copy" checkout --quiet "$1"
    (cd "$copy" && unset CARGO_TARGET_DIR && scripts/image >/dev/null)
    mkdir -p "$kept_images"
    mv "$copy/target/image/zonewise-$(version_of "$1").oci.tar" "$archive"
    rm -rf "$copy"
  fi
  printf '%s\n' "$archive"
}

# Loads the image of the earlier commit with the tag `former`, then that of what is here.
load_versions() {
  local current former node
  current=$(current_image)
  former_commit=$(choose_former)
  former=$(former_image "$former_commit")
  scripts/cluster load "$former" >/dev/null 2>&1
  for node in $(nodes); do
    inside "$node" /opt/ctr --namespace k8s.io images tag "docker.io/library/zonewise:$(version_of "$former_commit")" \
      docker.io/library/zonewise:former >/dev/null 2>&1
  done
  scripts/cluster load "$current" >/dev/null 2>&1
  rm -rf "$results/former"
  mkdir -p "$results/former"
  git archive "$former_commit" deploy/chart | tar -x -C "$results/former"
}

rolled_out() {
  kubectl -n zonewise-system rollout status deployment zonewise-controller --timeout=180s >/dev/null
  kubectl -n zonewise-system rollout status daemonset zonewise-proxy --timeout=180s >/dev/null
}

install_beside() {
  helm install zonewise "$results/former/deploy/chart" --create-namespace --set image.tag=former \
    --set proxy.mode=beside --set proxy.nodes=all --wait --timeout 3m
  scripts/cluster slices off
}

has_table() { inside "$1" nft list tables | grep "^table ip $2$" >/dev/null; }

replace_kube_proxy() {
  local node
  helm upgrade zonewise "$results/former/deploy/chart" --reuse-values --set proxy.mode=replace --set proxy.nodes=labelled \
    --wait --timeout 3m
  kubectl -n kube-system get daemonset kube-proxy -o yaml | sed -E '/^  (creationTimestamp|resourceVersion|uid):/d' >"$results/kube-proxy.yaml"
  kubectl -n kube-system patch daemonset kube-proxy --type merge -p '{"spec":{
    "updateStrategy":{"type":"OnDelete","rollingUpdate":null},"template":{"spec":{"affinity":{
    "nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
    {"matchExpressions":[{"key":"zonewise.dev/proxy","operator":"DoesNotExist"}]}]}}}}}}}' >/dev/null
  for node in $(nodes); do
    kubectl label node "$node" zonewise.dev/proxy=yes >/dev/null
    wait_until 60 "kube-proxy's rules on $node are replaced" replaced "$node"
  done
  rolled_out
  kubectl -n traffic annotate service web zonewise.dev/routing-preference=zonewise.dev/balanced >/dev/null
}

replaced() { has_table "$1" zonewise && ! has_table "$1" kube-proxy; }

upgrade() {
  helm upgrade zonewise deploy/chart --reset-then-reuse-values --set "image.tag=$(version_of HEAD)" --wait --timeout 5m
  rolled_out
}

roll_back() {
  helm rollback zonewise --wait --timeout 5m
  rolled_out
}

kube_proxy_on() { kubectl -n kube-system get pods -l k8s-app=kube-proxy --field-selector "spec.nodeName=$1" -o name; }

# A time of the last sync for each family, and none of them 0.
kube_proxy_has_synced() {
  inside "$1" curl -sf 127.0.0.1:10249/metrics \
    | awk '/^kubeproxy_sync_proxy_rules_last_timestamp_seconds/ { n++; if ($2 == 0) exit 1 } END { exit n == 0 }'
}

bring_kube_proxy_back() {
  local node family
  for node in $(nodes); do
    kubectl label node "$node" zonewise.dev/proxy- >/dev/null
    wait_until 30 "no proxy of ours runs on $node" no_proxy_on "$node"
    wait_until 60 "kube-proxy on $node has written its rules" kube_proxy_has_synced "$node"
    for family in ip ip6; do
      kubectl -n kube-system exec "$(kube_proxy_on "$node")" -- nft delete table "$family" zonewise
    done
  done
}

no_proxy_on() { ! inside "$1" pgrep -f "$proxy_process" >/dev/null; }

nothing_on_services() {
  local objects
  objects=$(kubectl get services,endpointslices -A -o yaml) \
    && ! grep -qE 'RoutingPreference(Accepted|Programmed|Ready)|zone-shares|for-(zone|region):' <<<"$objects"
}

uninstall() {
  kubectl -n traffic annotate service web zonewise.dev/routing-preference- >/dev/null
  helm upgrade zonewise deploy/chart --reuse-values --set controller.configuration.compat=upstream --wait --timeout 3m
  wait_until 60 'nothing of zonewise is on Services and slices' nothing_on_services
  scripts/cluster slices on
  helm uninstall zonewise --wait
  kubectl delete namespace zonewise-system >/dev/null
  kubectl delete events -A -l zonewise.dev/component >/dev/null
}

# The last step of going back. Each restart of kube-proxy refuses connections for a moment, with zonewise or without it.
restore_daemon_set() {
  kubectl replace -f "$results/kube-proxy.yaml" >/dev/null
  kubectl -n kube-system rollout status daemonset kube-proxy --timeout=120s >/dev/null
}

# What a cluster has: each object, without the ending by which Pods and versions of one DaemonSet differ; labels and hints of nodes,
# Services and slices; whatever has a key of ours; the tables of each node. Events come and go, and the former versions of
# kube-proxy's DaemonSet are Kubernetes' own history.
inventory() {
  local kinds node
  kinds=$(kubectl api-resources --verbs=list -o name 2>/dev/null | grep -v '^events' | paste -sd,)
  kubectl get "$kinds" -A -o custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name --no-headers 2>/dev/null \
    | sed -E '/^(Pod|ControllerRevision) /s/-[a-z0-9]+ *$//'
  kubectl get nodes,services,endpointslices -A --no-headers -o custom-columns=K:.kind,N:.metadata.name,L:.metadata.labels,H:.endpoints[*].hints
  kubectl get "${kinds/controllerrevisions.apps,/}" -A -o yaml 2>/dev/null | grep -o 'zonewise\.dev/[a-zA-Z/-]*' || true
  for node in $(nodes); do inside "$node" nft list tables | sed "s/^/$node /"; done
}
