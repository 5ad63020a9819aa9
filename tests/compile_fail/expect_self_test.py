# SPDX-License-Identifier: Apache-2.0
"""expect.py tells a case that fails as it should from one that does not. usage: expect_self_test.py COMPILER [FLAG...]"""
import sys
import tempfile
import unittest
from pathlib import Path

import expect

COMMAND = sys.argv[1:]


def check(text):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.cpp"
        file.write_text(text)
        return expect.check(file, COMMAND)


class Expect(unittest.TestCase):
    def test_a_case_that_fails_with_the_sentence(self):
        self.assertEqual([], check('// expect 1: too small\n#if CASE == 1\nstatic_assert(false, "too small");\n#endif\n'))

    def test_a_case_that_compiles(self):
        self.assertIn("case 1 compiles", check("// expect 1: x\n#if CASE == 1\n#endif\n")[0])

    def test_a_case_that_fails_for_another_reason(self):
        self.assertIn("without saying", check('// expect 1: too small\n#if CASE == 1\nstatic_assert(false, "b");\n#endif\n')[0])

    def test_a_case_of_which_one_sentence_is_missing(self):
        found = check('// expect 1: small\n// expect 1: large\n#if CASE == 1\nstatic_assert(false, "small");\n#endif\n')
        self.assertEqual(1, len(found))
        self.assertIn("without saying: large", found[0])

    def test_a_sentence_that_must_be_the_first(self):
        body = '#if CASE == 1\nstatic_assert(false, "small");\nstatic_assert(false, "large");\n#endif\n'
        self.assertEqual([], check("// expect 1 first: small\n" + body))
        self.assertIn("without saying first: large", check("// expect 1 first: large\n" + body)[0])

    def test_a_sentence_of_one_compiler(self):
        found = check('// expect 1 of g++: other\n// expect 1 of clang++: other\n#if CASE == 1\nstatic_assert(false, "b");\n#endif\n')
        self.assertEqual(1, len(found))

    def test_case_0_that_fails(self):
        self.assertIn("case 0 must compile", check('// expect 1: small\nstatic_assert(false, "small");\n#if CASE == 1\n#endif\n')[0])

    def test_a_case_without_an_expectation(self):
        self.assertIn("not the same", check("// expect 1: x\n#if CASE == 1\n#elif CASE == 2\n#endif\n")[0])

    def together(self, *bodies):
        """Three cases that expect "one", "two" and "three"; and how many of them were compiled alone, with case 0."""
        text = "// expect 1: one\n// expect 2: two\n// expect 3: three\ntemplate <int N> struct S { static_assert(N > 9, "
        text += '"too small"); };\n#if CASE == 0\nS<10> good;\n'
        text += "".join(f"#elif CASE == {case}\n{body}\n" for case, body in enumerate(bodies, 1)) + "#endif\n"
        alone, compile_case = [], expect.compile_case
        expect.compile_case = lambda file, command, case: alone.append(case) or compile_case(file, command, case)
        try:
            return check(text), alone
        finally:
            expect.compile_case = compile_case

    def test_cases_compiled_together(self):
        bodies = [f'int same;\nstatic_assert(false, "{word}");' for word in ("one", "two", "three")]
        self.assertEqual(([], [0]), self.together(*bodies))

    def test_a_case_compiled_together_that_compiles(self):
        wrong, alone = self.together('static_assert(false, "one");', "int two;", 'static_assert(false, "three");')
        self.assertEqual(["case 2 compiles; it must fail with: two"], wrong)
        self.assertEqual([0, 2], alone)

    def test_cases_compiled_together_that_say_each_others_sentences(self):
        wrong, alone = self.together('static_assert(false, "two");', 'static_assert(false, "one");', 'static_assert(false, "three");')
        self.assertEqual(["case 1 fails without", "case 2 fails without"], [sentence[:20] for sentence in wrong])
        self.assertEqual([0, 1, 2], alone)

    def test_a_case_whose_error_another_has_too(self):
        wrong, alone = self.together("S<1> first;", "S<1> second;", 'static_assert(false, "three");')
        self.assertEqual(["case 1 fails without", "case 2 fails without"], [sentence[:20] for sentence in wrong])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
