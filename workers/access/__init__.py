"""Who acts over HTTP and MCP: tokens, and what their roles and projects allow (docs/spec/token.md)."""
