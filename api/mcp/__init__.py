"""The MCP server: each tool is one call of the HTTP API with the client's own token, so both let the same through."""
