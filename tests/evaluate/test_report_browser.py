"""The report in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from page_reader import PageReader
from PIL import Image
from tunings import TUNING

from knn_seq.evaluate import Comparison
from knn_seq.evaluate.report import write_report
from knn_seq.translator import Translator

SAID = "the wrapper was here"
WRAPPER = """<!DOCTYPE html><body><iframe id="report" src="report.html" width="WIDTH" height="900"></iframe>
<pre id="found"></pre>
<script>
onload = () => {
  const page = document.getElementById("report").contentDocument, root = page.documentElement;
  const right = word => word.getBoundingClientRect().right;
  const word = [...page.querySelectorAll(".marked .word.changed")].sort((a, b) => right(a) - right(b)).pop();
  const hidden = () => [...page.querySelectorAll(".card")].every(card => card.hidden);
  const found = {width: root.clientWidth, needed: root.scrollWidth, hidden: hidden()};
  word.focus();
  const open = [...page.querySelectorAll(".card")].filter(card => !card.hidden);
  found.open = open.map(card => card.id);
  found.described = word.getAttribute("aria-describedby");
  const box = open[0].getBoundingClientRect();
  Object.assign(found, {left: box.left, right: box.right, height: box.height});
  Object.assign(found, {text: open[0].innerText, word: word.innerText});
  found.still = root.scrollWidth;
  page.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
  found.closed = hidden();
  document.getElementById("found").textContent = JSON.stringify(found);
  console.log("SAID");
};
</script></body>"""


@pytest.fixture(scope="module")
def folder(number_store, number_comparison, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    shutil.copytree(number_store.path, folder / "store")
    (folder / "store" / "tuning.json").write_text(json.dumps({"full/fixed": TUNING}))
    translator = Translator(folder / "store", beam_size=1, max_length=12)
    systems = [replace(system, translator=translator) for system in number_comparison.systems]
    compared = Comparison(systems, number_comparison.sources, number_comparison.references)
    write_report(folder / "report.html", compared, "Numbers")
    return folder


@pytest.fixture
def browse(chromium, folder, tmp_path):
    """Open a page of the folder; returns the browser's output and what was said on the console."""

    def run(page, *options):
        command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--enable-logging=stderr", "--allow-file-access-from-files", f"--user-data-dir={tmp_path}"]
        command += [*options, (folder / page).as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout, re.findall(r":CONSOLE[^ ]*\s(.*)", done.stderr)

    return run


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshot(browse, tmp_path, scheme):
    picture = tmp_path / "report.png"
    number = {"dark": 0, "light": 1}[scheme]
    options = ("--window-size=1200,1600", f"--blink-settings=preferredColorScheme={number}")
    _, said = browse("report.html", f"--screenshot={picture}", *options)
    assert said == []
    with Image.open(picture) as image:
        assert (image.format, image.size) == ("PNG", (1200, 1600))
        colours = image.convert("RGB").getcolors(1 << 21)
    assert len(colours) > 100
    background = max(colours)[1]
    assert (sum(background) > 3 * 200) == (scheme == "light")
    # The accent colour of the scheme was painted: style sheet and figures agree.
    accent = {"light": (0xB3, 0x50, 0x0B), "dark": (0xF2, 0xA7, 0x65)}[scheme]
    assert sum(count for count, colour in colours if colour == accent) > 500


def test_the_page_as_the_browser_understands_it(browse, folder):
    dom, said = browse("report.html", "--dump-dom")
    assert said == []
    written, understood = PageReader((folder / "report.html").read_text(encoding="utf-8")), PageReader(dom)
    for kind in (("dd", "marked"), ("span", "word", "changed"), ("span", "target")):
        assert understood.texts(*kind) == written.texts(*kind)
    assert understood.texts("span", "word", "changed")


@pytest.mark.parametrize("width", [400, 1200])
def test_words_open_and_nothing_overflows(browse, folder, width):
    (folder / f"{width}.html").write_text(WRAPPER.replace("WIDTH", str(width)).replace("SAID", SAID))
    dom, said = browse(f"{width}.html", "--dump-dom", "--virtual-time-budget=5000", "--window-size=1400,1000")
    assert len(said) == 1, said  # what the page itself said would be here, too
    assert SAID in said[0]
    found = json.loads(next(text for text in PageReader(dom).texts("pre") if text))
    assert found["needed"] <= found["width"]
    assert found["still"] <= found["width"]
    assert found["hidden"]
    assert found["open"] == [found["described"]]
    assert found["left"] >= 0
    assert found["right"] <= found["width"]
    assert found["height"] > 50
    assert found["text"].split()[0] == found["word"]
    assert "decided by neighbours" in found["text"]
    assert found["closed"]
