{{- /* Every rule says what it is for; tests/unit/chart refuses one that does not, and any wildcard. */ -}}

{{- define "heliotrope.operator.clusterRules" -}}
# Reads what the user states about regions, and reports each region's carbon signal.
- apiGroups: [heliotrope.io]
  resources: [regionprofiles]
  verbs: [get, list, watch]
# The report: conditions, freshness, intensity and forecast.
- apiGroups: [heliotrope.io]
  resources: [regionprofiles/status]
  verbs: [patch]
# Notices that a kind which it watches is installed or removed.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end -}}

{{- define "heliotrope.operator.namespacedRules" -}}
# Reads policies and variants.
- apiGroups: [heliotrope.io]
  resources: [carbonpolicies, workloadvariants]
  verbs: [get, list, watch]
# Reports their conditions.
- apiGroups: [heliotrope.io]
  resources: [carbonpolicies/status, workloadvariants/status]
  verbs: [patch]
# Finds the pools that policies attach to; patch writes the annotation that marks a pool as affected (GEP-713).
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, list, watch, patch]
# Notices that a variant's target appears, changes or goes.
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [list, watch]
# Reads the replicas that it has.
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale]
  verbs: [get]
# The same for LeaderWorkerSets.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [list, watch]
# And their replicas.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets/scale]
  verbs: [get]
{{ include "heliotrope.operator.eventRules" . }}
{{- end -}}

{{- define "heliotrope.operator.eventRules" -}}
# Tells of transitions; patch counts repeats.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "heliotrope.operator.ownNamespaceRules" -}}
# Takes the Lease that keeps a second operator waiting (create cannot be limited to a name).
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
# Renews it.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [heliotrope-operator]
  verbs: [get, update]
# Reads carbon series.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
{{- end -}}
