"""The pages of the site: the repository's Markdown where it stands, and pages made of its sources.

A link of the Markdown to a source or to a folder leads to a page that is made here, as on GitHub; `file.cu#L10` is its line.
"""
import difflib
import html
import itertools
import pathlib
import re

import latex2mathml.converter
from mkdocs.structure.files import File, InclusionLevel
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST_PAGE = 64_000  # bytes of a source; what is larger, and what is no text, is linked to as the file that it is
LANGUAGES = {".cu": "x.cpp", ".h": "x.cpp", ".cuh": "x.cpp"}  # highlighted as; others by their own name


# ---- chapters, as tools/ladder/chapters.cpp sees them


def chapters():
    """Names of folders in their order, by part: {"Part I": ["00-standard-attention", ...], ...}."""
    first = re.findall(r"^\| (Part [IV]+): (?:from )?(\d+)", (ROOT / "README.md").read_text(), re.M)
    parts = {part: [] for part, _ in first}
    names = sorted(folder.name for folder in (ROOT / "solutions").iterdir())
    for name in names:
        if name.startswith("capstone-"):
            list(parts.values())[int(name.split("-")[1]) - 1].append(name)  # names of rungs are digits, and came before
        else:
            parts[max((start, part) for part, start in first if start <= name[:2])[1]].append(name)
    return parts


def solution(name):
    return next(file for file in sorted((ROOT / "solutions" / name).glob("*.cu")) if file.stem != "variants")


def rung_below(name):
    """The rung of the same operation before this one, or the one that the first of an operation is made of; or None."""
    if name.startswith("capstone-"):
        return None
    rungs = sorted(folder.name for folder in (ROOT / "solutions").iterdir() if not folder.name.startswith("capstone-"))
    lower = [rung for rung in rungs if rung < name and solution(rung).name == solution(name).name]
    if lower:
        return lower[-1]
    made_of = dict(re.findall(r'\{"(\w+)", "(\w+)"\}', (ROOT / "tools/ladder/chapters.cpp").read_text()))
    return next((rung for rung in rungs if rung.split("-")[0] == made_of.get(name.split("-")[0])), None)


# ---- pages that are made


class MadeFile(File):
    """A page without Markdown: `make(link)` returns its HTML; `link(path)` is the address of a path of the repository."""

    def __init__(self, path, make, config):
        super().__init__(path, None, config.site_dir, False, dest_uri=path + ".html", inclusion=InclusionLevel.NOT_IN_NAV)
        self.make, self.generated_by = make, "hooks.py"

    def is_documentation_page(self):
        return True


class MadePage(Page):
    def read_source(self, config):
        beside = self.file.src_uri.startswith("differences/")  # two kernels need the page's whole width
        self.markdown, self.meta = "", {"hide": ["toc"] + ["navigation"] * beside, "search": {"exclude": True}}

    def render(self, config, files):
        self.content = self.file.make(lambda path: get_relative_url(files.src_uris[path].url, self.url))
        self.present_anchor_ids = set(re.findall(r' id="([^"]+)"', self.content))


