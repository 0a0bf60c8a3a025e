"""The command line: parsing only, one file per family of verbs."""
