"""A comparison that reports are made of, and the browser that opens them."""

from __future__ import annotations

import shutil

import pytest

from knn_seq.evaluate import compare
from knn_seq.translator import Translator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "there is no chromium on the PATH; Debian has a package of that name"


def pytest_terminal_summary(terminalreporter):
    if CHROMIUM is None:
        terminalreporter.write_line(f"The HTML report was NOT opened in a browser: {MISSING}.", yellow=True, bold=True)


@pytest.fixture(scope="session")
def chromium():
    """The browser's path."""
    if CHROMIUM is None:
        pytest.skip(MISSING)
    return CHROMIUM


@pytest.fixture(scope="session")
def number_translator(number_store):
    return Translator(number_store, beam_size=1, max_length=12)


@pytest.fixture(scope="session")
def number_comparison(number_translator, number_corpus):
    """The model alone and two systems with neighbours, on sentences that the datastore knows."""
    pairs = [line.split("\t") for line in number_corpus.read_text().splitlines()[:24]]
    systems = {
        "base": {"weight": 0.0},
        "strong": {"weight": 0.6, "k": 4, "temperature": 5.0},
        "weak": {"weight": 0.2, "k": 4, "temperature": 5.0},
    }
    sources, references = zip(*pairs, strict=True)
    return compare(number_translator, list(sources), list(references), systems)
