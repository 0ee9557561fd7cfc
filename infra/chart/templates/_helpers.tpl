{{- /* The prefix of all names, a DNS label.  One that is too long or has dots ends with a digest of the
whole name, so that no two installations of a namespace share it. */}}
{{- define "evoqueue.name" -}}
{{- $own := contains "evoqueue" .Release.Name | ternary .Release.Name (printf "%s-evoqueue" .Release.Name) -}}
{{- $whole := .Values.fullnameOverride | default $own -}}
{{- if or (gt (len $whole) 40) (contains "." $whole) -}}
{{- printf "%s-%s" ($whole | replace "." "-" | trunc 31 | trimSuffix "-") ($whole | sha256sum | trunc 8) -}}
{{- else -}}
{{- $whole -}}
{{- end -}}
{{- end }}

{{- define "evoqueue.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "evoqueue.selector" -}}
app.kubernetes.io/name: evoqueue
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "evoqueue.labels" -}}
{{ include "evoqueue.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Metadata of pods.  Takes root, component, and labels beyond that. */}}
{{- define "evoqueue.podMetadata" -}}
labels:
  {{- include "evoqueue.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with merge (dict) (.labels | default dict) .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What all pods have.  Takes root, of (values of the component), token, user, anyUser, and hook: hooks
run while the account does not exist. */}}
{{- define "evoqueue.pod" -}}
{{- if not .hook }}
serviceAccountName: {{ include "evoqueue.name" .root }}{{ if .token }}-jobs{{ end }}
{{- end }}
automountServiceAccountToken: {{ .token | default false }}
enableServiceLinks: false
securityContext:
  {{- if not .anyUser }}
  runAsNonRoot: true
  runAsUser: {{ .user | default 10001 }}
  runAsGroup: {{ .user | default 10001 }}
  fsGroup: {{ .user | default 10001 }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.hostAliases }}
hostAliases: {{ toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "runtimeClassName" }}
{{- with get $.of $key }}
{{ $key }}: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The security context of containers: with that of the pod, the level `restricted`. */}}
{{- define "evoqueue.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "evoqueue.secret" -}}
{{ .Values.secrets.existingSecret | default (include "evoqueue.name" .) }}
{{- end }}

{{- define "evoqueue.postgresHost" -}}
{{- if .Values.postgresql.bundled -}}
{{ include "evoqueue.name" . }}-postgres
{{- else -}}
{{ required "postgresql.host names no server: set it, or postgresql.bundled=true" .Values.postgresql.host }}
{{- end -}}
{{- end }}

{{- define "evoqueue.redisHost" -}}
{{- if .Values.redis.bundled -}}
{{ include "evoqueue.name" . }}-redis
{{- else -}}
{{ required "redis.host names no server: set it, or redis.bundled=true" .Values.redis.host }}
{{- end -}}
{{- end }}

{{- /* The variables of every process of ours.  Passwords come first: the addresses contain them. */}}
{{- define "evoqueue.addresses" -}}
{{- $pg := .Values.postgresql }}
- name: POSTGRES_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "evoqueue.secret" . }}, key: postgres-password}}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "evoqueue.secret" . }}, key: redis-password}}
- name: EVOQ_DATABASE_URL
  value: postgresql+psycopg://{{ $pg.user }}:$(POSTGRES_PASSWORD)@{{ include "evoqueue.postgresHost" . }}:{{ $pg.port }}/{{ $pg.database }}{{ with $pg.sslmode }}?sslmode={{ . }}{{ if $.Values.caSecret }}&sslrootcert=/etc/evoqueue/ca.crt{{ end }}{{ end }}
- name: EVOQ_REDIS_URL
  value: redis{{ if .Values.redis.tls }}s{{ end }}://{{ .Values.redis.user }}:$(REDIS_PASSWORD)@{{ include "evoqueue.redisHost" . }}:{{ .Values.redis.port }}/0{{ if and .Values.redis.tls .Values.caSecret }}?ssl_ca_certs=/etc/evoqueue/ca.crt{{ end }}
- {name: EVOQ_TASK_EVENTS, value: {{ .Values.taskEvents | quote }}}
- {name: EVOQ_LOG_FORMAT, value: {{ .Values.logFormat }}}
{{- end }}

{{- /* The certificate of a CA of one's own, for every container that connects to Postgres and Redis. */}}
{{- define "evoqueue.caMount" -}}
{{- if .Values.caSecret -}}
- {name: ca, mountPath: /etc/evoqueue, readOnly: true}
{{- end -}}
{{- end }}

{{- define "evoqueue.caVolume" -}}
{{- with .Values.caSecret -}}
- {name: ca, secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}}
{{- end -}}
{{- end }}

{{- define "evoqueue.variables" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- /* The variables of workers and beat. */}}
{{- define "evoqueue.process" -}}
{{ include "evoqueue.addresses" . }}
- {name: EVOQ_HEARTBEAT_FILE, value: /tmp/heartbeat}
{{- include "evoqueue.variables" .Values.settings.workers }}
{{- end }}

{{- /* Ready while connected and able to work; restarted only when it hangs, since no restart mends a
server that is away.  See workers/heartbeat.py.  Takes the minutes that a start may take. */}}
{{- define "evoqueue.probes" -}}
startupProbe:
  exec: {command: [sh, -c, 'test -n "$(find /tmp/heartbeat -newermt "-15 seconds")"']}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ mul 12 . }}
readinessProbe:
  exec: {command: [sh, -c, 'test -n "$(find /tmp/heartbeat -newermt "-15 seconds")"']}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  exec: {command: [sh, -c, 'test -n "$(find /tmp/heartbeat -newermt "-10 minutes")"']}
  periodSeconds: 60
  timeoutSeconds: 10
  failureThreshold: 2
{{- end }}

{{- /* Waits for the migration: a worker that finds another schema ends, and its next start takes minutes. */}}
{{- define "evoqueue.migrated" -}}
- name: migrated
  image: {{ include "evoqueue.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [sh, -c, "until alembic current --check-heads; do sleep 3; done"]
  securityContext: {{ include "evoqueue.confined" . | nindent 4 }}
  env: {{ include "evoqueue.addresses" . | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 96Mi}
    limits: {memory: 256Mi}
  volumeMounts: {{ include "evoqueue.caMount" . | default "[]" | nindent 4 }}
{{- end }}

{{- /* A claim on a volume.  Takes root, name and persistence. */}}
{{- define "evoqueue.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  labels: {{ include "evoqueue.labels" .root | nindent 4 }}
  annotations: {helm.sh/resource-policy: keep}
spec:
  accessModes: [{{ .persistence.accessMode | default "ReadWriteOnce" }}]
  resources: {requests: {storage: {{ .persistence.size }}}}
  {{- with .persistence.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
{{- end }}

{{- /* The queues of a fleet: one for each tag; that of its kind for "", and without tags. */}}
{{- define "evoqueue.queues" -}}
{{- if .tags -}}
{{- $kind := .kind -}}
{{- $queues := list -}}
{{- range .tags }}{{ $queues = append $queues (printf "%s:%s" $kind . | trimSuffix ":") }}{{ end -}}
{{ join "," $queues }}
{{- else -}}
{{ .kind }}
{{- end -}}
{{- end }}

{{- /* policy/v1 has existed since Kubernetes 1.21. */}}
{{- define "evoqueue.policyVersion" -}}
{{- $version := .Values.kubeVersion | default .Capabilities.KubeVersion.Version -}}
{{ ternary "v1" "v1beta1" (semverCompare ">=1.21-0" $version) }}
{{- end }}
