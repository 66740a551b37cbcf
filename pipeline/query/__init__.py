"""The paid part."""
