"""`python -m prol`: the command line without installing."""

from prol.cli.app import main

main()
