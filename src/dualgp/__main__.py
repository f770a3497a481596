"""`python -m dualgp`: the command line."""

from dualgp.table.cli import main

main()
