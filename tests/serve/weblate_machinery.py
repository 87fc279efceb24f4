"""Weblate's own class for LibreTranslate against a server: `python weblate_machinery.py URL [KEY]`.

Prints as JSON what came of it.  It needs the package `weblate`, but neither its database nor any other service.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import django
from django.conf import settings

MEMORY_CACHE = "django.core.cache.backends.locmem.LocMemCache"
SOURCES = ["Ficheiro %(name)s não existe em {folder}."] * 2 + [f"Erro {number}: %s" for number in range(18)]


def main(url: str, key: str = "") -> None:
    """Save the settings page, ask for languages, and translate a list of 20 texts with placeholders."""
    from weblate import settings_example

    ours = {
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        "CACHES": {name: {"BACKEND": MEMORY_CACHE} for name in ("default", "avatar")},
        "SECRET_KEY": "none",
        "SITE_DOMAIN": "weblate.example",
    }
    settings.configure(**{name: value for name, value in vars(settings_example).items() if name.isupper()} | ours)
    django.setup()
    from weblate.checks.flags import Flags
    from weblate.lang.models import Language
    from weblate.machinery.libretranslate import LibreTranslateTranslation

    given = {"url": f"{url}/", "key": key}
    form = LibreTranslateTranslation.settings_form(LibreTranslateTranslation, data=given)
    told = {"saved": form.is_valid(), "errors": form.errors}
    if told["saved"]:
        machinery = LibreTranslateTranslation(given)
        languages = machinery.get_languages(Language(code="pt_BR"), Language(code="en"))
        project = SimpleNamespace(project=None, file_format="po")
        unit = SimpleNamespace(
            all_flags=Flags("python-format, python-brace-format"),
            translation=SimpleNamespace(component=project),
            get_source_plurals=lambda: SOURCES[:1],
        )
        made = machinery._translate(*languages, [(source, unit) for source in SOURCES])
        told |= {"languages": languages, "targets": [made[source][0]["text"] for source in SOURCES]}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
