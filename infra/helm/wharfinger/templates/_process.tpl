{{- /*
What every process of the plane has in common, whichever chart runs it. Both charts hold this file;
a test keeps the two the same.

A process is a dict: root (the chart's $), component, command (a list), resources, account
(a service account, "" for the namespace's), token (whether it is mounted), clusters (volumes of
/clusters, a list with at most one), logins (the same of /logins), database (how its URL is found, if
not as .Values.database says), served (whether it answers over HTTP), env (more of it).
*/ -}}

{{- define "wharfinger.selector" -}}
app.kubernetes.io/name: wharfinger
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "wharfinger.labels" -}}
{{ include "wharfinger.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "wharfinger.template" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "wharfinger.labels" . | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .account }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: {{ .token }}
  # A Service named wharfinger-something would give variables that read like settings.
  enableServiceLinks: false
  # A process that is told to end finishes its round and has 10 s for it.
  terminationGracePeriodSeconds: 30
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  {{- if .served }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "wharfinger.selector" . | nindent 10 }}
  {{- else }}
  restartPolicy: Never
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ printf "%s:%s" $values.image.repository ($values.image.tag | default .root.Chart.AppVersion) }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      command: {{ toJson .command }}
      env:
        {{- include "wharfinger.env" . | nindent 8 }}
      {{- if .served }}
      ports:
        - name: http
          containerPort: 8080
      # Alive: a restart would not help. It answers once the ledger is open.
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 5
        timeoutSeconds: 4
        failureThreshold: 120
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 10
        timeoutSeconds: 4
        failureThreshold: 6
      # Ready: it has caught up, and completes something while something waits.
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 10
        timeoutSeconds: 4
        failureThreshold: 3
      {{- end }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: state
          mountPath: /var/lib/wharfinger
        - name: temporary
          mountPath: /tmp
        {{- if $values.kafka.tls.secretName }}
        - name: kafka-tls
          mountPath: /etc/wharfinger/kafka
          readOnly: true
        {{- end }}
        {{- if .clusters }}
        - name: clusters
          mountPath: /clusters
          readOnly: true
        {{- end }}
        {{- if .logins }}
        - name: logins
          mountPath: /logins
          readOnly: true
        {{- end }}
  volumes:
    # The ledger holds everything; this is where a process says that it runs.
    - name: state
      emptyDir:
        sizeLimit: 64Mi
    - name: temporary
      emptyDir:
        sizeLimit: 256Mi
    {{- with $values.kafka.tls.secretName }}
    - name: kafka-tls
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- with .clusters }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .logins }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "wharfinger.env" -}}
{{- $kafka := .root.Values.kafka -}}
{{- $database := .database | default .root.Values.database -}}
- name: WHARFINGER_DATA_DIR
  value: /var/lib/wharfinger
- name: WHARFINGER_HTTP_HOST
  value: 0.0.0.0
- name: WHARFINGER_HTTP_PORT
  value: "8080"
- name: WHARFINGER_LOG_FORMAT
  value: json
- name: WHARFINGER_DATABASE
  {{- if $database.url }}
  value: {{ $database.url | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ required "database: expected secretName or url" $database.secretName }}
      key: {{ $database.key }}
  {{- end }}
- name: WHARFINGER_KAFKA
  value: {{ $kafka.bootstrap | quote }}
- name: WHARFINGER_KAFKA_SECURITY
  value: {{ $kafka.security }}
{{- if hasPrefix "SASL" $kafka.security }}
{{- $secret := required (printf "kafka.credentials.secretName: expected one with security %s" $kafka.security) $kafka.credentials.secretName }}
- name: WHARFINGER_KAFKA_SASL_MECHANISM
  value: {{ $kafka.saslMechanism }}
- name: WHARFINGER_KAFKA_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ $kafka.credentials.usernameKey }}
- name: WHARFINGER_KAFKA_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ $kafka.credentials.passwordKey }}
{{- end }}
{{- if $kafka.tls.secretName }}
- name: WHARFINGER_KAFKA_CA_FILE
  value: /etc/wharfinger/kafka/{{ $kafka.tls.caKey }}
{{- if and $kafka.tls.certKey $kafka.tls.keyKey }}
- name: WHARFINGER_KAFKA_CERT_FILE
  value: /etc/wharfinger/kafka/{{ $kafka.tls.certKey }}
- name: WHARFINGER_KAFKA_KEY_FILE
  value: /etc/wharfinger/kafka/{{ $kafka.tls.keyKey }}
{{- end }}
{{- end }}
{{- if .clusters }}
- name: WHARFINGER_CLUSTERS
  value: /clusters
{{- end }}
{{- range $name, $value := .root.Values.settings }}
- name: WHARFINGER_{{ upper $name }}
  value: {{ if kindIs "float64" $value }}{{ $value | toJson | quote }}{{ else }}{{ $value | toString | quote }}{{ end }}
{{- end }}
{{- with .env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* One rule: `ports` of the peers in `to`, of all where it is empty. */ -}}
{{- define "wharfinger.egress" -}}
{{- $protocols := .protocols | default (list "TCP") -}}
- ports:
    {{- range $port := .ports }}
    {{- range $protocols }}
    - protocol: {{ . }}
      port: {{ $port }}
    {{- end }}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
