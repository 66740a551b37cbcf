"""Tidegate: pull, query, call back, within the deadline."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tidegate")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
