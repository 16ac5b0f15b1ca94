"""A training run from a recipe or a settings file: settings, environments, cold start, recording, launch, dry run."""
