"""The web site in Chromium: its links, what it loads, rules of accessibility, a phone's width, sorting and search.

    ./ladder site --build && build/site-venv/bin/pip install -r tools/site/requirements-test.txt
    build/site-venv/bin/python -B tests/site_test.py            [--site FOLDER] [--seed S] [NAME of a test ...]
"""
import argparse
import functools
import html.parser
import json
import math
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import types
import urllib.parse

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST_BYTES = 1_000_000  # of a page with all that it loads, but for the index of the search
KINDS = ["index.html", "chapters/06-swizzling/index.html", "docs/measuring.html", "differences/06-swizzling.html",
         "solutions/06-swizzling/attention.cu.html", "common/tile.html", "README.zh.html"]
PHONE, DESK = {"width": 380, "height": 800}, {"width": 1280, "height": 900}


class Page(html.parser.HTMLParser):
    """What a page of HTML leads to, what it loads, and the anchors that it has."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        for name in ("src", "srcset") + (("href",) if tag == "link" and attributes.get("rel") in ("stylesheet", "icon") else ()):
            if attributes.get(name):
                self.loads.append(attributes[name])


@functools.cache
def parsed(path):
    return Page(path)


def target(page, link):
    """(file, anchor) that a link of a page leads to; None if it is another site's."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = urllib.parse.unquote(parts.path)
    return ((page.parent / path).resolve() if path else page, urllib.parse.unquote(parts.fragment))


