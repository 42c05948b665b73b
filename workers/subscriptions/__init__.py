"""Delivers events to the endpoints of subscriptions (docs/spec/subscription.md)."""
