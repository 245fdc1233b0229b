"""This package has the measures: what is done and timed."""
