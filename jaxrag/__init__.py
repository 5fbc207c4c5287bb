"""jaxrag: adaptive retrieval-augmented generation in JAX."""

__version__ = "0.1.0"
