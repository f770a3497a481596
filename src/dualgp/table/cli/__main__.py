"""`python -m dualgp.table.cli`."""

from dualgp.table.cli import main

main()
