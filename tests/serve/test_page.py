"""The page in a real browser: what a person does with it."""

from __future__ import annotations

import shutil
import warnings

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SOURCE = "5 7 9 11"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-sync")

MISSING = "NO CHROMIUM HERE: the page is not tested (apt-get install chromium)"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
if CHROMIUM is None:
    warnings.warn(MISSING, stacklevel=1)  # which a quiet run shows, too


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, server):
    """A page; behind the test nothing may stand in its console, and it has asked nobody but the server."""
    said, asked, contexts = [], [], []

    def open_page(width=1200, section="", **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, locale="en", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{server.url}/#{section}")
        page.wait_for_selector("#store option", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not said
    assert all(url.startswith((f"{server.url}/", "data:", "blob:")) for url in asked)


def test_a_word_tells_what_decided_it_and_a_correction_is_used_at_once(open_page):
    page = open_page()
    page.fill("#source", SOURCE)
    page.wait_for_selector(".word")
    page.click(".word")
    assert page.locator("#why .voter").count() >= 1
    assert page.locator("#why .voter mark").first.is_visible()
    alone = page.locator("#base p")
    same = alone.inner_text() == page.locator("#target").inner_text()
    assert (alone.locator("mark").count() == 0) == same  # words that differ are marked
    page.click("#correct")
    page.fill("#corrected", "50 51 52")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#learned:visible")
    assert page.locator("#target").inner_text() == "50 51 52"
    page.evaluate("document.querySelector('#settings').open = true")
    page.locator("#weight").press("ArrowLeft")  # other settings show what they do, not what is remembered
    page.wait_for_selector("#learned", state="hidden")


def test_a_file_is_imported_and_a_pair_deleted_and_brought_back(open_page, tmp_path):
    segments = "".join(
        f'<tu><tuv xml:lang="pt"><seg>{n} 33 34</seg></tuv><tuv xml:lang="en"><seg>{n} 44</seg></tuv></tu>'
        for n in range(10, 30)
    )
    path = tmp_path / "terms.tmx"
    path.write_text(f'<tmx version="1.4"><header srclang="pt"/><body>{segments}</body></tmx>')
    page = open_page(section="memory")
    page.set_input_files("#import", str(path))
    page.get_by_text("Done: terms.tmx, 20").wait_for()
    page.locator("#pairs tbody tr", has_text="29 33 34").wait_for()
    page.fill("#query", "33 34 29")
    page.press("#query", "Enter")
    row = page.locator("#pairs tbody tr", has_text="29 33 34")
    row.wait_for()
    row.get_by_role("button", name="Delete").click()
    page.wait_for_selector("#undo:visible")
    page.locator("#pairs tbody tr", has_text="29 33 34").wait_for(state="detached")
    page.keyboard.press("Enter")  # the button that undoes it has the focus
    page.locator("#pairs tbody tr", has_text="29 33 34").wait_for()
    page.locator("#pairs tbody tr", has_text="29 33 34").get_by_role("button", name="Edit").click()
    page.locator("#pairs tbody textarea").nth(1).fill("45 46")
    page.get_by_role("button", name="Save to the memory").click()
    page.locator("#pairs tbody tr", has_text="45 46").wait_for()
    page.click("[data-sort=source]")
    assert page.locator("#pairs th").first.get_attribute("aria-sort") == "ascending"
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "numbers.tmx"


def test_terms_and_documents(open_page, tmp_path):
    page = open_page(section="glossary")
    page.fill("#term [name=source]", "57")
    page.fill("#term [name=target]", "58")
    page.press("#term [name=target]", "Enter")
    page.locator("#terms tbody tr", has_text="57").get_by_role("button").click()
    page.locator("#terms tbody tr", has_text="57").wait_for(state="detached")
    page.click("#tab-documents")
    path = tmp_path / "numbers.txt"
    path.write_text("a 5 7 9\n")
    page.set_input_files("#document", str(path))
    page.get_by_role("button", name="Download").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "numbers.txt"


def test_markup_stays_text_in_every_section(open_page):
    page = open_page()
    page.on("dialog", lambda dialog: pytest.fail("Something ran."))
    page.fill("#source", "<script>alert(1)</script> 5 <img src=x onerror=alert(2)> 6")
    page.wait_for_selector("#correct:visible")
    assert page.locator("#target").inner_text().count("<script>") == 1
    page.click("#correct")
    page.fill("#corrected", "<script>alert(1)</script><img src=x onerror=alert(2)>")
    page.click("#correction button.main")
    page.wait_for_selector("#learned:visible")
    assert page.locator("#target").inner_text() == "<script>alert(1)</script><img src=x onerror=alert(2)>"
    page.click("#tab-memory")
    page.locator("#pairs tbody td", has_text="<script>alert(1)").first.wait_for()
    assert page.locator("main script, main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_small_screen(open_page, scheme):
    page = open_page(360, color_scheme=scheme)
    assert page.locator("html").get_attribute("data-theme") == scheme
    page.fill("#source", "5 7 9 11 13 15 17 19 21 23 25")
    page.wait_for_selector(".word")
    page.click(".word")
    page.evaluate("document.querySelector('#settings').open = true")
    for language in ("de", "pt", "en"):
        page.select_option("#language", language)
        for section in ("translate", "memory", "glossary", "documents"):
            page.click(f"#tab-{section}")
            page.wait_for_timeout(100)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (section, language)


def test_keyboard_and_languages(open_page):
    page = open_page()
    page.focus("#tab-translate")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-memory"
    assert page.locator("#memory").is_visible()
    for code, word in (("de", "Übersetzen"), ("pt", "Traduzir"), ("en", "Translate")):
        page.select_option("#language", code)
        assert page.locator("#tab-translate").inner_text() == word
        assert page.locator("html").get_attribute("lang") == code
    missing = page.evaluate(
        """async () => {
            const { TEXTS } = await import("./page/texts.js");
            const names = Object.keys(TEXTS.en).sort().join();
            const others = Object.entries(TEXTS).filter(([, texts]) => Object.keys(texts).sort().join() !== names);
            return others.map(([code]) => code);
        }"""
    )
    assert missing == []
    unlabelled = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea")].filter((element) =>
            !(element.textContent.trim() || element.getAttribute("aria-label") || element.labels?.length)).length"""
    )
    assert unlabelled == 0
