# Keys and certificates, as kubeadm makes them: an authority, a certificate for each program with rights of its own, and a second
# authority for API servers behind this one, which take the caller's name from whomever it vouches for.

readonly key_kind=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

# authority NAME SUBJECT
authority() {
  openssl req -x509 -new "${key_kind[@]}" -keyout "$state/pki/$1.key" -out "$state/pki/$1.crt" -days 365 -subj "$2" 2>/dev/null
}

add_authorities() {
  mkdir -p "$state/pki"
  authority ca /CN=zonewise-cluster
  authority front-proxy-ca /CN=zonewise-front-proxy
  openssl genrsa -out "$state/pki/sa.key" 2048 2>/dev/null
}

# certificate FILE SUBJECT [NAMES [AUTHORITY]]: FILE.key and FILE.crt, valid as client and, for NAMES, as server.
certificate() {
  openssl req -new "${key_kind[@]}" -keyout "$1.key" -subj "$2" 2>/dev/null \
    | openssl x509 -req -CA "$state/pki/${4:-ca}.crt" -CAkey "$state/pki/${4:-ca}.key" -CAcreateserial -days 365 -out "$1.crt" \
      -extfile <(printf 'extendedKeyUsage=clientAuth,serverAuth\n%s\n' "${3:+subjectAltName=$3}") 2>/dev/null
}

encoded() { base64 --wrap=0 "$1"; }

# kubeconfig_for FILE SUBJECT: access with a new certificate for that subject.
kubeconfig_for() {
  local key=$state/pki/client.$RANDOM
  certificate "$key" "$2"
  cat >"$1" <<EOF
apiVersion: v1
kind: Config
clusters:
  - name: zonewise
    cluster:
      server: $api_server
      certificate-authority-data: $(encoded "$state/pki/ca.crt")
users:
  - name: user
    user:
      client-certificate-data: $(encoded "$key.crt")
      client-key-data: $(encoded "$key.key")
contexts:
  - name: zonewise
    context: {cluster: zonewise, user: user}
current-context: zonewise
EOF
  chmod 600 "$1"
  rm "$key.key" "$key.crt"
}

add_control_plane_certificates() {
  local folder=$state/control names=DNS:localhost name
  for name in kubernetes{,.default,.default.svc,.default.svc.cluster.local}; do names+=,DNS:$name; done
  certificate "$folder/apiserver" /CN=kube-apiserver \
    "$names,IP:127.0.0.1,IP:$control_address,IP:$control_address6,IP:10.96.0.1,IP:fd00:96::1"
  certificate "$folder/kubelet-client" /O=system:masters/CN=kube-apiserver-kubelet-client
  kubeconfig_for "$folder/controller-manager.kubeconfig" /CN=system:kube-controller-manager
  kubeconfig_for "$folder/scheduler.kubeconfig" /CN=system:kube-scheduler
  certificate "$folder/front-proxy-client" /CN=front-proxy-client '' front-proxy-ca
  cp "$state"/pki/{ca.crt,ca.key,sa.key,front-proxy-ca.crt} "$folder/"
}

# add_node_certificates NUMBER
add_node_certificates() {
  local folder=$state/n$1 subject=/O=system:nodes/CN=system:node:n$1
  certificate "$folder/kubelet" "$subject" "DNS:n$1,IP:$(node_address "$1"),IP:$(node_address6 "$1")"
  kubeconfig_for "$folder/kubelet.kubeconfig" "$subject"
  cp "$state/pki/ca.crt" "$folder/"
}
