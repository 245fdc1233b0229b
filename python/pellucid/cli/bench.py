"""This module has the subcommand that runs the benchmarks."""

from __future__ import annotations

import runpy
import sys

import click

from pellucid.cli.app import Refused

__all__ = ["bench_command"]


@click.command(
    "bench", context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench_command(arguments: tuple[str, ...]) -> None:
    """Measure the speed of pellucid and of other libraries: `pellucid bench --help` lists the workloads."""
    sys.argv = ["pellucid bench", *arguments]
    try:
        runpy.run_module("pellucid.bench", run_name="__main__")
    except ImportError as error:
        raise Refused(f"the benchmarks cannot run: {error}") from error
