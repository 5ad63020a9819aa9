# SPDX-License-Identifier: Apache-2.0
"""includes.py finds each thing that it is for, and leaves a good tree alone."""
import tempfile
import unittest
from pathlib import Path

import includes


def check(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return includes.check(root)[0]


CORE = {"include/fsdp/core/a.hpp": "#include <vector>\n#include <boost/mp11.hpp>\n"}
COMM = {"include/comm/a.hpp": "#include <fsdp/core/a.hpp>\n"}


class Includes(unittest.TestCase):
    def found(self, files, sentence):
        wrong = check(files)
        self.assertEqual(len(wrong), 1, wrong)
        self.assertIn(sentence, wrong[0])

    def test_a_good_tree_is_left_alone(self):
        self.assertEqual([], check({
            **CORE, **COMM,
            "include/fsdp/fsdp.hpp": "#include <fsdp/train/a.hpp>\n#include <comm/a.hpp>\n",
            "include/fsdp/train/a.hpp": "#include <fsdp/core/a.hpp>  // never virtual\n",
            "src/comm/mpi.cpp": '#include <comm/a.hpp>\n#include <mpi.h>\n#include <range/v3/all.hpp>\n',
            "src/device/cpu/kernels/a.cpp": '#include "../isa.hpp"\n',
            "src/device/cpu/isa.hpp": 'const char* text = "virtual";\n',
        }))

    def test_a_call_that_prints(self):
        self.found({"src/core/a.cpp": 'void f() { std::fprintf(stderr, "x"); }\n'}, "src/core/a.cpp:1: prints by itself")
        self.found({"src/train/a.cpp": 'void f() {\n  std::cerr << "x";\n}\n'}, "src/train/a.cpp:2: prints by itself")
        self.assertEqual([], check({"src/core/a.cpp": "std::snprintf(a, b);  // printf(x)\n", "src/bench/a.cpp": "puts(a);\n"}))

    def test_an_include_upwards(self):
        self.found({**CORE, **COMM, "include/fsdp/nn/a.hpp": "#include <fsdp/core/a.hpp>\n#include <comm/a.hpp>\n"},
                   "include/fsdp/nn/a.hpp:2: nn may not include comm")

    def test_an_include_upwards_by_a_relative_path(self):
        self.found({**CORE, **COMM, "src/nn/a.cpp": '#include "../comm/own.hpp"\n', "src/comm/own.hpp": ""},
                   "nn may not include comm")

    def test_sharding_sees_buffers_only(self):
        self.found({**CORE, **COMM, "include/fsdp/sharding/a.hpp": "#include <comm/a.hpp>\n"},
                   "sharding may not include comm")

    def test_the_umbrella_is_for_users_only(self):
        self.found({"include/fsdp/fsdp.hpp": "", "include/fsdp/models/a.hpp": "#include <fsdp/fsdp.hpp>\n"},
                   "models may not include top")

    def test_a_header_that_is_not_there(self):
        self.found({"include/fsdp/core/a.hpp": "#include <fsdp/core/b.hpp>\n"}, "does not exist")

    def test_a_folder_without_a_floor(self):
        self.found({"include/fsdp/misc/a.hpp": ""}, "stands on no floor")

    def test_a_library_in_two_files(self):
        for header in ("mpi.h", "nccl.h", "dnnl.hpp", "cublasLt.h"):
            self.found({"src/comm/a.cpp": f"#include <{header}>\n", "src/comm/b.cpp": f"#include <{header}>\n"},
                       "more than one file: src/comm/a.cpp, src/comm/b.cpp")

    def test_two_headers_of_one_library_in_two_files(self):
        self.found({"src/device/a.cpp": "#include <dnnl.h>\n", "src/device/b.hpp": "#include <oneapi/dnnl/dnnl.hpp>\n"},
                   "oneDNN is included by more than one file")

    def test_ranges_in_a_header(self):
        self.found({"src/data/a.hpp": "#include <range/v3/view/zip.hpp>\n"}, ".cpp files only")

    def test_a_header_that_users_lack(self):
        self.found({"include/fsdp/train/a.hpp": "#include <nlohmann/json.hpp>\n"}, "its users may not have")

    def test_the_kit_may_ask_for_googletest_and_nobody_for_the_kit(self):
        kit = {"include/fsdp/testing/a.hpp": "#include <gtest/gtest.h>\n#include <fsdp/core/a.hpp>\n"}
        self.assertEqual([], check({**CORE, **kit}))
        for file in ("include/fsdp/train/a.hpp", "include/fsdp/fsdp.hpp", "src/cli/a.cpp"):
            self.found({**CORE, **kit, file: "#include <fsdp/testing/a.hpp>\n"}, "may not include testing")
        self.found({"include/fsdp/testing/a.hpp": "#include <benchmark/benchmark.h>\n"}, "its users may not have")

    def test_virtual(self):
        self.found({"include/fsdp/core/a.hpp": "// fine: virtual\nstruct A {\n  virtual void f();\n};\n"},
                   "include/fsdp/core/a.hpp:3: 'virtual'")


if __name__ == "__main__":
    unittest.main()
