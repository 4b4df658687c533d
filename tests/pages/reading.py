"""Reads pages as a browser would, without showing them."""

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}

EVIL = '<script>alert(1)</script>"&\x1b[31m\u202e{{ 7 * 7 }}$x_1$'


class Reader(HTMLParser):
    """Collects what a browser would do: load, run, link, and the text that it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.open: list[str] = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.remove(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "action") and not (value or "").startswith("#"):
                self.outside.append(f"{tag} {name}={value}")
            if name in ("href", "xlink:href") and (value or "").startswith("#"):
                self.links.append((value or "")[1:])
            if name == "id":
                self.ids.append(value or "")
            assert not name.startswith("on"), name

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def read_alone(page: str) -> Reader:
    """Read a page, and see that it loads nothing, runs nothing, and that its links lead somewhere."""
    reader = read(page)
    assert reader.outside == []
    assert {"script", "iframe", "object", "embed", "link", "img", "form"}.isdisjoint(reader.tags)
    assert "@import" not in page
    assert page.count("url(") == page.count("url(#")
    assert len(set(reader.ids)) == len(reader.ids)
    assert set(reader.links) <= set(reader.ids)
    return reader


def assert_inert(reader: Reader) -> None:
    """See that hostile names (`EVIL`) are text on the page, and nothing else."""
    assert {"script", "b", "i"}.isdisjoint(reader.tags)
    assert "<script>alert(1)</script>" in reader.text
    assert "{{ 7 * 7 }}" in reader.text
    assert "\x1b" not in reader.text
    assert "\u202e" not in reader.text
