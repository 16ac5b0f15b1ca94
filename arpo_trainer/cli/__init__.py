"""The `arpo` command, with one module per subcommand."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("arpo_trainer.cli", "arpo_trainer.cli.arpo_command")
