"""What Kubernetes, its kubelet and containerd do, as tests that hold the fakes of `reconciler.sim` against the real."""
