{{/* Every rule says what it is for; tests/unit/chart refuses one that does not, and any wildcard. */}}

{{- define "heliotrope.operator.clusterRules" -}}
# Reads what the user states about regions, and reports each region's carbon signal.
- apiGroups: [heliotrope.io]
  resources: [regionprofiles]
  verbs: [get, list, watch]
- apiGroups: [heliotrope.io]
  resources: [regionprofiles/status]
  verbs: [patch]
# Reads the labels by which an administrator grants power, scaling and downgrades to a namespace.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end -}}

{{- define "heliotrope.operator.namespacedRules" -}}
# Reads policies and variants, and reports their conditions.
- apiGroups: [heliotrope.io]
  resources: [carbonpolicies, workloadvariants]
  verbs: [get, list, watch]
- apiGroups: [heliotrope.io]
  resources: [carbonpolicies/status, workloadvariants/status]
  verbs: [patch]
# Finds the pools that policies attach to, and marks those that a policy affects (GEP-713).
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, list, watch, patch]
# Finds the targets of variants.
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch]
# Reports transitions.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "heliotrope.operator.ownNamespaceRules" -}}
# Reads carbon series from ConfigMaps.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
{{- end -}}
