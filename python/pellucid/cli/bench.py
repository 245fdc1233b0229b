"""This module has the subcommand that runs the experiments of another distribution, `pellucid-bench`."""

from __future__ import annotations

import sys
from importlib import metadata

import click

from pellucid.cli.app import Refused

__all__ = ["bench_command"]


@click.command(
    "bench", context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench_command(arguments: tuple[str, ...]) -> None:
    """Measure pellucid beside other libraries: `pellucid bench --help` lists the experiments."""
    found = next(iter(metadata.entry_points(group="pellucid.commands", name="bench")), None)
    if found is None:
        raise Refused("the benchmarks are not installed: run pip install ./bench in a clone of pellucid")
    try:
        run = found.load()
    except ImportError as error:
        raise Refused(
            f"the benchmarks cannot run ({error}): run pip install ./bench in a clone of pellucid"
        ) from error
    sys.exit(run(arguments))
