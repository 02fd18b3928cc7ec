"""XML that strangers wrote, as a small tree whose elements know their line and column.

Contents: Element, parse_xml.

defusedxml refuses document types and entities (bombs, files from elsewhere); size and depth have limits of our own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field

from mapsearch.topologies.importers.base import fault

MAX_ELEMENTS = 200_000
MAX_DEPTH = 64
MAX_CHARACTERS = 16 * 2**20


@dataclass
class Element:
    """An element: its tag, attributes, children and where it begins (both from 1)."""

    tag: str
    attributes: dict[str, str]
    line: int
    column: int
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def walk(self) -> Iterator[Element]:
        """This element and all below, in the order of the file."""
        todo = [self]
        while todo:
            element = todo.pop()
            yield element
            todo.extend(reversed(element.children))


def parse_xml(
    text: str, *, file: str, most_elements: int = MAX_ELEMENTS, most_characters: int = MAX_CHARACTERS
) -> Element:
    """The root element. Raises InputError with line and column: torn, too large, or with a document type."""
    from xml.sax import SAXParseException
    from xml.sax.handler import ContentHandler
    from xml.sax.xmlreader import InputSource

    from defusedxml.common import DefusedXmlException
    from defusedxml.expatreader import DefusedExpatParser

    if len(text) > most_characters:
        raise fault(f"has {len(text):,} characters; XML over {most_characters:,} is not read", file=file)
    roots: list[Element] = []

    class Handler(ContentHandler):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[Element] = []
            self.texts: list[list[str]] = []
            self.count = 0

        def startElement(self, name: str, attrs: object) -> None:
            line, column = parser.getLineNumber() or 1, (parser.getColumnNumber() or 0) + 1
            self.count += 1
            if self.count > most_elements or len(self.open) >= MAX_DEPTH:
                raise fault(
                    f"has over {most_elements:,} elements or is nested more than {MAX_DEPTH} deep",
                    file=file, line=line, column=column,
                )  # fmt: skip
            element = Element(name, dict(attrs.items()), line, column)  # type: ignore[attr-defined]
            (self.open[-1].children if self.open else roots).append(element)
            self.open.append(element)
            self.texts.append([])

        def endElement(self, name: str) -> None:
            self.open.pop().text = "".join(self.texts.pop())

        def characters(self, content: str) -> None:
            if self.texts:
                self.texts[-1].append(content)

    parser = DefusedExpatParser(forbid_dtd=True)
    parser.setContentHandler(Handler())
    source = InputSource(file)
    source.setCharacterStream(io.StringIO(text))
    try:
        parser.parse(source)
    except SAXParseException as problem:
        line, column = problem.getLineNumber(), problem.getColumnNumber()
        raise fault(
            f"is not well-formed XML: {problem.getMessage()}", file=file, line=line or 1, column=(column or 0) + 1
        ) from None
    except DefusedXmlException as problem:
        what = "a document type" if type(problem).__name__ == "DTDForbidden" else "entities or outside references"
        raise fault(f"holds {what}, which are not accepted (XML bombs hide there); remove them", file=file,
                    line=parser.getLineNumber() or 1) from None  # fmt: skip
    except (UnicodeError, ValueError) as problem:
        raise fault(f"is not readable as XML: {str(problem).splitlines()[0][:120]}", file=file) from None
    return roots[0]
