{{/* Prefix of the names of all objects; 48 characters leave room for what is appended. */}}
{{- define "heliotrope.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "heliotrope.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: heliotrope
{{- end -}}

{{/* Labels of a part (a dict of root and component) as Services, Deployments and NetworkPolicies select it. */}}
{{- define "heliotrope.selectorLabels" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "heliotrope.componentLabels" -}}
{{ include "heliotrope.labels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Image of a part (a dict of root and image): its digest, else the common tag, else the chart's appVersion. */}}
{{- define "heliotrope.image" -}}
{{- $common := .root.Values.image -}}
{{- if $common.registry }}{{ trimSuffix "/" $common.registry }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .root.Chart.AppVersion $common.tag }}{{ end -}}
{{- end -}}

{{/* Names of cluster-wide objects carry the namespace, so that releases of one name do not meet. */}}
{{- define "heliotrope.operator.name" -}}{{ include "heliotrope.fullname" . }}-operator{{- end -}}
{{- define "heliotrope.operator.clusterName" -}}
{{ include "heliotrope.operator.name" . }}-{{ .Release.Namespace }}
{{- end -}}
{{- define "heliotrope.operator.serviceAccount" -}}
{{- $account := .Values.operator.serviceAccount -}}
{{- default (ternary (include "heliotrope.operator.name" .) "default" $account.create) $account.name -}}
{{- end -}}

{{- define "heliotrope.hub.name" -}}{{ include "heliotrope.fullname" . }}-hub{{- end -}}
{{- define "heliotrope.hub.serviceAccount" -}}
{{- $account := .Values.hub.serviceAccount -}}
{{- default (ternary (include "heliotrope.hub.name" .) "default" $account.create) $account.name -}}
{{- end -}}

{{- define "heliotrope.picker.name" -}}{{ include "heliotrope.fullname" . }}-picker{{- end -}}
{{- define "heliotrope.picker.namespace" -}}{{ default .Release.Namespace .Values.pool.namespace }}{{- end -}}
{{- define "heliotrope.picker.clusterName" -}}
{{ include "heliotrope.picker.name" . }}-{{ include "heliotrope.picker.namespace" . }}
{{- end -}}
{{- define "heliotrope.picker.serviceAccount" -}}
{{- $account := .Values.picker.serviceAccount -}}
{{- default (ternary (include "heliotrope.picker.name" .) "default" $account.create) $account.name -}}
{{- end -}}

{{/* The trainer lives beside the pickers that send it their samples. */}}
{{- define "heliotrope.trainer.name" -}}{{ include "heliotrope.fullname" . }}-trainer{{- end -}}
{{- define "heliotrope.trainer.runs" -}}{{ if and .Values.pool.name .Values.trainer.enabled }}true{{ end }}{{- end -}}
{{- define "heliotrope.trainer.claim" -}}
{{- default (include "heliotrope.trainer.name" .) .Values.trainer.persistence.existingClaim -}}
{{- end -}}
{{- define "heliotrope.trainer.serviceAccount" -}}
{{- $account := .Values.trainer.serviceAccount -}}
{{- default (ternary (include "heliotrope.trainer.name" .) "default" $account.create) $account.name -}}
{{- end -}}

{{- define "heliotrope.agent.name" -}}{{ include "heliotrope.fullname" . }}-agent{{- end -}}
{{- define "heliotrope.agent.clusterName" -}}
{{ include "heliotrope.agent.name" . }}-{{ .Release.Namespace }}
{{- end -}}
{{- define "heliotrope.agent.serviceAccount" -}}
{{- $account := .Values.agent.serviceAccount -}}
{{- default (ternary (include "heliotrope.agent.name" .) "default" $account.create) $account.name -}}
{{- end -}}

{{/* What all pod specifications share (a dict of root, part and account; noToken where nothing calls the API server;
security in the place of podSecurityContext). */}}
{{- define "heliotrope.pod" -}}
serviceAccountName: {{ .account | quote }}
automountServiceAccountToken: {{ not .noToken }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml (default .root.Values.podSecurityContext .security) | nindent 2 }}
{{- with .part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}
