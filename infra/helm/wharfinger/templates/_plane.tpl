{{- /* The Secrets that `wharfinger join NAME --print-secret` prints, as one directory. */ -}}
{{- define "wharfinger.clusters" -}}
- name: clusters
  projected:
    defaultMode: 0440
    sources:
      {{- range .Values.clusters }}
      - secret:
          name: {{ printf "wharfinger-cluster-%s" . | trunc 253 | trimAll "-." }}
          # A cluster that has left stops no process.
          optional: true
      {{- else }}
      []
      {{- end }}
{{- end -}}

{{- /* The URLs of services, each as a file that is named by its role. */ -}}
{{- define "wharfinger.logins" -}}
- name: logins
  projected:
    defaultMode: 0440
    sources:
      {{- $logins := .Values.database.logins }}
      {{- range $role := list "stage" "publisher" "api" }}
      - secret:
          name: {{ index $logins $role }}
          items:
            - key: {{ $logins.key }}
              path: {{ $role }}
      {{- end }}
{{- end -}}

{{- /* Of the annotator, which asks it, and of the collector, which then does not. */ -}}
{{- define "wharfinger.prometheus" -}}
- name: WHARFINGER_PROMETHEUS_URL
  value: {{ .Values.prometheus.url | quote }}
{{- with .Values.prometheus.clusterLabel }}
- name: WHARFINGER_PROMETHEUS_CLUSTER_LABEL
  value: {{ . | quote }}
{{- end }}
{{- if .Values.prometheus.bearerSecretName }}
- name: WHARFINGER_PROMETHEUS_BEARER
  valueFrom:
    secretKeyRef:
      name: {{ .Values.prometheus.bearerSecretName }}
      key: {{ .Values.prometheus.bearerKey }}
{{- end }}
{{- end -}}
