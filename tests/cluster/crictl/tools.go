//go:build tools

// Package tools pins what the cluster tests build: see binaries.py.
package tools

import _ "sigs.k8s.io/cri-tools/cmd/crictl"
