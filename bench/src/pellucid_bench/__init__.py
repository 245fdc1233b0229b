"""This package is the lab: the experiments that measure pellucid beside other libraries, and their datasets.

    pellucid bench                 every experiment
    pellucid bench dict            one of them
    pellucid bench --help          what else there is

It uses the public names of pellucid alone.
"""
