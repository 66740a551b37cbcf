"""The command line: arguments, printing and exit codes, nothing else.

0 done · 1 failed · 2 wrong usage · 3 the daemon cannot be reached · 78 the configuration is bad
"""

from pipeline.cli.commands import main

__all__ = ["main"]
