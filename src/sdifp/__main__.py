"""python -m sdifp"""

from ._cli import main

main()
