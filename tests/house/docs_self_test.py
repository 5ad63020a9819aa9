# SPDX-License-Identifier: Apache-2.0
"""docs.py finds each thing that it is for, and leaves good pages alone."""
import docs
import pytest
from support.files import fresh, write

TRAIN = "# tessera train\n\n| flag | |\n| --- | --- |\n| `--steps NUMBER` | of the run |\n| `--data PATH ...` | text |\n"
SOURCE = """int first() {
  return 1;
}
int second() { return 2; }
const char* text = "asked for " "a thing"
  " that is not there";
TEST(Suite, Works) {}
"""
HEADERS = {"include/fsdp/a.hpp": "#include <nlohmann/json.hpp>\n", "tests/b.hpp": ""}


def said(words):
    """A header with a message, whose literal is cut in two."""
    return {"include/fsdp/a.hpp": f'const char* text = "{words[:6]}"\n  "{words[6:]}";\n'}


def check(page, files):
    root = fresh("tree")
    for path, text in {"docs/page.md": page, "docs/commands/train.md": TRAIN, "tests/a.cpp": SOURCE, "src/a.cpp": SOURCE, **files}.items():
        write(f"{root}/{path}", text)
    return docs.Checker(root).check()


@pytest.mark.parametrize("page, files", [
    ("# A\n\n[b](#b-and-c), [there](commands/train.md#tessera-train), `tests/a.cpp`, `Suite.Works`, `--steps 3`, `a.b`\n\n## B and `c`\n", {}),
    ("<!-- from: tests/a.cpp -->\n```cpp\nint first() {\n  return 1;\n...\nint second() { return 2; }\n```\n", {}),
    ("<!-- from: tests/a.cpp -->\n```cpp\nreturn 1;\n```\n", {}),
    ("<!-- says: tests/a.cpp -->\n```text\n... asked for a thing\nthat is not there\n```\n", {}),
    ("```bash\n# a comment\nTESSERA_ISA=avx2 tessera train --data a b --steps=3 && cd x   # why\nmpirun -np 2 tessera train --steps 1\n```\n", {}),
    ("<!-- messages -->\n| message |\n| --- |\n| `asked for a thing ... not there` |\n", {}),
    ("`tessera/fsdp/a.hpp`, tests/b.hpp\n\n```bash\ncat tessera/fsdp/a.hpp\n```\n", HEADERS),
    ("", {"include/fsdp/a.hpp": '#include "b/c.hpp"\nconst char* text = "tessera/fsdp/a.hpp, x.hpp";\n'}),
])
def test_good_pages_are_left_alone(folder, page, files):
    assert check(page, files) == []


@pytest.mark.parametrize("sentence, page, files", [
    ("does not say where it is from", "```cpp\nint x;\n```\n", {}),
    # a quote that left its file, a message that nothing says
    *(("this line is not in tests/a.cpp", f"<!-- from: tests/a.cpp -->\n```cpp\n{text}```\n", {})
      for text in ("int first() {\n  return 2;\n", "int second() { return 2; }\n...\nint first() {\n", "int first() {\nreturn 1;\n")),
    ("there is no file 'tests/b.cpp'", "<!-- from: tests/b.cpp -->\n```cpp\nint x;\n```\n", {}),
    ("does not say: asked for another thing", "<!-- says: tests/a.cpp -->\n```text\nasked for another thing\n```\n", {}),
    ("says 'another thing'", "<!-- messages -->\n| `asked for ... another thing` | |\n", {}),
    # commands
    ("tessera train has no flag --setps", "```bash\ntessera train --setps 3\n```\n", {}),
    ("no sub-command 'tarin'", "```bash\ncd x && mpirun -np 2 tessera tarin\n```\n", {}),
    ("has no flag --seq", "`tessera train --data a --seq 3`\n", {}),
    ("has no flag --never", "<!-- prints: tessera train --never -->\n```text\n```\n", {}),
    ("there is no 'tests/nothing.sh'", "```bash\ntests/nothing.sh\n```\n", {}),
    ("there is no preset 'relaese'", "```bash\ncmake --preset relaese\n```\n", {}),
    ("is no command that pages use", "```bash\nfrobnicate\n```\n", {}),
    # links
    ("leads nowhere", "[a](nowhere.md)\n", {}),
    ("leads nowhere", "![a](pictures/none.svg)\n", {}),
    ("no single heading", "[a](#nothing)\n", {}),
    ("no single heading", "[a](#twice)\n\n## Twice\n\n## Twice\n", {}),
    ("leads nowhere", "[a](../../outside.md)\n", {}),
    # headers, also in messages
    ("there is no header", "See tessera/fsdp/none.hpp.\n", HEADERS),
    ("there is no file", "See tests/none.hpp.\n", HEADERS),
    ("not as 'fsdp/a.hpp'", "See fsdp/a.hpp.\n", HEADERS),
    ("not as 'include/fsdp/a.hpp'", "See include/fsdp/a.hpp.\n", HEADERS),
    ("a message names 'tessera/fsdp/none.hpp'", "", said("see tessera/fsdp/none.hpp")),
    ("a message names 'fsdp/a.hpp'", "", said("see fsdp/a.hpp")),
    ("a message names 'comm/'", "", said("#include <comm/")),
    # names in inline code
    ("there is no file 'tests/none.cpp'", "`tests/none.cpp`\n", {}),
    ("there is no test 'Suite.Fails'", "`Suite.Fails`\n", {}),
    ("no sub-command has the flag --stpes", "`--stpes`\n", {}),
])
def test_what_is_wrong_is_found(folder, sentence, page, files):
    wrong = check(page, files)
    assert len(wrong) == 1 and sentence in wrong[0], wrong
