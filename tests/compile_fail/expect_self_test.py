# SPDX-License-Identifier: Apache-2.0
"""expect.py tells a case that fails as it should from one that does not. usage: expect_self_test.py COMPILER [FLAG...]"""
import sys
import tempfile
import unittest.mock
from pathlib import Path

import expect

COMMAND = sys.argv[1:]


def check(text):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.cpp"
        file.write_text(text)
        return expect.check(file, COMMAND)


FIRST = '#if CASE == 1\nstatic_assert(false, "small");\nstatic_assert(false, "large");\n#endif\n'
FILES = [  # a file, and a part of each sentence of what is wrong with it
    ('// expect 1: too small\n#if CASE == 1\nstatic_assert(false, "too small");\n#endif\n', []),
    ("// expect 1: x\n#if CASE == 1\n#endif\n", ["case 1 compiles"]),
    ('// expect 1: too small\n#if CASE == 1\nstatic_assert(false, "b");\n#endif\n', ["without saying"]),
    ('// expect 1: small\n// expect 1: large\n#if CASE == 1\nstatic_assert(false, "small");\n#endif\n', ["without saying: large"]),
    ("// expect 1 first: small\n" + FIRST, []),
    ("// expect 1 first: large\n" + FIRST, ["without saying first: large"]),
    # a sentence of one compiler
    ('// expect 1 of g++: other\n// expect 1 of clang++: other\n#if CASE == 1\nstatic_assert(false, "b");\n#endif\n', ["without saying: other"]),
    ('// expect 1: small\nstatic_assert(false, "small");\n#if CASE == 1\n#endif\n', ["case 0 must compile"]),
    ("// expect 1: x\n#if CASE == 1\n#elif CASE == 2\n#endif\n", ["not the same"]),
]
ONE, TWO, THREE = (f'static_assert(false, "{word}");' for word in ("one", "two", "three"))
TOGETHER = [  # the bodies of three cases that expect "one", "two" and "three"; what is wrong; what is compiled alone, with case 0
    ([f"int same;\n{body}" for body in (ONE, TWO, THREE)], [], [0]),
    ([ONE, "int two;", THREE], ["case 2 compiles; it must fail with: two"], [0, 2]),
    ([TWO, ONE, THREE], ["case 1 fails without", "case 2 fails without"], [0, 1, 2]),  # they say each other's sentences
    (["S<1> first;", "S<1> second;", THREE], ["case 1 fails without", "case 2 fails without"], [0, 1, 2]),  # another has the error, too
]


class Expect(unittest.TestCase):
    def finds(self, text, sentences):
        found = check(text)
        self.assertEqual(len(found), len(sentences), found)
        for sentence, wrong in zip(sentences, found):
            self.assertIn(sentence, wrong)

    def test_files(self):
        for text, sentences in FILES:
            with self.subTest(text):
                self.finds(text, sentences)

    def test_cases_compiled_together(self):
        for bodies, sentences, alone in TOGETHER:
            text = "// expect 1: one\n// expect 2: two\n// expect 3: three\ntemplate <int N> struct S { static_assert(N > 9, "
            text += '"too small"); };\n#if CASE == 0\nS<10> good;\n'
            text += "".join(f"#elif CASE == {case}\n{body}\n" for case, body in enumerate(bodies, 1)) + "#endif\n"
            with self.subTest(text), unittest.mock.patch.object(expect, "compile_case", wraps=expect.compile_case) as compiled:
                self.finds(text, sentences)
                self.assertEqual([call.args[2] for call in compiled.call_args_list], alone)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
