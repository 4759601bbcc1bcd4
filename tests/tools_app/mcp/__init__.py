"""MCP servers: the SDK's own in a process of its own, and ill-behaved ones."""
