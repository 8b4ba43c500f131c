"""One module per subcommand: thin, typed functions. Each imports its process only when it runs."""
