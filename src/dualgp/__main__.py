"""`python -m dualgp`: the command line."""

from dualgp.cli import main

main()
