"""TMX files by hand."""

from __future__ import annotations

HEADER = '<header srclang="{srclang}" segtype="sentence" datatype="plaintext" adminlang="en" o-tmf="x"/>'


def tmx(*units: str, srclang: str = "pt-BR") -> str:
    """A file with these units."""
    body = "\n".join(units)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
        f'<tmx version="1.4">{HEADER.format(srclang=srclang)}<body>\n{body}\n</body></tmx>\n'
    )


def unit(attributes: str = "", **texts: str) -> str:
    """A unit with a text in each language; pt_BR stands for pt-BR."""
    variants = "".join(
        f'<tuv xml:lang="{lang.replace("_", "-")}"><seg>{text}</seg></tuv>' for lang, text in texts.items()
    )
    return f"<tu {attributes}>{variants}</tu>"
