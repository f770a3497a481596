"""`python -m dualgp.cli`."""

from dualgp.cli import main

main()
