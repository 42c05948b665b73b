"""The delivery of software: story, sprint, pull request review and approval (docs/spec/delivery.md)."""
