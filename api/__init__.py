"""The HTTP API: every route is a door to the same acceptance as the Python client's, in the name of a token."""
