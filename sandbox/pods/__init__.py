"""Pods of a Kubernetes cluster: described, watched, listed and removed, all with kubectl."""
