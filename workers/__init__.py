"""The only code that sees data."""
