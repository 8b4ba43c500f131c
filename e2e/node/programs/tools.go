//go:build tools

// Package node pins the Kubernetes programs that, beside a control plane, make a node.
package node

import (
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
