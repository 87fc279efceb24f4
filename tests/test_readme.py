"""What README shows is what happens."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_quickstart_prints_what_is_shown():
    quickstart = re.search(
        r"<!-- quickstart.*?-->\n```python\n(.*?)```\n\n```text\n(.*?)```",
        README.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert quickstart is not None
    code, shown = quickstart.groups()
    assert len(ast.parse(code).body) == 5
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, str(README), "exec"), {})
    assert output.getvalue() == shown