def every_page(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100, f"{site} has {len(pages)} pages: ./ladder site --build"
    return pages


# ---- tests; each returns what is wrong, a line each


def links(site, _):
    """Every link, anchor, picture, script and style is there; nothing is loaded from elsewhere."""
    wrong = []
    for page in every_page(site):
        if page.name == "404.html":  # its addresses begin at the root of a server
            continue
        for link in parsed(page).links + parsed(page).loads:
            if (found := target(page, link)) is None:
                if link in parsed(page).loads and not link.startswith("data:"):
                    wrong.append(f"{page.relative_to(site)} loads {link}")
                continue
            file, anchor = found
            if not file.is_file():
                wrong.append(f"{page.relative_to(site)}: {link} is not there")
            elif anchor and file.suffix == ".html" and anchor not in parsed(file).anchors:
                wrong.append(f"{page.relative_to(site)}: {link} has no such anchor")
    return wrong


def weights(site, _):
    """A page and all that it loads are light."""
    wrong = []
    for page in every_page(site):
        loads = {found[0] for link in parsed(page).loads if (found := target(page, link))}
        # Of a picture's two forms one is loaded.
        loads = [file for file in loads | {page} if file.is_file() and not file.stem.endswith("-dark") and
                 file.name != "search_index.js"]
        if (size := sum(file.stat().st_size for file in loads)) > MOST_BYTES:
            wrong.append(f"{page.relative_to(site)} and what it loads are {size} bytes; at most {MOST_BYTES}")
    return wrong


def differences(site, _):
    """Each rung stands beside the one that `ladder diff` compares it with."""
    wrong = []
    ladder = ROOT / "build/cpu/bin/ladder"
    for chapter in sorted((ROOT / "chapters").iterdir()):
        said = subprocess.run([ladder, "diff", chapter.name], capture_output=True, text=True).stdout
        page = site / f"differences/{chapter.name}.html"
        beside = re.search(r"<h1>.* beside (.*)</h1>", page.read_text())[1] if page.is_file() else None
        below = re.match(r"--- solutions/([^/]+)/", said)
        if beside != (below and below[1]):
            wrong.append(f"{chapter.name}: beside {beside}; ladder diff: {said[:80]}")
    return wrong


def console(site, browser):
    """No page has an error in its console or a request that fails."""
    wrong = []
    pages = every_page(site)
    sources = [page for page in pages if page.name.count(".") > 1]
    tried = [page for page in pages if page not in sources] + random.sample(sources, 10)
    tab = browser.new_page()
    tab.on("console", lambda m: m.type == "error" and wrong.append(f"{tab.url}: {m.text}"))
    tab.on("pageerror", lambda e: wrong.append(f"{tab.url}: {e}"))
    tab.on("requestfailed", lambda r: r.failure != "net::ERR_ABORTED" and wrong.append(f"{tab.url}: {r.url} {r.failure}"))
    for page in tried:
        if page.name != "404.html":
            tab.goto(page.as_uri())
    tab.close()
    return wrong


def kinds(site):
    return KINDS + [page.relative_to(site).as_posix() for page in sorted(site.glob("docs/see/*.html"))]


def accessible(site, browser):
    """axe-core has nothing to say of any kind of page, in a theme or on a phone, which are drawn."""
    wrong = []
    settings = [("light", DESK), ("dark", DESK), ("light", PHONE)]
    pages = random.sample(kinds(site), k=len(kinds(site)))
    for i, (scheme, viewport) in enumerate(settings):
        tab = browser.new_page(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        for name in pages[i::len(settings)]:  # seconds each
            tab.goto((site / name).as_uri())
            assert tab.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
            for violation in Axe().run(tab).response["violations"]:
                nodes = [node["target"] for node in violation["nodes"]]
                wrong.append(f"{name}, {scheme}, {viewport['width']} wide: {violation['id']}: {violation['help']}: {len(nodes)}, as {nodes[:3]}")
        tab.close()
    return wrong


def phone(site, browser):
    """A page is as wide as a phone: what is wider scrolls in itself."""
    wrong = []
    tab = browser.new_page(viewport=PHONE)
    for name in kinds(site):
        tab.goto((site / name).as_uri())
        if (width := tab.evaluate("document.documentElement.scrollWidth")) > PHONE["width"]:
            wrong.append(f"{name} is {width} wide")
    tab.close()
    return wrong


def sorting(site, browser):
    """A column of numbers is sorted by the keyboard, down and up."""
    tab = browser.new_page()
    tab.goto((site / "index.html").as_uri())
    button = tab.get_by_role("button", name="TFLOP/s").first
    column = tab.locator("table", has=button).first
    numbers = lambda: [float(row) for row in column.locator("tbody tr td:nth-child(5)").all_inner_texts()]
    before, wrong = numbers(), []
    for order, reverse in (("ascending", False), ("descending", True)):
        button.press("Enter")
        said = button.locator("..").get_attribute("aria-sort")
        if numbers() != sorted(before, reverse=reverse) or said != order:
            wrong.append(f"by TFLOP/s, {order}: {said}, {numbers()}")
    if before == sorted(before) or len(before) < 10:
        wrong.append(f"the table was sorted before: {before}")
    tab.close()
    return wrong


def search(site, browser):
    """The search finds the chapter, from a file."""
    tab = browser.new_page(viewport=DESK)
    tab.goto((site / "index.html").as_uri())
    tab.set_default_timeout(60000)
    try:
        tab.get_by_role("textbox", name="Search").press_sequentially("swizzling")  # it listens to keys
        address = tab.locator(".md-search-result__link", has_text="06").first.get_attribute("href")
    except TimeoutError:
        return ["nothing is found"]
    tab.close()
    return [] if "06-swizzling" in address else [f"it leads to {address}"]


def same(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, (int, float)) and isinstance(b, (int, float)) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return a == b


def vectors(site, browser):
    """Interactive pages answer what C++ does: the program `see` has written queries and answers."""
    wrong = []
    for page in sorted(site.glob("docs/see/*.html")):
        name = page.stem
        cases = json.loads((ROOT / f"build/cpu/see/{name}.json").read_text())
        assert cases, f"see/{name}.json is empty"
        tab = browser.new_page()
        tab.goto(page.as_uri())
        answers = tab.evaluate("([name, queries]) => queries.map((query) => window.see[name].answer(query))",
                               [name, [case["query"] for case in cases]])
        tab.close()
        bad = [(case, answer) for case, answer in zip(cases, answers) if not same(case["answer"], answer)]
        wrong += [f"{name}: {len(bad)} of {len(cases)} are wrong"] if bad else []
        wrong += [f"{name} {case['query']}: {answer}, in C++ {case['answer']}" for case, answer in bad[:3]]
    return wrong


def rows_of_picture(trace):
    """The names of the rows that draw_timeline.py draws, without what it draws with."""
    for name, holds in {"style": {"THEMES": {}, "drawn": None, "plt": None, "svg": None}, "recorded": {"COLORS": [""] * 5}}.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(holds)
    sys.path.insert(0, str(ROOT / "tools/pictures"))
    import draw_timeline
    rows, left_out = draw_timeline.rows(json.loads(trace.read_text())["traceEvents"])
    return [name for name, _ in rows], left_out


def cells(tab, selector):
    """The rows of a table's body, as texts."""
    return tab.evaluate("(selector) => [...document.querySelectorAll(selector + ' tbody tr')].map("
                        "(row) => [...row.cells].map((cell) => cell.textContent))", selector)


def zooming(tab, name):
    """What is wrong with zooming, by buttons, wheel, keys and dragging, in a timeline that is open."""
    wrong = []
    status, drawing = tab.locator("#status"), tab.locator("#drawing")

    def shown():  # from, to, intervals; once the table has followed
        tab.wait_for_timeout(250)
        return [float(n) for n in re.search(r"([\d.]+) to ([\d.]+) of [\d.]+: (\d+)", status.inner_text()).groups()]

    def expect(what, holds):
        now = shown()
        listed = len(cells(tab, "#list"))
        if not holds(now) or listed != min(now[2], 200):
            wrong.append(f"{name}: {what}: {status.inner_text()}, {listed} rows in the table")
        return now

    everything = expect("at first", lambda now: now[0] == 0 and now[2] == tab.evaluate("data.spans.length"))
    picture = drawing.inner_html()
    tab.get_by_role("button", name="Zoom in").click()
    half = expect("Zoom in", lambda now: now[1] - now[0] < 0.51 * everything[1] and now[2] < everything[2])
    if drawing.inner_html() == picture:
        wrong.append(f"{name}: zooming does not draw anew")
    drawing.focus()
    for key, holds in {"+": lambda now: now[1] - now[0] < 0.51 * (half[1] - half[0]), "PageDown": lambda now: now[0] > half[0],
                       "-": lambda now: now[1] - now[0] > 0.4 * everything[1], "0": lambda now: now == everything}.items():
        drawing.press(key)
        expect(f"the key {key}", holds)
    box = drawing.bounding_box()
    middle = box["x"] + box["width"] * 0.6, box["y"] + 40
    tab.mouse.move(*middle)
    tab.mouse.wheel(0, -600)
    wheeled = expect("the wheel", lambda now: now[1] - now[0] < 0.5 * everything[1] and now[0] > 0)
    tab.mouse.down()
    tab.mouse.move(middle[0] + 100, middle[1], steps=4)
    tab.mouse.up()
    expect("dragging", lambda now: now[0] < wheeled[0])
    drawing.press("0")
    # What the arrow keys choose is told in words; so is what the mouse points at.
    told = set()
    for key in ["Home", "ArrowRight", "ArrowRight", "ArrowDown", "End"]:
        drawing.press(key)
        told.add(tab.locator("#told").inner_text())
    if len(told) < 4 or not all(re.search(r"(warp \d+|warpgroup|role).*: \w+ (at )?\d.*\n+.*:\d+", text) for text in told):
        wrong.append(f"{name}: the keys tell {told}")
    return wrong


def heat(tab, name):
    """What is wrong with the heat map of a profile that is open: each count's sums, and that it is what colours."""
    wrong = []
    totals = {row[0]: int(row[1]) for row in cells(tab, "#totals")}
    names = tab.locator("#count option").all_inner_texts()
    if names != list(totals) or len(names) < 5:
        wrong.append(f"{name}: to choose are {names}, the table has {list(totals)}")
    colours = set()
    for c, count in enumerate(names):
        tab.get_by_label("Colour the lines by").select_option(label=count)
        columns = tab.evaluate("[...document.querySelectorAll('.source thead tr')].map((row) => "
                               "[...row.cells].map((cell) => cell.textContent))")
        if any(column[1:-1] != names for column in columns):
            wrong.append(f"{name}: the columns are {columns}")
        found = sum(int(row[1 + c] or 0) for row in cells(tab, ".source"))
        if found != totals[count]:
            wrong.append(f"{name}: the lines have {found} {count}, the table {totals[count]}")
        hot = tab.evaluate("[...document.querySelectorAll('.source tbody tr')].filter((row) => row.querySelector('.hot'))"
                           ".map((row) => [row.id, getComputedStyle(row.querySelector('.hot')).backgroundColor])")
        counted = sum(bool(row[1 + c]) for row in cells(tab, ".source"))
        if len(hot) != counted or bool(hot) != (totals[count] > 0):
            wrong.append(f"{name}: {count} colours {len(hot)} lines; {counted} have some")
        colours.add(json.dumps(hot))
        dearest = [int(row[0]) for row in cells(tab, "#dearest")]
        if dearest != sorted(dearest, reverse=True) or len(dearest) != min(counted, 10):
            wrong.append(f"{name}: the dearest by {count} are {dearest}")
    if len(colours) < 4:
        wrong.append(f"{name}: the counts colour the same lines: {colours}")
    return wrong


def own_run(_, browser):
    """Pages of --page: alone in their file, accessible, as wide as a phone; zooming and counts do what they say."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for verb, rung in [("timeline", "06"), ("timeline", "07"), ("timeline", "10"), ("profile", "06"), ("profile", "07"),
                           ("profile", "00")]:
            name, page = f"{verb} {rung}", folder / f"{verb}-{rung}.html"
            trace = ["--trace", folder / "trace.json"] if verb == "timeline" else []
            printed = subprocess.run([ROOT / "build/cpu/bin/stages", verb, rung, "--seed", "1", "--page", page, *trace], check=True,
                                     capture_output=True, text=True).stdout
            if (size := page.stat().st_size) > MOST_BYTES:
                wrong.append(f"{name} has {size} bytes")
            for scheme in ("light", "dark"):
                tab = browser.new_page(viewport=DESK, color_scheme=scheme)
                tab.on("console", lambda m: wrong.append(f"{name}: {m.text}"))
                tab.on("pageerror", lambda e: wrong.append(f"{name}: {e}"))
                tab.on("request", lambda r: r.url != page.as_uri() and wrong.append(f"{name} asks for {r.url}"))
                tab.goto(page.as_uri())
                tab.wait_for_timeout(200)
                for violation in Axe().run(tab).response["violations"]:
                    nodes = [node["target"] for node in violation["nodes"]]
                    wrong.append(f"{name}, {scheme}: {violation['id']}: {violation['help']}: {len(nodes)}, as {nodes[:3]}")
                if scheme == "light":
                    wrong += zooming(tab, name) if verb == "timeline" else heat(tab, name)
                    for row in (row for table in tab.evaluate("data.tables.map((table) => table.rows)") for row in table):
                        if not any(all(cell in line for cell in row) for line in printed.splitlines()):
                            wrong.append(f"{name}: {row} is not printed")
                tab.set_viewport_size(PHONE)
                tab.reload()
                if (width := tab.evaluate("document.documentElement.scrollWidth")) > PHONE["width"]:
                    wrong.append(f"{name} is {width} wide on a phone")
                if verb == "timeline":
                    drawn = tab.evaluate("[data.rows.map((row) => row.name), data.left_out]")
                    if drawn != list(rows_of_picture(folder / "trace.json")):
                        wrong.append(f"{name} has rows {drawn}, the picture {rows_of_picture(folder / 'trace.json')}")
                tab.close()
    return wrong


TESTS = [links, weights, differences, console, accessible, phone, sorting, search, vectors, own_run]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--site", type=pathlib.Path, default=ROOT / "build/site")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("names", nargs="*", choices=[[], *(test.__name__ for test in TESTS)])
    asked = parser.parse_args()
    random.seed(asked.seed)
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no Chromium here")
    failed = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for test in TESTS:
            if asked.names and test.__name__ not in asked.names:
                continue
            wrong = test(asked.site.resolve(), browser)
            failed += bool(wrong)
            print(f"{'FAIL' if wrong else 'ok  '} {test.__name__}: {test.__doc__}", *wrong[:40], sep="\n       ", flush=True)
        browser.close()
    if failed:
        sys.exit(f"{failed} failed; --seed {asked.seed}")


if __name__ == "__main__":
    main()
