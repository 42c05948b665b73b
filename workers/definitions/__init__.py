"""Users' definitions: found, compared and released; and migration of instances from one version to another."""
