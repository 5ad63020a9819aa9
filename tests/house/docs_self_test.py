# SPDX-License-Identifier: Apache-2.0
"""docs.py finds each thing that it is for, and leaves good pages alone."""
import tempfile
import unittest
from pathlib import Path

import docs

TRAIN = "# tessera train\n\n| flag | |\n| --- | --- |\n| `--steps NUMBER` | of the run |\n| `--data PATH ...` | text |\n"
SOURCE = """int first() {
  return 1;
}
int second() { return 2; }
const char* text = "asked for " "a thing"
  " that is not there";
TEST(Suite, Works) {}
"""


def check(page, **files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in {"docs/page.md": page, "docs/commands/train.md": TRAIN, "tests/a.cpp": SOURCE, "src/a.cpp": SOURCE, **files}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return docs.Checker(root).check()


class Docs(unittest.TestCase):
    def good(self, page):
        self.assertEqual([], check(page))

    def found(self, page, sentence):
        wrong = check(page)
        self.assertEqual(len(wrong), 1, wrong)
        self.assertIn(sentence, wrong[0])

    def test_good_pages_are_left_alone(self):
        self.good("# A\n\n[b](#b-and-c), [there](commands/train.md#tessera-train), `tests/a.cpp`, `Suite.Works`, `--steps 3`, `a.b`\n\n## B and `c`\n")
        self.good("<!-- from: tests/a.cpp -->\n```cpp\nint first() {\n  return 1;\n...\nint second() { return 2; }\n```\n")
        self.good("<!-- from: tests/a.cpp -->\n```cpp\nreturn 1;\n```\n")
        self.good("<!-- says: tests/a.cpp -->\n```text\n... asked for a thing\nthat is not there\n```\n")
        self.good("```bash\n# a comment\nTESSERA_ISA=avx2 tessera train --data a b --steps=3 && cd x   # why\nmpirun -np 2 tessera train --steps 1\n```\n")
        self.good("<!-- messages -->\n| message |\n| --- |\n| `asked for a thing ... not there` |\n")

    def test_a_block_without_a_source(self):
        self.found("```cpp\nint x;\n```\n", "does not say where it is from")

    def test_a_quote_that_left_its_file(self):
        for text in ("int first() {\n  return 2;\n", "int second() { return 2; }\n...\nint first() {\n", "int first() {\nreturn 1;\n"):
            self.found(f"<!-- from: tests/a.cpp -->\n```cpp\n{text}```\n", "this line is not in tests/a.cpp")
        self.found("<!-- from: tests/b.cpp -->\n```cpp\nint x;\n```\n", "there is no file 'tests/b.cpp'")

    def test_a_message_that_nothing_says(self):
        self.found("<!-- says: tests/a.cpp -->\n```text\nasked for another thing\n```\n", "does not say: asked for another thing")
        self.found("<!-- messages -->\n| `asked for ... another thing` | |\n", "says 'another thing'")

    def test_commands(self):
        self.found("```bash\ntessera train --setps 3\n```\n", "tessera train has no flag --setps")
        self.found("```bash\ncd x && mpirun -np 2 tessera tarin\n```\n", "no sub-command 'tarin'")
        self.found("`tessera train --data a --seq 3`\n", "has no flag --seq")
        self.found("<!-- prints: tessera train --never -->\n```text\n```\n", "has no flag --never")
        self.found("```bash\ntests/nothing.sh\n```\n", "there is no 'tests/nothing.sh'")
        self.found("```bash\ncmake --preset relaese\n```\n", "there is no preset 'relaese'")
        self.found("```bash\nfrobnicate\n```\n", "is no command that pages use")

    def test_links(self):
        self.found("[a](nowhere.md)\n", "leads nowhere")
        self.found("![a](pictures/none.svg)\n", "leads nowhere")
        self.found("[a](#nothing)\n", "no single heading")
        self.found("[a](#twice)\n\n## Twice\n\n## Twice\n", "no single heading")
        self.found("[a](../../outside.md)\n", "leads nowhere")

    def test_headers(self):
        header = {"include/fsdp/a.hpp": "#include <nlohmann/json.hpp>\n", "tests/b.hpp": ""}
        self.assertEqual([], check("`tessera/fsdp/a.hpp`, tests/b.hpp\n\n```bash\ncat tessera/fsdp/a.hpp\n```\n", **header))
        for path, sentence in {"tessera/fsdp/none.hpp": "there is no header", "tests/none.hpp": "there is no file",
                               "fsdp/a.hpp": "not as 'fsdp/a.hpp'", "include/fsdp/a.hpp": "not as 'include/fsdp/a.hpp'"}.items():
            wrong = check(f"See {path}.\n", **header)
            self.assertEqual(len(wrong), 1, wrong)
            self.assertIn(sentence, wrong[0])

    def test_headers_in_messages(self):
        for words, path in {"see tessera/fsdp/none.hpp": "tessera/fsdp/none.hpp", "see fsdp/a.hpp": "fsdp/a.hpp",
                            "#include <comm/": "comm/"}.items():
            wrong = check("", **{"include/fsdp/a.hpp": f'const char* text = "{words[:6]}"\n  "{words[6:]}";\n'})
            self.assertEqual(len(wrong), 1, wrong)
            self.assertIn(f"a message names '{path}'", wrong[0])
        self.assertEqual([], check("", **{"include/fsdp/a.hpp": '#include "b/c.hpp"\nconst char* text = "tessera/fsdp/a.hpp, x.hpp";\n'}))

    def test_names_in_inline_code(self):
        self.found("`tests/none.cpp`\n", "there is no file 'tests/none.cpp'")
        self.found("`Suite.Fails`\n", "there is no test 'Suite.Fails'")
        self.found("`--stpes`\n", "no sub-command has the flag --stpes")


if __name__ == "__main__":
    unittest.main()
