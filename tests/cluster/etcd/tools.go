//go:build tools

// Package tools pins what the cluster tests build: see binaries.py.
package tools

import _ "go.etcd.io/etcd/server/v3"
