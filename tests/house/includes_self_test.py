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
COMM = {"include/comm/a.hpp": "#include <tessera/fsdp/core/a.hpp>\n"}
RUN = {"include/trainer/run/a.hpp": "#include <tessera/comm/a.hpp>\n"}


class Includes(unittest.TestCase):
    def found(self, files, sentence):
        wrong = check(files)
        self.assertEqual(len(wrong), 1, wrong)
        self.assertIn(sentence, wrong[0])

    def test_a_good_tree_is_left_alone(self):
        self.assertEqual([], check({
            **CORE, **COMM, **RUN,
            "include/trainer/train_main.hpp": "#include <tessera/trainer/run/a.hpp>\n#include <tessera/comm/a.hpp>\n",
            "include/fsdp/training/a.hpp": "#include <tessera/fsdp/core/a.hpp>  // never virtual\n",
            "src/comm/mpi.cpp": "#include <tessera/comm/a.hpp>\n#include <mpi.h>\n",
            "src/fsdp/device/cpu/kernels/a.cpp": '#include "../isa.hpp"\n',
            "src/fsdp/device/cpu/isa.hpp": 'const char* text = "virtual";\n',
            "src/program/main.cpp": '#include "calibrate/a.hpp"\n#include <tessera/trainer/run/a.hpp>\n#include <stacks.inc>\n',
            "src/program/calibrate/a.hpp": '#include "../cli/a.hpp"\n',
            "bench/a.cpp": '#include "b.hpp"\n#include "../src/program/calibrate/a.hpp"\n', "bench/b.hpp": "",
            "src/program/cli/a.hpp": "",
            "include/trainer/run/engine.hpp": "struct A {\n  virtual void f() = 0;\n};\n",
            "src/program/stacks/a.cpp.in": '#include "@PROJECT_SOURCE_DIR@/src/program/calibrate/a.hpp"\n',
        }))

    def test_a_call_that_prints(self):
        core, run = "src/fsdp/core/a.cpp", "src/trainer/run/a.cpp"
        self.found({core: 'void f() { std::fprintf(stderr, "x"); }\n'}, core + ":1: prints by itself")
        self.found({run: 'void f() {\n  std::cerr << "x";\n}\n'}, run + ":2: prints by itself")
        self.assertEqual([], check({core: "std::snprintf(a, b);  // printf(x)\n", "bench/a.cpp": "puts(a);\n"}))

    def test_an_include_upwards(self):
        self.found({**CORE, **COMM, "include/fsdp/nn/a.hpp": "#include <tessera/fsdp/core/a.hpp>\n#include <tessera/comm/a.hpp>\n"},
                   "include/fsdp/nn/a.hpp:2: nn may not include comm")
        self.found({**CORE, **COMM, **RUN, "include/fsdp/training/a.hpp": "#include <tessera/trainer/run/a.hpp>\n"},
                   "training may not include trainer/run")

    def test_an_include_upwards_by_a_relative_path(self):
        self.found({**CORE, **COMM, "src/fsdp/nn/a.cpp": '#include "../../comm/own.hpp"\n', "src/comm/own.hpp": ""},
                   "nn may not include comm")

    def test_siblings_do_not_include_each_other(self):
        self.found({"src/fsdp/models/a.hpp": "", "src/fsdp/optim/a.cpp": '#include "../models/a.hpp"\n'}, "optim may not include models")
        self.found({"src/program/calibrate/a.hpp": "", "src/program/cli/a.cpp": '#include "../calibrate/a.hpp"\n'},
                   "program/cli may not include program/calibrate")
        self.found({"bench/a.hpp": "", "src/program/main.cpp": '#include "../../bench/a.hpp"\n'}, "does not exist beside this file")

    def test_text_sees_no_tensors(self):
        json = {"src/fsdp/core/json/a.hpp": ""}
        self.assertEqual([], check({**CORE, **json, "src/text/a.cpp": '#include "../fsdp/core/json/a.hpp"\n#include <tessera/fsdp/core/a.hpp>\n'}))
        self.found({**CORE, **COMM, "src/text/a.cpp": "#include <tessera/comm/a.hpp>\n"}, "text may not include comm")
        self.found({**json, "src/fsdp/buffer/a.cpp": '#include "../core/json/a.hpp"\n'}, "buffer may not include json")

    def test_the_library_needs_no_launcher(self):
        launch = {"include/comm/launch/a.hpp": "#include <tessera/comm/a.hpp>\n"}
        self.assertEqual([], check({**CORE, **COMM, **launch, "include/fsdp/training/a.hpp": "#include <tessera/comm/launch/a.hpp>\n"}))
        self.found({**launch, **CORE, "include/comm/a.hpp": "#include <tessera/comm/launch/a.hpp>\n"}, "comm may not include comm/launch")
        self.found({**CORE, **COMM, **launch, "src/fsdp/optim/a.cpp": "#include <tessera/comm/launch/a.hpp>\n"},
                   "optim may not include comm/launch")

    def test_sharding_sees_buffers_only(self):
        self.found({**CORE, **COMM, "include/fsdp/sharding/a.hpp": "#include <tessera/comm/a.hpp>\n"},
                   "sharding may not include comm")

    def test_sharding_computes_nothing(self):
        files = {**CORE, "include/fsdp/device/compute/a.hpp": "", "include/fsdp/device/operations.hpp": "#include <tessera/fsdp/device/compute/a.hpp>\n"}
        self.assertEqual([], check({**files, "include/fsdp/nn/a.hpp": "#include <tessera/fsdp/device/operations.hpp>\n",
                                    "src/fsdp/device/cuda/a.cu": '#include "../compute/a.hpp"\n', "src/fsdp/device/compute/a.hpp": ""}))
        for place in ("comm", "fsdp/device", "fsdp/buffer", "fsdp/module", "fsdp/optim"):
            for header in ("compute/a.hpp", "operations.hpp"):
                self.found({**files, f"include/{place}/a.hpp": f"#include <tessera/fsdp/device/{header}>\n"}, "may not include device/compute")

    def test_checkpoints_know_no_models(self):
        self.assertEqual([], check({
            "include/fsdp/models/a.hpp": "", "include/fsdp/optim/a.hpp": "",
            "src/fsdp/checkpoint/a.hpp": "#include <tessera/fsdp/optim/a.hpp>\n",
            "src/fsdp/model_files/a.cpp": '#include "../checkpoint/a.hpp"\n#include <tessera/fsdp/models/a.hpp>\n'}))
        for place in ("fsdp/nn", "fsdp/models", "fsdp/execution", "fsdp/plan", "fsdp/training", "fsdp/model_files", "comm/launch"):
            self.found({f"include/{place}/a.hpp": "", "src/fsdp/checkpoint/a.cpp": f"#include <tessera/{place}/a.hpp>\n"},
                       f"checkpoint may not include {place.removeprefix('fsdp/')}")

    def test_foreign_loops_know_no_models(self):
        loop, report = "include/fsdp/testing/foreign_loop.hpp", {"include/fsdp/testing/report.hpp": "#include <gtest/gtest.h>\n"}
        self.assertEqual([], check({**report, loop: "#include <tessera/fsdp/testing/report.hpp>\n",
                                    "include/fsdp/testing/a.hpp": "#include <tessera/fsdp/testing/foreign_loop.hpp>\n"}))
        for place in ("fsdp/models", "fsdp/checkpoint", "fsdp/testing", "comm/launch"):
            self.found({f"include/{place}/a.hpp": "", loop: f"#include <tessera/{place}/a.hpp>\n"},
                       f"testing/foreign may not include {place.removeprefix('fsdp/')}")
        for suite in ("strategy", "communicator", "precision", "device"):
            self.found({"include/fsdp/models/a.hpp": "", f"include/fsdp/testing/{suite}.hpp": "#include <tessera/fsdp/models/a.hpp>\n"},
                       "testing/foreign may not include models")

    def test_umbrellas_are_for_users_only(self):
        umbrella = {"include/fsdp/fsdp.hpp": ""}
        for file in ("include/fsdp/models/a.hpp", "include/fsdp/model_files/a.hpp", "include/trainer/run/a.hpp"):
            self.found({**umbrella, file: "#include <tessera/fsdp/fsdp.hpp>\n"}, "may not include umbrella")
        self.found({"include/trainer/train_main.hpp": "", "include/trainer/run/a.hpp": "#include <tessera/trainer/train_main.hpp>\n"},
                   "trainer/run may not include trainer")

    def test_a_header_that_is_not_there(self):
        self.found({"include/fsdp/core/a.hpp": "#include <tessera/fsdp/core/b.hpp>\n"}, "does not exist")
        self.found({"src/fsdp/core/a.cpp": '#include "b.hpp"\n'}, "does not exist")

    def test_another_spelling(self):
        self.found({**CORE, "include/comm/b.hpp": "#include <fsdp/core/a.hpp>\n"}, "write <tessera/fsdp/core/a.hpp>")
        self.found({**CORE, "src/comm/b.cpp": '#include "../../include/fsdp/core/a.hpp"\n'}, "write <tessera/...>")
        self.found({**CORE, "src/fsdp/core/b.hpp": "", "src/comm/b.cpp": '#include "fsdp/core/b.hpp"\n'}, "beside this file")
        self.found({"src/fsdp/core/b.hpp": "", "include/fsdp/core/b.hpp": '#include "../../../src/fsdp/core/b.hpp"\n'},
                   "a header for users includes one of src/")

    def test_a_folder_without_a_floor(self):
        self.found({"include/fsdp/misc/a.hpp": ""}, "stands on no floor")
        self.found({"src/trainer/a/b.cpp": ""}, "stands on no floor")

    def test_a_library_in_two_files(self):
        for header in ("mpi.h", "nccl.h", "dnnl.hpp", "cublasLt.h"):
            self.found({"src/comm/a.cpp": f"#include <{header}>\n", "src/comm/b.cpp": f"#include <{header}>\n"},
                       "more than one file: src/comm/a.cpp, src/comm/b.cpp")

    def test_two_headers_of_one_library_in_two_files(self):
        self.found({"src/fsdp/device/a.cpp": "#include <dnnl.h>\n", "src/fsdp/device/b.hpp": "#include <oneapi/dnnl/dnnl.hpp>\n"},
                   "oneDNN is included by more than one file")

    def test_a_header_that_users_lack(self):
        self.found({"include/trainer/run/a.hpp": "#include <nlohmann/json.hpp>\n"}, "its users may not have")

    def test_the_kit_may_ask_for_googletest_and_nobody_for_the_kit(self):
        kit = {"include/fsdp/testing/a.hpp": "#include <gtest/gtest.h>\n#include <tessera/fsdp/core/a.hpp>\n"}
        self.assertEqual([], check({**CORE, **kit}))
        for file in ("include/fsdp/training/a.hpp", "include/trainer/run/a.hpp", "include/trainer/train_main.hpp"):
            self.found({**CORE, **kit, file: "#include <tessera/fsdp/testing/a.hpp>\n"}, "may not include testing")
        self.found({**CORE, **COMM, **RUN, "include/fsdp/testing/a.hpp": "#include <tessera/trainer/run/a.hpp>\n"},
                   "testing may not include trainer/run")
        self.found({"include/fsdp/testing/a.hpp": "#include <benchmark/benchmark.h>\n"}, "its users may not have")

    def test_a_page_with_other_floors(self):
        places = list(includes.FLOORS)
        page = "".join(f"| `{place}` | {floor} | |\n" for floor, place in enumerate(places))
        names = {place: name for name, place in includes.PAGE_NAMES.items()}
        for place, name in names.items():
            page = page.replace(f"`{place}`", f"`{name}`")
        self.assertEqual([], includes.check_page(page))
        self.assertIn("device may include core", str(includes.check_page(page.replace("`core` | 0", "`core` | 99"))))
        self.assertIn("nn is on the page or in FLOORS", str(includes.check_page(page.replace("`nn`", "`elsewhere`"))))

    def test_virtual(self):
        self.found({"include/fsdp/core/a.hpp": "// fine: virtual\nstruct A {\n  virtual void f();\n};\n"},
                   "include/fsdp/core/a.hpp:3: 'virtual'")
        self.found({"include/trainer/run/engine_of.hpp": "struct A {\n  virtual void f();\n};\n"}, "engine_of.hpp:2: 'virtual'")


if __name__ == "__main__":
    unittest.main()
