"""Approximate search with ScaNN."""
