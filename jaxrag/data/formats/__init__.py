"""Readers of the forms in which sets of questions are published."""
