"""The pool of containers: queue, slots, session groups, health."""
