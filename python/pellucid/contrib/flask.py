"""This module has Flask serve records, lists and queries as the JSON that `json_bytes` writes."""

from __future__ import annotations

import json
from typing import Any

import pellucid

__all__ = ["install"]

_CLASSES = (pellucid.Record, pellucid.RecordList, pellucid.Query, pellucid.Table)


def install(app: Any) -> None:
    """Have an app of Flask serve records, lists, queries and tables that a view returns or `jsonify` gets.

    Parts of a dict or list are served as well. It replaces the app's JSON provider by one that is derived
    from it, and calls that for everything else.

    >>> import flask, pellucid
    >>> app = flask.Flask("towns")
    >>> pellucid.contrib.flask.install(app)
    >>> table = pellucid.open(":memory:").table("towns")
    >>> table[1] = {"codes": ["DE", "FR"]}
    >>> @app.get("/<int:key>")
    ... def town(key):
    ...     return table[key]
    >>> app.test_client().get("/1").get_json()
    {'codes': ['DE', 'FR']}
    """
    provider = type(app.json)
    if getattr(provider, "serves_pellucid", False):
        return

    class Provider(provider):  # type: ignore[misc, valid-type]
        """The app's own provider, which knows pellucid's classes, too."""

        serves_pellucid = True

        def default(self, value: Any) -> Any:
            """Return what stands for a value of no type that JSON has."""
            if isinstance(value, _CLASSES):
                # Flask itself would write the dates in it as in the head of a response.
                return json.loads(pellucid.json_bytes(value))
            try:
                return super().default(value)
            except TypeError:
                return pellucid.to_builtin(value)

        def response(self, *args: Any, **kwargs: Any) -> Any:
            """Return the response of `jsonify`."""
            if len(args) == 1 and not kwargs and isinstance(args[0], _CLASSES):
                return app.response_class(pellucid.json_bytes(args[0]), mimetype="application/json")
            return super().response(*args, **kwargs)

    replaced = Provider(app)
    app.json = replaced
    make = app.make_response

    def make_response(returned: Any) -> Any:
        body, *rest = returned if isinstance(returned, tuple) and returned else (returned,)
        if isinstance(body, _CLASSES):
            body = replaced.response(body)
            return make((body, *rest) if rest else body)
        return make(returned)

    app.make_response = make_response
