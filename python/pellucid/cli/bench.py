"""This module has the subcommand that runs the experiments of the second package, `pellucid_bench`."""

from __future__ import annotations

import importlib
import sys

import click

from pellucid.cli.app import Refused

__all__ = ["bench_command"]


@click.command(
    "bench", context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench_command(arguments: tuple[str, ...]) -> None:
    """Measure pellucid beside other libraries: `pellucid bench --help` lists the experiments."""
    try:
        lab = importlib.import_module("pellucid_bench.command")
    except ImportError as error:
        raise Refused(f"the benchmarks cannot run ({error}): pip install 'pellucid[bench]'") from error
    sys.exit(lab.main(arguments))
