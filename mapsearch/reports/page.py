"""Any view as a page of its own: the lines of its table, coloured, in one HTML file without scripts or links.

Contents: page.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.text import Text

# Filled in by rich, so braces of CSS are doubled.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title>
<style>
body {{ margin: 2rem; color: #1a1a1a; background: #ffffff; }}
pre {{ font: 14px/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-x: auto; }}
</style>
</head>
<body>
FIGURE<pre>{code}</pre>
</body>
</html>
"""


def page(lines: Sequence[Text], *, figure: str = "") -> str:
    """The lines as an HTML document, below a drawing if there is one; its title is the first line.

    `figure`: an SVG element, put in as it is.
    """
    console = Console(file=io.StringIO(), record=True, width=10**4, highlight=False, color_system="truecolor")
    for line in lines:
        console.print(line, soft_wrap=True)
    title = escape(lines[0].plain if lines else "mapsearch").replace("{", "{{").replace("}", "}}")
    drawn = figure.replace("{", "{{").replace("}", "}}")
    return console.export_html(code_format=_PAGE.replace("TITLE", title).replace("FIGURE", drawn), inline_styles=True)
