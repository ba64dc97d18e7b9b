"""The defaults lab: many problems, every algorithm, and what the defaults achieve on them."""
