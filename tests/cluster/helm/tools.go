//go:build tools

// Package tools pins what the chart's tests build: see binaries.py.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
