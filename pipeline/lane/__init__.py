"""One line of stages wired together. Knows no HTTP and no SQL.

lane.py      the stages, their periodic services, what operators order, the status
recovery.py  what is done at the start with what an earlier run left
"""

from pipeline.lane.lane import Lane

__all__ = ["Lane"]
