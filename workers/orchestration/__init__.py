"""Carrying out plans: what is submitted, scheduled, checked, landed and rolled back."""
