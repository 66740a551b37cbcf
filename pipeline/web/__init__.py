"""The control endpoint: REST, WebSocket feed, metrics and the panel."""
