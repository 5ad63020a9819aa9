# SPDX-License-Identifier: Apache-2.0
"""Doxygen's pages in the book's frame: header, navigation, search and colours are those of the API's front page, api/index.html.

usage: api_pages.py SITE TAGS       TAGS is Doxygen's tag file
"""
import html
import re
import sys
from pathlib import Path

from assemble import Api

TITLE = re.compile(r'<div class="title">(.*?)(?: (?:Class|Struct|Concept|Namespace|Directory)(?: Template)? Reference)?</div>', re.DOTALL)
PATH = re.compile(r'<li class="navelem">(.*?)</li>', re.DOTALL)
CONTENTS = re.compile(r'<div class="contents">.*</div><!-- contents -->', re.DOTALL)
GROUP = re.compile(r'<h2 class="groupheader">(?:<a id="([\w-]+)"[^>]*></a>)?\s*(.*?)</h2>', re.DOTALL)
INCLUDE = re.compile(r'(<code>#include &lt;(?:<a [^>]*>)?)(?!tessera/)(?=[\w/]+\.hpp)')
SCRIPTED = re.compile(r' onclick="[^"]*"| style="display:none;"|<img [^>]*>(?:&#160;)?|<div class="levels">.*?</div>|'
                      r'<span id="arr_[^>]*>[^<]*</span>|<script.*?</script>', re.DOTALL)  # what a script would fold
TEXT = re.compile(r"(<a .*?</a>|<[^>]*>)", re.DOTALL)
HEADER = re.compile(r"tessera/([\w/]+\.hpp)")
LIST = re.compile(r'<ul [^>]*data-md-component="toc"[^>]*>')
ARTICLE = re.compile(r'(<article [^>]*>).*(</article>)', re.DOTALL)
PLACES = '<p class="places"><a href="index.html">Where to start</a><a href="namespaces.html">Namespaces</a>' \
         '<a href="concepts.html">Concepts</a><a href="annotated.html">Classes</a></p>'


def without_contents(text):
    """A page with the lists of its headings emptied; a mark stands in each."""
    for found in reversed(list(LIST.finditer(text))):
        depth, end = 1, found.end()
        while depth:
            tag = re.compile(r"</?ul\b").search(text, end)
            depth, end = depth + (1 if tag[0] == "<ul" else -1), tag.end()
        text = f"{text[:found.end()]}\0{text[tag.start():]}"
    return text


class Frame:
    def __init__(self, text, headers):
        self.text, self.headers = without_contents(text), headers
        self.paths = {page: f"tessera/{path}" for path, page in headers.items()}

    def linked(self, text):
        """Text with links at the headers that it names."""
        def link(found):
            page = self.headers.get(found[1])
            return f'<a class="el" href="{page}">{found[0]}</a>' if page else found[0]

        parts = TEXT.split(text)
        return "".join(part if part.startswith("<") else HEADER.sub(link, part) for part in parts)

    def page(self, name, text):
        """Doxygen's page in the frame."""
        title, contents = TITLE.search(text)[1], SCRIPTED.sub("", CONTENTS.search(text)[0])
        contents = self.linked(INCLUDE.sub(r"\1tessera/", contents))
        title = self.paths.get(name.replace("_source.html", ".html"), title)
        if name in self.paths:
            contents = f"<p><code>#include &lt;{title}&gt;</code></p>\n{contents}"
        groups = []

        def group(found):
            anchor = found[1] or f"group-{len(groups)}"
            groups.append(f'<li class="md-nav__item"><a href="#{anchor}" class="md-nav__link">{found[2]}</a></li>')
            return f'<h2 class="groupheader" id="{anchor}">{found[2]}</h2>'

        contents = GROUP.sub(group, contents)
        heading = re.sub("(::|/)", r"\1<wbr>", title)  # where a narrow screen may break it
        above = " » ".join(PATH.findall(text)[:-1])
        article = f'{PLACES}\n<p class="above">{above}</p>\n<h1 id="api-reference">{heading}</h1>\n<div class="api">\n{contents}\n</div>\n'
        words = html.unescape(re.sub(r"<[^>]*>", "", title))
        framed = re.sub(r"<title>.*?</title>", lambda _: f"<title>{html.escape(words)} - Tessera</title>", self.text, 1)
        return ARTICLE.sub(lambda found: found[1] + article + found[2], framed.replace("\0", "".join(groups)))


def main():
    folder = Path(sys.argv[1]) / "api"
    front = folder / "index.html"
    frame = Frame(front.read_text().replace("</head>", '<link rel="stylesheet" href="../style/api.css"></head>', 1), Api(sys.argv[2]).headers)
    for file in sorted(folder.iterdir()):
        if file.suffix != ".html" or file.name.startswith("namespacemembers"):
            file.unlink()  # Doxygen's own styles, pictures and scripts; lists by letter, for which there is the search
        elif file != front:
            file.write_text(frame.page(file.name, file.read_text()))


if __name__ == "__main__":
    main()
