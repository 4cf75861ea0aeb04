"""`python -m healthsvc`: the command line where the script is not on the path."""

from healthsvc.cli import main

main()
