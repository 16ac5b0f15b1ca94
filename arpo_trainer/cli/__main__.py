"""`python -m arpo_trainer.cli`: the `arpo` command."""

import sys

from arpo_trainer.cli.arpo_command import main

sys.exit(main())
