"""Take, sign, verify and restore backups."""
