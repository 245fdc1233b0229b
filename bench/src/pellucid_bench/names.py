"""This module removes the names of the host and of the user from what a dataset says."""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import os
import platform
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pellucid_bench.dataset import Dataset

USUAL_HOSTS = {"localhost", "localdomain", "local"}


def cleaner(more: Iterable[str] = (), folders: Iterable[Path] = ()) -> Callable[[str], str]:
    """Return a function that takes the names out of a text. `more` are other names, such as a server's.

    Names are replaced as whole words, in paths too. Temporary folders and the folder of the user are
    replaced with all that is in their name.
    """
    hosts = {platform.node(), *platform.node().split(".")} - USUAL_HOSTS
    words = {**dict.fromkeys(more, "HOST"), **dict.fromkeys(hosts, "HOST")}
    words |= dict.fromkeys(_users(), "USER")
    places = {str(folder): "TEMP" for folder in folders}
    places[str(Path.home())] = "~"
    rules = [
        (re.compile(re.escape(place) + r"(?![\w.-])"), sign)
        for place, sign in sorted(places.items(), key=lambda item: -len(item[0]))
        if len(place) > 1
    ]
    rules.append((re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s'\"]+"), "~"))
    rules += [
        (re.compile(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", re.IGNORECASE), sign)
        for word, sign in words.items()
        if len(word) > 1
    ]

    def clean(text: str) -> str:
        for pattern, sign in rules:
            text = pattern.sub(sign, text)
        return text

    return clean


def _users() -> set[str]:
    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
    # In some containers, the number of the user has no name.
    with contextlib.suppress(KeyError, OSError):
        users.add(getpass.getuser())
    return users - {""}


def without_names(run: Dataset, more: Iterable[str] = (), folders: Iterable[Path] = ()) -> Dataset:
    """Return a run whose texts have no name of the host or of the user.

    The connection string of a server goes, with its password. What the lab wrote itself stays: ids, titles,
    the names of contenders and libraries. A user may be called `dict`.
    """
    clean = cleaner(more, folders)

    def texts(value: Any) -> Any:
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, dict):
            return {name: texts(one) for name, one in value.items()}
        return [texts(one) for one in value] if isinstance(value, list | tuple) else value

    measures = [
        dataclasses.replace(
            measure,
            notes=texts(measure.notes),
            results=[
                dataclasses.replace(
                    result,
                    error=texts(result.error),
                    note=texts(result.note),
                    facts={name: texts(fact) for name, fact in result.facts.items()},
                )
                for result in measure.results
            ],
        )
        for measure in run.measures
    ]
    machine = run.machine
    return dataclasses.replace(
        run,
        command=_command(clean(run.command)),
        machine=dataclasses.replace(
            machine, processor=clean(machine.processor), kernel=clean(machine.kernel)
        ),
        python=dataclasses.replace(run.python, build=clean(run.python.build)),
        settings=texts({name: value for name, value in run.settings.items() if name != "dsn"}),
        versions=texts(run.versions),
        missing=texts(run.missing),
        notes=texts(run.notes),
        measures=measures,
    )


def _command(text: str) -> str:
    """Leave out connection strings, which have passwords, and shorten paths to their last part."""
    text = re.sub(r"(--dsn[= ])('[^']*'|\"[^\"]*\"|\S+)", r"\1DSN", text)
    return re.sub(r"(?<=[\s='\"])[~\w.-]*/[^\s'\"]*?([^/\s'\"]+)/?(?=[\s'\"]|$)", r"\1", text)
