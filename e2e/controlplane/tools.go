//go:build tools

// Package controlplane pins the Kubernetes programs that the contract tests run against.
package controlplane

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
