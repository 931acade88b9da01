{{- define "runtime-reconciler.image" -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{- define "runtime-reconciler.namespace" -}}
{{- .Values.namespace.name -}}
{{- end }}

{{/* Helm has made the namespace itself when the release's record lives there: then it cannot be the chart's too. */}}
{{- define "runtime-reconciler.makesNamespace" -}}
{{- if and .Values.namespace.create (ne .Release.Namespace .Values.namespace.name) }}true{{ end -}}
{{- end }}

{{/* Socket and unit by distribution: those of reconciler/hostconfig/distribution.py, which `make chart` compares. */}}
{{- define "runtime-reconciler.distributions" -}}
containerd: {}
k3s: {socket: /run/k3s/containerd/containerd.sock, unit: k3s.service}
rke2: {socket: /run/k3s/containerd/containerd.sock, unit: rke2-server.service}
k0s: {refused: "k0s restarts containerd by itself, so its agent refuses to work: use `reconciler config apply --no-restart` on these hosts"}
microk8s: {socket: /var/snap/microk8s/common/run/containerd.sock, unit: snap.microk8s.daemon-containerd.service}
{{- end }}

{{/* The agent's arguments, as a YAML list; what is the program's own default is left out. */}}
{{- define "runtime-reconciler.agentArguments" -}}
{{- $known := get (include "runtime-reconciler.distributions" . | fromYaml) .Values.agent.distribution -}}
{{- with $known.refused }}{{ fail (printf "agent.distribution: %s" .) }}{{ end -}}
{{- $words := list -}}
{{- with .Values.agent.socket | default $known.socket }}{{ $words = concat $words (list "--socket" .) }}{{ end -}}
{{- with .Values.agent.unit | default $known.unit }}{{ $words = concat $words (list "--unit" .) }}{{ end -}}
{{- if ne (int .Values.agent.port) 9441 }}{{ $words = concat $words (list "--port" (toString .Values.agent.port)) }}{{ end -}}
{{- if ne .Values.agent.logLevel "info" }}{{ $words = concat $words (list "--log-level" .Values.agent.logLevel) }}{{ end -}}
{{- if $words }}{{ toYaml $words }}{{ end -}}
{{- end }}

{{- define "runtime-reconciler.controllerArguments" -}}
{{- $words := list -}}
{{- if ne (int .Values.controller.port) 9440 }}{{ $words = concat $words (list "--port" (toString .Values.controller.port)) }}{{ end -}}
{{- if ne .Values.controller.logLevel "info" }}{{ $words = concat $words (list "--log-level" .Values.controller.logLevel) }}{{ end -}}
{{- if $words }}{{ toYaml $words }}{{ end -}}
{{- end }}
