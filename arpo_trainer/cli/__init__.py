"""The `arpo` command, with one module per subcommand."""
