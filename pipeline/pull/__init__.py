"""Tickets come in."""
