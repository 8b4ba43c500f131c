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
{{- with .Values.operator.parts }}
{{- if or .scaling .activation .power .deferral }}
# Reads the labels by which an administrator grants tenants that their policies act.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}
{{- if or .scaling .activation .power }}
# Knows where engines run.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end }}
{{- if .power }}
# Tells node agents which clocks and watts are chosen for their engines, and takes back what is chosen no more.
- apiGroups: [heliotrope.io]
  resources: [nodepowers]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if and .activation $.Values.operator.nodeOff }}
# Takes nodes out of use whose engines are not needed, and back.
- apiGroups: [""]
  resources: [nodes]
  verbs: [patch]
{{- end }}
{{- if and .deferral .kueue }}
# Finds the AdmissionChecks that it has to answer.
- apiGroups: [kueue.x-k8s.io]
  resources: [admissionchecks]
  verbs: [get, list, watch]
# Says that it answers them.
- apiGroups: [kueue.x-k8s.io]
  resources: [admissionchecks/status]
  verbs: [patch]
{{- end }}
{{- end }}
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
{{- with .Values.operator.parts }}
{{- if or .scaling .activation .power }}
# Knows which engines there are and whether they serve.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# Finds the pickers of pools, which tell what is asked of them.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list]
{{- end }}
{{- if .activation }}
# Marks pods whose engines rest, so that pickers send nothing there and a next start finds them.
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
{{- end }}
{{- if and .activation $.Values.operator.nodeOff }}
# Drains those nodes.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end }}
{{- if .scaling }}
# Finds what else scales a target, and moves maxReplicas under `actuation: Ceiling`.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, patch]
# The same for KEDA's maxReplicaCount.
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [get, list, watch, patch]
# Leaves alone what llm-d's autoscaler scales.
- apiGroups: [llmd.ai]
  resources: [variantautoscalings]
  verbs: [get, list, watch]
{{- end }}
{{- if .deferral }}
# Finds Jobs that opted in, writes their planned start and resumes them.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, patch]
{{- end }}
{{- if and .deferral .kueue }}
# Finds Kueue's Workloads that wait for its AdmissionChecks.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch]
# Answers those checks.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}
{{- end }}
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
{{- if and .Values.operator.parts.scaling .Values.operator.restoreOnUninstall }}
# Stops the operator on uninstallation, before originals are put back.
- apiGroups: [apps]
  resources: [deployments/scale]
  resourceNames: [{{ include "heliotrope.operator.name" . }}]
  verbs: [get, patch]
{{- end }}
{{- if .Values.operator.parts.power }}
# Keeps all NodePowers alive while it leads and reconciles.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [heliotrope-power]
  verbs: [patch]
{{- end }}
# Reads the keys of carbon sources and of lists of demand events, here and nowhere else.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end -}}
