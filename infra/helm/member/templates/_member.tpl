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

{{- define "member.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .account }}
  {{- if eq .kind "Role" }}
  namespace: {{ include "member.namespace" . }}
  {{- end }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .account }}
  {{- if eq .kind "Role" }}
  namespace: {{ include "member.namespace" . }}
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
labels: {{ toJson $cluster.labels }}
provider: {{ $cluster.provider | quote }}
region: {{ $cluster.region | quote }}
leaseS: {{ if $cluster.leaseS }}{{ int $cluster.leaseS }}{{ else }}null{{ end }}
schedulerName: {{ $cluster.schedulerName | quote }}
shadowOf: {{ toJson $cluster.shadowOf }}
{{- end -}}
