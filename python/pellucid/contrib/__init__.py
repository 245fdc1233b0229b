"""This package has what other libraries offer, under their own names, over files of pellucid."""
