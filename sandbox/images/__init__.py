"""The Docker image: profiles of packages, builds from a base image or from this machine."""
