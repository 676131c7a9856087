"""The parts of a page, for tests."""

from html.parser import HTMLParser


class Outline(HTMLParser):
    """Unclosed tags, ids, links, and for each table whether it can scroll by itself."""

    VOID = frozenset({"meta", "link", "br", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.scrolls: list[bool] = []
        self.wide: list[bool] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
            self.scrolls.append(not {"card", "scroll"}.isdisjoint((dict(attrs).get("class") or "").split()))
        if tag == "table":
            self.wide.append(any(self.scrolls))
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.scrolls.pop()


def section(page: str, name: str) -> str:
    """The HTML of the section with this id."""
    begin = page.index(f'<section id="{name}"')
    return page[page.index(">", begin) + 1 : page.index("</section>", begin)]
