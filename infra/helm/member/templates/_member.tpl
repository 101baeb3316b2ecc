{{- /* Fixed: Lease and pause are looked for there. */ -}}
{{- define "member.namespace" -}}wharfinger-system{{- end -}}

{{- /* The verbs in force, as {"verbs": [...]}: those that are named, else the mode's default. */ -}}
{{- define "member.verbs" -}}
{{- $rights := .Files.Get "files/rights.yaml" | fromYaml -}}
{{- $kind := ternary "hub" "member" .Values.cluster.hub -}}
{{- $mode := .Values.cluster.mode -}}
{{- $possible := index $rights.possible $kind $mode -}}
{{- $wanted := .Values.cluster.verbs | default (index $rights.default $kind $mode) -}}
{{- range $wanted -}}
{{- if not (has . $possible) -}}
{{- fail (printf "cluster.verbs: %s of a %s in mode %s: expected %s" . $kind $mode
      ($possible | join ", " | default "none, since it writes nothing")) -}}
{{- end -}}
{{- end -}}
{{- dict "verbs" $wanted | toJson -}}
{{- end -}}

{{- /* Namespaces whose Secrets are copied, and the rights in each: {"namespaces": [...], "rules": [...]}. */ -}}
{{- define "member.secrets" -}}
{{- $rights := .Files.Get "files/rights.yaml" | fromYaml -}}
{{- $verbs := (include "member.verbs" . | fromJson).verbs -}}
{{- $namespaces := .Values.cluster.secretNamespaces | uniq | sortAlpha -}}
{{- $rules := list -}}
{{- range $verb, $needed := $rights.secrets -}}
{{- if has $verb $verbs }}{{ $rules = $needed }}{{ end -}}
{{- end -}}
{{- if and $namespaces (not $rules) -}}
{{- fail "cluster.secretNamespaces: expected the verb copy, or templates of a hub, with it" -}}
{{- end -}}
{{- range $namespaces -}}
{{- if has . $rights.notCopied -}}
{{- fail (printf "cluster.secretNamespaces: %s: its Secrets are of its cluster alone" .) -}}
{{- end -}}
{{- end -}}
{{- dict "namespaces" $namespaces "rules" $rules | toJson -}}
{{- end -}}

{{- /* within: the namespace of a Role, ours where none is named. */ -}}
{{- define "member.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .account }}
  {{- if eq .kind "Role" }}
  namespace: {{ .within | default (include "member.namespace" .) }}
  {{- end }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .account }}
  {{- if eq .kind "Role" }}
  namespace: {{ .within | default (include "member.namespace" .) }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .account }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ include "member.namespace" . }}
{{- end -}}

{{- /* What `wharfinger join --in-cluster` would keep. */ -}}
{{- define "member.entry" -}}
{{- $cluster := .Values.cluster -}}
inCluster: true
mode: {{ $cluster.mode }}
hub: {{ $cluster.hub }}
verbs: {{ (include "member.verbs" . | fromJson).verbs | toJson }}
secretNamespaces: {{ (include "member.secrets" . | fromJson).namespaces | toJson }}
labels: {{ toJson $cluster.labels }}
provider: {{ $cluster.provider | quote }}
region: {{ $cluster.region | quote }}
leaseS: {{ if $cluster.leaseS }}{{ int $cluster.leaseS }}{{ else }}null{{ end }}
schedulerName: {{ $cluster.schedulerName | quote }}
shadowOf: {{ toJson $cluster.shadowOf }}
{{- end -}}
