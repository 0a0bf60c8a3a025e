"""The command line: parsing only, one file a family of verbs."""
