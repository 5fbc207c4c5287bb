"""Notebooks, each with its source beside it in jupytext's percent format."""
