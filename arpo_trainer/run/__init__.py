"""A training run from a settings file: settings, dry run, cold start, recording, launch."""
