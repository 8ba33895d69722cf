{{- define "breakeven.selector" -}}
app.kubernetes.io/name: breakeven
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
{{- define "breakeven.labels" -}}
{{ include "breakeven.selector" . }}
{{ include "breakeven.release" . }}
{{- end }}
{{- /* Another name than the gateway's, whose Service would send it models' calls. */ -}}
{{- define "breakeven.uiSelector" -}}
app.kubernetes.io/name: breakeven-ui
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
{{- define "breakeven.uiLabels" -}}
{{ include "breakeven.uiSelector" . }}
{{ include "breakeven.release" . }}
{{- end }}
{{- define "breakeven.release" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}
