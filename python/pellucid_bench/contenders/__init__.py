"""This package has the libraries that are measured: how each is filled and asked."""
