"""Estimates of what a run will cost, before it starts (`arpo train --recipe NAME --dry-run`)."""
