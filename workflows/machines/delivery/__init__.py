"""The delivery of software: story, sprint, pull request review and approval (ADR-010)."""
