"""Answers go out."""