def highlighted_lines(path):
    try:
        lexer = get_lexer_for_filename(LANGUAGES.get(path.suffix, path.name), stripnl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    return highlight(path.read_text(), lexer, HtmlFormatter(nowrap=True)).splitlines()


def source_page(path):
    def make(link):
        folder = path.rsplit("/", 1)[0] if "/" in path else ""
        parent = f'In <a href="{link(folder)}">{folder}/</a>' if folder in SOURCES else ""
        lines = "\n".join(f'<span id="L{n}"><a href="#L{n}" tabindex="-1">{n}</a>{line}</span>'
                          for n, line in enumerate(highlighted_lines(ROOT / path), 1))
        return f'<h1>{path}</h1>\n<p>{parent}</p>\n<pre class="source highlight" tabindex="0"><code>{lines}</code></pre>'

    return make


def folder_page(path):
    def make(link):
        entries = sorted((entry for entry in SOURCES if entry.rpartition("/")[0] == path), key=lambda e: (ROOT / e).is_file())
        items = "".join(f'<li><a href="{link(entry)}">{entry.rsplit("/", 1)[-1]}{"" if (ROOT / entry).is_file() else "/"}</a>'
                        for entry in entries)
        return f"<h1>{path}/</h1>\n<ul>{items}</ul>"

    return make


def difference_page(name, below):
    """Both kernels side by side, as `./ladder diff` compares them."""
    old, new = solution(below), solution(name)

    def make(link):
        (a, marked_a, address_a), (b, marked_b, address_b) = (
            (path.read_text().splitlines(), highlighted_lines(path), link(str(path.relative_to(ROOT)))) for path in (old, new))

        def cells(sign, n, marked, address):
            if n is None:
                return "<td></td><td></td>"
            kind = {"-": ' class="removed"', "+": ' class="added"', " ": ""}[sign]
            return f'<td><a href="{address}#L{n + 1}" tabindex="-1">{n + 1}</a></td><td{kind}>{sign} {marked[n]}</td>'

        rows = []
        for group in difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(3):
            for tag, a_begin, a_end, b_begin, b_end in group:
                same = tag == "equal"
                for i, j in itertools.zip_longest(range(a_begin, a_end), range(b_begin, b_end)):
                    rows.append(f'<tr>{cells(" " if same else "-", i, marked_a, address_a)}'
                                f'{cells(" " if same else "+", j, marked_b, address_b)}</tr>')
            rows.append('<tr class="gap"><td colspan="4"></td></tr>')
        head = "".join(f'<th scope="col" colspan="2">{html.escape(rung)}</th>' for rung in (below, name))
        columns = 2 * '<colgroup><col class="number"><col></colgroup>'
        return (f'<h1>{name} beside {below}</h1>\n<p>The lesson: <a href="{link(f"chapters/{name}/README.md")}">{name}</a>. '
                f"- is gone, + has come.</p>\n"
                f'<div class="difference highlight" tabindex="0" role="region" aria-label="The difference"><table class="two">'
                f'{columns}<thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>')

    return make


def differences_page(link):
    items = "".join(f'<li><a href="{link(f"differences/{name}")}">{name}</a>, beside {below}' for name, below in BELOW.items())
    return f"<h1>Differences</h1>\n<p>What each rung changes in the kernel of the one below, side by side.</p>\n<ul>{items}</ul>"


# ---- which pages there are

PAGES = ["README*.md", "CONTRIBUTING*.md", "docs/*.md", "docs/see/*", "docs/pictures/*.svg", "chapters/*/*.md"]
SOURCES = {}  # path: MadeFile or File, of what is linked to and is no page
BELOW = {}    # rungs that have one below, and that one


def on_files(files, config):
    SOURCES.clear()
    BELOW.update({name: below for part in chapters().values() for name in part if (below := rung_below(name))})
    pages = {}

    def add(path):
        relative = path.relative_to(ROOT).as_posix()
        if relative in pages or relative in SOURCES:
            return
        if path.is_dir():
            SOURCES[relative] = MadeFile(relative, folder_page(relative), config)
            for entry in path.iterdir():
                if entry.name != "__pycache__":
                    add(entry)
        elif path.suffix == ".md":
            pages[relative] = File.generated(config, relative, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV)
            for link in re.findall(r"\]\(([^)#\s:]+)", path.read_text()):
                target = (path.parent / link).resolve()
                if target.exists() and target.is_relative_to(ROOT):  # else mkdocs says what is wrong with it
                    add(target)
        elif path.suffix in (".svg", ".js", ".css") or path.stat().st_size > LARGEST_PAGE or b"\0" in path.read_bytes():
            SOURCES[relative] = File.generated(config, relative, abs_src_path=str(path), inclusion=InclusionLevel.INCLUDED)
        else:
            SOURCES[relative] = MadeFile(relative, source_page(relative), config)

    for path in itertools.chain.from_iterable(sorted(ROOT.glob(pattern)) for pattern in PAGES):
        add(path)
    for name in ("solutions", "common", "LICENSE"):
        add(ROOT / name)
    made = [MadeFile("differences", differences_page, config)]
    made += [MadeFile(f"differences/{name}", difference_page(name, below), config) for name, below in BELOW.items()]
    for file in itertools.chain(pages.values(), SOURCES.values(), made):
        files.append(file)
        if isinstance(file, MadeFile):
            MadePage("Differences" if file.src_uri == "differences" else file.src_uri.rsplit("/", 1)[-1], file, config)
    config.nav = navigation(pages)
    return files


def navigation(pages):
    def there(pattern):
        return [path for path in sorted(pages) if pathlib.PurePath(path).match(pattern) and ".zh." not in path]

    nav = [{"Home": "README.md"}]
    nav += [{part: [f"chapters/{name}/README.md" for name in names]} for part, names in chapters().items()]
    if see := there("docs/see/*.md"):
        nav.append({"See": see})
    nav.append({"Reference": there("docs/*.md") + ["CONTRIBUTING.md"]})
    nav.append({"Differences": "differences"})
    nav.append({"Sources": ["solutions", "common", "LICENSE"]})
    if chinese := [path for path in sorted(pages, key=lambda p: (p.count("/"), p)) if ".zh." in path]:
        nav.append({"中文": chinese})
    return nav


# ---- where GitHub's Markdown and the site's differ

PICTURE = re.compile(r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)" alt="([^"]*)">\s*</picture>')


def deeper_lists(markdown):
    """What belongs to an item of a list begins where its text does; Python's Markdown wants it at multiples of four. And a
    list begins behind an empty line."""
    lines, text_begins, fenced, before = [], [], False, ""  # text_begins: of each list that is open
    for line in markdown.split("\n"):
        if line.strip():
            indent = len(line) - len(line.lstrip(" "))
            while text_begins and not fenced and indent < text_begins[-1]:
                text_begins.pop()
            depth, text = len(text_begins), line[text_begins[-1] if text_begins else 0:]
            item = None if fenced else re.match(r" {0,3}([-*+]|\d+[.)]) +(?=\S)", text)
            if item:
                if depth == 0 and before and not re.match(r" |[-*+] |\d+[.)] ", before):
                    lines.append("")
                text_begins.append((text_begins[-1] if text_begins else 0) + item.end())
                text = text.lstrip(" ")
            if text.lstrip().startswith("```"):
                fenced = not fenced
            line = " " * (4 * depth) + text
        lines.append(line)
        before = line
    return "\n".join(lines)


MATHEMATICS = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)


def formula(match):
    return f'<div class="formula" tabindex="0">{latex2mathml.converter.convert(match[1].strip(), display="block")}</div>\n'


def on_page_markdown(markdown, page, config, files):
    markdown = MATHEMATICS.sub(formula, deeper_lists(markdown))
    markdown = markdown.replace("<details>", '<details markdown="1">')
    # Of the two pictures the one of the site's own colours is shown, which a reader may choose; the other is never loaded.
    markdown = PICTURE.sub(r'<p><img class="dark" loading="lazy" src="\1" alt="\3">'
                           r'<img class="light" loading="lazy" src="\2" alt="\3"></p>', markdown)
    chapter = re.fullmatch(r"chapters/(.+)/README(\.zh)?\.md", page.file.src_uri)
    if chapter and chapter[1] in BELOW:
        title, rest = markdown.split("\n", 1)
        markdown = f"{title}\n\n[Side by side with {BELOW[chapter[1]]}](../../differences/{chapter[1]})\n{rest}"
    return markdown


def on_page_content(content, page, config, files):
    if to_play_with := re.fullmatch(r"docs/see/(.+)\.md", page.file.src_uri):  # GitHub would show the tags
        scripts = "".join(f'<script src="{name}.js"></script>\n' for name in ("see", to_play_with[1]))
        content = f'<link rel="stylesheet" href="see.css">\n{content}\n{scripts}'
    return re.sub(r"<th( [^>]*)?></th>", r"<td\1></td>", content)  # a heading that says nothing is none


def on_post_page(output, page, config):
    dialog = 'data-md-component="search" role="dialog"'
    output = output.replace(dialog, dialog + ' aria-label="Search"', 1)
    return output.replace('<html lang="en"', '<html lang="zh-Hans"', 1) if ".zh." in page.file.src_uri else output
