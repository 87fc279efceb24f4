"""What a report says, read from its HTML."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}


class PageReader(HTMLParser):
    """Collects elements with their classes and their text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[tuple[str, set[str], list[str]]] = []
        self.elements: list[tuple[str, set[str], str]] = []
        self.addresses: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.addresses += [attributes[name] for name in ("src", "href", "xlink:href", "srcset") if name in attributes]
        if tag not in VOID:
            self.open.append((tag, set(attributes.get("class", "").split()), []))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data):
        for _, _, text in self.open:
            text.append(data)

    def handle_endtag(self, tag):
        assert self.open[-1][0] == tag, f"</{tag}> ends <{self.open[-1][0]}>"
        name, classes, text = self.open.pop()
        self.elements.append((name, classes, "".join(text)))

    def texts(self, tag: str | None = None, *classes: str) -> list[str]:
        """The text of each element of that kind, in the order in which they end."""
        return [text for name, own, text in self.elements if tag in (None, name) and own.issuperset(classes)]
