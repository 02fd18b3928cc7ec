"""XML that strangers wrote, as a small tree whose elements know their line and column.

Contents: Element, parse_xml.

defusedxml refuses document types and entities (bombs, files from elsewhere); size and depth have limits of our own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, InputSource, Locator

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


class _Tree(ContentHandler):
    """Builds the tree while the parser reads."""

    def __init__(self, file: str, most_elements: int) -> None:
        super().__init__()
        self.file = file
        self.most_elements = most_elements
        self.roots: list[Element] = []
        self.open: list[Element] = []
        self.texts: list[list[str]] = []
        self.count = 0
        self.locator: Locator | None = None

    def setDocumentLocator(self, locator: Locator) -> None:
        self.locator = locator

    def place(self) -> tuple[int, int]:
        """Line and column of the parser, both from 1."""
        if self.locator is None:
            return 1, 1
        return self.locator.getLineNumber() or 1, (self.locator.getColumnNumber() or 0) + 1

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        line, column = self.place()
        self.count += 1
        if self.count > self.most_elements or len(self.open) >= MAX_DEPTH:
            what = f"has over {self.most_elements:,} elements or is nested more than {MAX_DEPTH} deep"
            raise fault(what, file=self.file, line=line, column=column)
        element = Element(name, dict(attrs.items()), line, column)
        (self.open[-1].children if self.open else self.roots).append(element)
        self.open.append(element)
        self.texts.append([])

    def endElement(self, name: str) -> None:
        self.open.pop().text = "".join(self.texts.pop())

    def characters(self, content: str) -> None:
        if self.texts:
            self.texts[-1].append(content)


def parse_xml(
    text: str, *, file: str, most_elements: int = MAX_ELEMENTS, most_characters: int = MAX_CHARACTERS
) -> Element:
    """The root element. Raises InputError with line and column: torn, too large, or with a document type."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.expatreader import DefusedExpatParser

    if len(text) > most_characters:
        raise fault(f"has {len(text):,} characters; XML over {most_characters:,} is not read", file=file)
    tree = _Tree(file, most_elements)
    parser = DefusedExpatParser(forbid_dtd=True)
    parser.setContentHandler(tree)
    source = InputSource(file)
    source.setCharacterStream(io.StringIO(text))
    try:
        parser.parse(source)
    except SAXParseException as problem:
        line, column = problem.getLineNumber() or 1, (problem.getColumnNumber() or 0) + 1
        what = f"is not well-formed XML: {problem.getMessage()}"
        raise fault(what, file=file, line=line, column=column) from None
    except DefusedXmlException as problem:
        what = "a document type" if type(problem).__name__ == "DTDForbidden" else "entities or outside references"
        what = f"holds {what}, which are not accepted (XML bombs hide there); remove them"
        raise fault(what, file=file, line=parser.getLineNumber() or 1) from None
    except (UnicodeError, ValueError) as problem:
        raise fault(f"is not readable as XML: {str(problem).splitlines()[0][:120]}", file=file) from None
    return tree.roots[0]
