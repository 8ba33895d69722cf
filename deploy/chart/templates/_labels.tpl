{{- define "breakeven.selector" -}}
app.kubernetes.io/name: breakeven
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
{{- define "breakeven.labels" -}}
{{ include "breakeven.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}
