{{/* The image of all parts. */}}
{{- define "zonewise.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of an object, besides those that select Pods: include "zonewise.labels" (list $ "zonewise-proxy") */}}
{{- define "zonewise.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/part-of: zonewise
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
{{- end -}}

{{/*
Bindings of the role of the same name to the service account: include "zonewise.binding" (list "Role" "zonewise-proxy" "kube-system")
*/}}
{{- define "zonewise.binding" -}}
{{- $kind := index . 0 -}}{{- $name := index . 1 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
{{- if eq $kind "Role" }}
  namespace: {{ index . 2 }}
{{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: zonewise-system
{{- end -}}

{{/* What puts hints into slices in guard mode; empty in other modes. */}}
{{- define "zonewise.admission" -}}
{{- with .Values.controller -}}
{{- if and .enabled (eq .mode "guard") -}}
{{- dig "guard" "admission" "auto" .configuration -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" where this API server has MutatingAdmissionPolicy; empty where it has not, or cannot be asked. */}}
{{- define "zonewise.hasPolicies" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}true{{- end -}}
{{- end -}}

{{/*
"true" where the controller serves the webhook of guard mode: where it is asked for, and with "auto" where this API server
has no MutatingAdmissionPolicy, or cannot be asked.
*/}}
{{- define "zonewise.webhook" -}}
{{- $admission := include "zonewise.admission" . -}}
{{- if or (eq $admission "webhook") (and (eq $admission "auto") (not (include "zonewise.hasPolicies" .))) -}}true{{- end -}}
{{- end -}}

{{/* Where demand is measured. A release that is upgraded with --reuse-values from an older chart has no such value. */}}
{{- define "zonewise.demandSource" -}}
{{- dig "source" "none" (.Values.demand | default dict) -}}
{{- end -}}

{{/* Whether the leading controller lists PodMetrics. */}}
{{- define "zonewise.podMetrics" -}}
{{- if dig "podMetrics" false (.Values.demand | default dict) -}}
{{- if or (not .Values.controller.enabled) (ne .Values.controller.mode "controller") -}}
{{- fail "demand.podMetrics is true, and there is no controller that writes zone shares: set controller.enabled, and controller.mode to controller, or demand.podMetrics to false" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/*
Where the proxies serve what they have counted: given, or chosen where the controller is to ask them; empty where they do not.
*/}}
{{- define "zonewise.demandAddress" -}}
{{- if ne .Values.proxy.mode "none" -}}
{{- $given := dig "demandAddress" "" .Values.proxy.configuration.zonewise -}}
{{- $given | default (ternary "0.0.0.0:10274" "" (eq (include "zonewise.demandSource" .) "proxies")) -}}
{{- else if eq (include "zonewise.demandSource" .) "proxies" -}}
{{- fail "demand.source is proxies, and proxy.mode is none: only the proxies of zonewise count connections by Service. Set proxy.mode to replace or beside, or demand.source to none" -}}
{{- end -}}
{{- if and (eq (include "zonewise.demandSource" .) "proxies") (or (not .Values.controller.enabled) (eq .Values.controller.mode "observe")) -}}
{{- fail "demand.source is proxies, and there is no controller that would ask them: set controller.enabled, and controller.mode to controller or guard" -}}
{{- end -}}
{{- end -}}

{{/* The part of Prometheus of demand, where it is the source; refuses what cannot give any numbers. */}}
{{- define "zonewise.demandPrometheus" -}}
{{- if eq (include "zonewise.demandSource" .) "prometheus" -}}
{{- $prometheus := dig "prometheus" dict .Values.demand -}}
{{- if not (dig "url" "" $prometheus) -}}
{{- fail "demand.source is prometheus, and demand.prometheus.url is missing: give the address of Prometheus, such as http://prometheus.monitoring:9090" -}}
{{- end -}}
{{- if or (not .Values.controller.enabled) (eq .Values.controller.mode "observe") -}}
{{- fail "demand.source is prometheus, and there is no controller that would ask it: set controller.enabled, and controller.mode to controller or guard" -}}
{{- end -}}
{{- if include "zonewise.scraped" . -}}
{{- if or (eq .Values.proxy.mode "none") (not .Values.proxy.exposeMetrics) -}}
{{- fail "demand.prometheus has neither query nor a preset of somebody else, so the metrics of the proxies are meant: set proxy.mode to replace or beside, and proxy.exposeMetrics=true, so that Prometheus can read them" -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := $prometheus }}{{ if $value }}
{{ $key }}: {{ toJson $value }}
{{- end }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Whether demand comes from the proxies' metrics, by way of Prometheus. */}}
{{- define "zonewise.scraped" -}}
{{- if eq (include "zonewise.demandSource" .) "prometheus" -}}
{{- $prometheus := dig "prometheus" dict .Values.demand -}}
{{- if and (not (dig "query" "" $prometheus)) (eq (dig "preset" "" $prometheus | default "zonewise") "zonewise") -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The ProxyConfiguration: what is given, and counts by Service where somebody reads them. */}}
{{- define "zonewise.proxyConfiguration" -}}
{{- $address := include "zonewise.demandAddress" . -}}
{{- $counts := dict -}}
{{- if $address -}}{{- $counts = dict "count" "services" "demandAddress" $address -}}{{- end -}}
{{- if include "zonewise.scraped" . -}}{{- $counts = dict "count" "services" -}}{{- end -}}
{{- mergeOverwrite (deepCopy (.Values.proxy.configuration.zonewise | default dict)) $counts | toYaml -}}
{{- end -}}

{{/* Where kubectl finds the address of the API server that it uses itself. */}}
{{- define "zonewise.printApiServer" -}}
kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'
{{- end -}}

{{/* The first server in the kubeconfig of a ConfigMap: include "zonewise.serverIn" (list "kube-public" "cluster-info") */}}
{{- define "zonewise.serverIn" -}}
{{- $data := dig "data" dict (lookup "v1" "ConfigMap" (index . 0) (index . 1)) -}}
{{- $text := coalesce (get $data "kubeconfig.conf") (get $data "kubeconfig") -}}
{{- if $text -}}
{{- range (fromYaml $text).clusters | default list | first | default dict | list -}}
{{- dig "cluster" "server" "" . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The address of the API server: given, or that which kube-proxy or kubeadm's joining nodes use. */}}
{{- define "zonewise.apiServer" -}}
{{- $found := coalesce .Values.proxy.apiServer
    (include "zonewise.serverIn" (list "kube-system" "kube-proxy"))
    (include "zonewise.serverIn" (list "kube-public" "cluster-info")) -}}
{{- if not $found -}}
{{- fail (printf "proxy.apiServer is not set, and no ConfigMap of this cluster says where its API server is. Give an address that works without Services; this prints the one that kubectl uses: %s" (include "zonewise.printApiServer" .)) -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* The ranges of Pods: given, or those of kube-proxy or kubeadm. */}}
{{- define "zonewise.clusterCIDR" -}}
{{- $kubeProxy := dig "data" dict (lookup "v1" "ConfigMap" "kube-system" "kube-proxy") -}}
{{- $ofKubeProxy := coalesce (get $kubeProxy "config.conf") (get $kubeProxy "config") "{}" | fromYaml -}}
{{- $kubeadm := dig "data" "ClusterConfiguration" "{}" (lookup "v1" "ConfigMap" "kube-system" "kubeadm-config") | fromYaml -}}
{{- $found := coalesce .Values.proxy.clusterCIDR (get $ofKubeProxy "clusterCIDR") (dig "networking" "podSubnet" "" $kubeadm) -}}
{{- if not (or $found (has (get .Values.proxy.configuration.kubeProxy "detectLocalMode") (list "NodeCIDR" "BridgeInterface" "InterfaceNamePrefix"))) -}}
{{- fail "proxy.clusterCIDR is not set, and no ConfigMap of this cluster says which addresses Pods have. Give the range; this prints the ranges of the nodes, which are parts of it: kubectl get nodes -o jsonpath='{.items[*].spec.podCIDR}'. Or let proxy.configuration.kubeProxy.detectLocalMode be NodeCIDR, BridgeInterface or InterfaceNamePrefix" -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* The ports of the proxy: those of kube-proxy, or others beside it. */}}
{{- define "zonewise.healthPort" -}}
{{ ternary 10271 10256 (eq .Values.proxy.mode "beside") }}
{{- end -}}
{{- define "zonewise.metricsPort" -}}
{{ ternary 10272 10249 (eq .Values.proxy.mode "beside") }}
{{- end -}}
