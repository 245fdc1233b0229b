"""This module gives the scripts, styles and licences of the page.

`vl-convert-python` has Vega, Vega-Lite and Vega-Embed inside and joins them to one script, so nothing is
fetched, and no large file is in this project. The page uses `vegaEmbed` alone.
"""

from __future__ import annotations

import functools
from importlib.resources import files

from pellucid_bench.dataset import DatasetError

INSTALL = "pip install ./bench in a clone of pellucid"


@functools.cache
def plotting_script() -> str:
    """Return the script that defines `vegaEmbed`. It takes some seconds to make."""
    try:
        import vl_convert
    except ImportError as error:
        raise DatasetError(f"the page is made with vl-convert-python: {INSTALL} ({error})") from error
    # The parser of HTML would end the script here, or read a comment, even in a string of JavaScript.
    bundle = vl_convert.javascript_bundle(snippet="window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def own(name: str) -> str:
    """Return a file of this package: the page's script, its style, or the licences of the plotting script."""
    return (files("pellucid_bench.report") / name).read_text("utf-8")
