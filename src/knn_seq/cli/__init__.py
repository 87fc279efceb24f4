"""The command line: a file per command, nothing but arguments and printing."""
