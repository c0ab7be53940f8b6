{{- define "foreread.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of everything; selectors have the first two and the component. */}}
{{- define "foreread.labels" -}}
app.kubernetes.io/name: foreread
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "foreread.selector" -}}
app.kubernetes.io/name: foreread
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "foreread.image" -}}
{{- $repository := required "image.repository: name an image that has foreread and foreread-csi (./release VERSION --dry-run --only image makes one)" .Values.image.repository -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* Checked together, so that neither component mounts what the other refuses. */}}
{{- define "foreread.limits" -}}
{{- if eq (int .Values.plugin.metricsPort) (int .Values.plugin.livenessPort) }}
{{- fail "plugin.metricsPort and plugin.livenessPort are the same port of one pod" }}
{{- end -}}
- --driver-name={{ .Values.plugin.driverName }}
- --max-volumes={{ int64 .Values.plugin.maxVolumes }}
- --cache={{ .Values.plugin.cache }}
- --max-cache={{ .Values.plugin.maxCache }}
- --mount-timeout={{ .Values.plugin.mountTimeout }}
{{- if .Values.plugin.anyAccessMode }}
- --any-access-mode
{{- end }}
{{- if .Values.diskCache.enabled }}
- --disk-cache=/cache
- --disk-cache-size={{ .Values.diskCache.size }}
- --max-disk-cache={{ .Values.diskCache.maxSize }}
{{- end }}
{{- end -}}
