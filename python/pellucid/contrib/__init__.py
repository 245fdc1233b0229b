"""This package has what other libraries offer under their own names, and what web frameworks need."""
