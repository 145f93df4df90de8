{{- define "millpond.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "millpond.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "millpond.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "millpond.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "millpond.selector" -}}
app.kubernetes.io/name: {{ include "millpond.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "millpond.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "millpond.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "millpond.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "millpond.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* The configuration; a change of it rolls the set, so that no pod runs another one than the next. */ -}}
{{- define "millpond.conf" -}}
daemon off;
pid /run/millpond/millpond.pid;
worker_processes auto;
error_log stderr warn;
shutdown_delay {{ .Values.shutdownDelaySeconds }}s;
{{- with .Values.main }}
{{ . | trim }}
{{- end }}

events {}

http {
    include mime.types;
    default_type application/octet-stream;
    access_log /dev/stdout;
    client_body_temp_path /run/millpond/body;
    proxy_temp_path /run/millpond/proxy;
    {{- with .Values.resolver }}
    resolver {{ . }};
    {{- end }}
    proxy_cache_path /var/cache/millpond/pond keys_zone=pond:{{ .Values.cache.keysZone }} max_size={{ .Values.cache.maxSize }} inactive={{ .Values.cache.inactive }};
    {{- with .Values.http }}
{{ . | trim | indent 4 }}
    {{- end }}

    server {
        listen {{ .Values.adminPort }};
        access_log off;
        location = /live { health live; }
        location = /ready { health; }
        location = /metrics { metrics; }
        location / { return 404; }
    }

{{ .Values.servers | trim | indent 4 }}
}
{{- end -}}
