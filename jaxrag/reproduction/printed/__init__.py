"""The values that the papers print, and ours beside them."""
