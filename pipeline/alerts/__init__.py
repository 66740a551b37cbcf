"""Telling people: edges become short messages in a group chat, never more than it can bear."""
