# SPDX-License-Identifier: Apache-2.0
"""includes.py finds each thing that it is for, and leaves a good tree alone."""
import pathlib

import includes
import pytest
from support.files import fresh, write

CORE = {"include/fsdp/core/a.hpp": "#include <vector>\n#include <boost/mp11.hpp>\n"}
COMM = {"include/comm/a.hpp": "#include <tessera/fsdp/core/a.hpp>\n"}
RUN = {"include/trainer/run/a.hpp": "#include <tessera/comm/a.hpp>\n"}
JSON = {"src/fsdp/core/json/a.hpp": ""}
LAUNCH = {"include/comm/launch/a.hpp": "#include <tessera/comm/a.hpp>\n"}
COMPUTE = {**CORE, "include/fsdp/device/compute/a.hpp": "", "include/fsdp/device/operations.hpp": "#include <tessera/fsdp/device/compute/a.hpp>\n"}
LOOP, REPORT = "include/fsdp/testing/foreign_loop.hpp", {"include/fsdp/testing/report.hpp": "#include <gtest/gtest.h>\n"}
KIT = {**CORE, "include/fsdp/testing/a.hpp": "#include <gtest/gtest.h>\n#include <tessera/fsdp/core/a.hpp>\n"}


def check(files):
    root = pathlib.Path(fresh("tree"))
    for path, text in files.items():
        write(root / path, text)
    return includes.check(root)[0]


@pytest.mark.parametrize("files", [
    {**CORE, **COMM, **RUN,
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
     "src/program/stacks/a.cpp.in": '#include "@PROJECT_SOURCE_DIR@/src/program/calibrate/a.hpp"\n'},
    {"src/fsdp/core/a.cpp": "std::snprintf(a, b);  // printf(x)\n", "bench/a.cpp": "puts(a);\n"},
    {**CORE, **JSON, "src/text/a.cpp": '#include "../fsdp/core/json/a.hpp"\n#include <tessera/fsdp/core/a.hpp>\n'},
    {**CORE, **COMM, **LAUNCH, "include/fsdp/training/a.hpp": "#include <tessera/comm/launch/a.hpp>\n"},
    {**COMPUTE, "include/fsdp/nn/a.hpp": "#include <tessera/fsdp/device/operations.hpp>\n",
     "src/fsdp/device/cuda/a.cu": '#include "../compute/a.hpp"\n', "src/fsdp/device/compute/a.hpp": ""},
    {"include/fsdp/models/a.hpp": "", "include/fsdp/optim/a.hpp": "",
     "src/fsdp/checkpoint/a.hpp": "#include <tessera/fsdp/optim/a.hpp>\n",
     "src/fsdp/model_files/a.cpp": '#include "../checkpoint/a.hpp"\n#include <tessera/fsdp/models/a.hpp>\n'},
    {**REPORT, LOOP: "#include <tessera/fsdp/testing/report.hpp>\n",
     "include/fsdp/testing/a.hpp": "#include <tessera/fsdp/testing/foreign_loop.hpp>\n"},
    KIT,
])
def test_a_good_tree_is_left_alone(folder, files):
    assert check(files) == []


@pytest.mark.parametrize("sentence, files", [
    # calls that print, and `virtual`
    ("src/fsdp/core/a.cpp:1: prints by itself", {"src/fsdp/core/a.cpp": 'void f() { std::fprintf(stderr, "x"); }\n'}),
    ("src/trainer/run/a.cpp:2: prints by itself", {"src/trainer/run/a.cpp": 'void f() {\n  std::cerr << "x";\n}\n'}),
    ("include/fsdp/core/a.hpp:3: 'virtual'", {"include/fsdp/core/a.hpp": "// fine: virtual\nstruct A {\n  virtual void f();\n};\n"}),
    ("engine_of.hpp:2: 'virtual'", {"include/trainer/run/engine_of.hpp": "struct A {\n  virtual void f();\n};\n"}),
    # an include upwards, also by a relative path
    ("include/fsdp/nn/a.hpp:2: nn may not include comm",
     {**CORE, **COMM, "include/fsdp/nn/a.hpp": "#include <tessera/fsdp/core/a.hpp>\n#include <tessera/comm/a.hpp>\n"}),
    ("training may not include trainer/run", {**CORE, **COMM, **RUN, "include/fsdp/training/a.hpp": "#include <tessera/trainer/run/a.hpp>\n"}),
    ("nn may not include comm", {**CORE, **COMM, "src/fsdp/nn/a.cpp": '#include "../../comm/own.hpp"\n', "src/comm/own.hpp": ""}),
    # siblings do not include each other
    ("optim may not include models", {"src/fsdp/models/a.hpp": "", "src/fsdp/optim/a.cpp": '#include "../models/a.hpp"\n'}),
    ("program/cli may not include program/calibrate",
     {"src/program/calibrate/a.hpp": "", "src/program/cli/a.cpp": '#include "../calibrate/a.hpp"\n'}),
    ("does not exist beside this file", {"bench/a.hpp": "", "src/program/main.cpp": '#include "../../bench/a.hpp"\n'}),
    # text sees no tensors, the library needs no launcher, sharding sees buffers only
    ("text may not include comm", {**CORE, **COMM, "src/text/a.cpp": "#include <tessera/comm/a.hpp>\n"}),
    ("buffer may not include json", {**JSON, "src/fsdp/buffer/a.cpp": '#include "../core/json/a.hpp"\n'}),
    ("comm may not include comm/launch", {**LAUNCH, **CORE, "include/comm/a.hpp": "#include <tessera/comm/launch/a.hpp>\n"}),
    ("optim may not include comm/launch", {**CORE, **COMM, **LAUNCH, "src/fsdp/optim/a.cpp": "#include <tessera/comm/launch/a.hpp>\n"}),
    ("sharding may not include comm", {**CORE, **COMM, "include/fsdp/sharding/a.hpp": "#include <tessera/comm/a.hpp>\n"}),
    # sharding computes nothing
    *(("may not include device/compute", {**COMPUTE, f"include/{place}/a.hpp": f"#include <tessera/fsdp/device/{header}>\n"})
      for place in ("comm", "fsdp/device", "fsdp/buffer", "fsdp/module", "fsdp/optim") for header in ("compute/a.hpp", "operations.hpp")),
    # checkpoints and the kit of training loops know no models
    *((f"checkpoint may not include {place.removeprefix('fsdp/')}",
       {f"include/{place}/a.hpp": "", "src/fsdp/checkpoint/a.cpp": f"#include <tessera/{place}/a.hpp>\n"})
      for place in ("fsdp/nn", "fsdp/models", "fsdp/execution", "fsdp/plan", "fsdp/training", "fsdp/model_files", "comm/launch")),
    *((f"testing/foreign may not include {place.removeprefix('fsdp/')}",
       {f"include/{place}/a.hpp": "", LOOP: f"#include <tessera/{place}/a.hpp>\n"})
      for place in ("fsdp/models", "fsdp/checkpoint", "fsdp/testing", "comm/launch")),
    *(("testing/foreign may not include models",
       {"include/fsdp/models/a.hpp": "", f"include/fsdp/testing/{suite}.hpp": "#include <tessera/fsdp/models/a.hpp>\n"})
      for suite in ("strategy", "communicator", "precision", "device")),
    # umbrellas are for users only
    *(("may not include umbrella", {"include/fsdp/fsdp.hpp": "", file: "#include <tessera/fsdp/fsdp.hpp>\n"})
      for file in ("include/fsdp/models/a.hpp", "include/fsdp/model_files/a.hpp", "include/trainer/run/a.hpp")),
    ("trainer/run may not include trainer",
     {"include/trainer/train_main.hpp": "", "include/trainer/run/a.hpp": "#include <tessera/trainer/train_main.hpp>\n"}),
    # a header that is not there, and another spelling
    ("does not exist", {"include/fsdp/core/a.hpp": "#include <tessera/fsdp/core/b.hpp>\n"}),
    ("does not exist", {"src/fsdp/core/a.cpp": '#include "b.hpp"\n'}),
    ("write <tessera/fsdp/core/a.hpp>", {**CORE, "include/comm/b.hpp": "#include <fsdp/core/a.hpp>\n"}),
    ("write <tessera/...>", {**CORE, "src/comm/b.cpp": '#include "../../include/fsdp/core/a.hpp"\n'}),
    ("beside this file", {**CORE, "src/fsdp/core/b.hpp": "", "src/comm/b.cpp": '#include "fsdp/core/b.hpp"\n'}),
    ("a header for users includes one of src/",
     {"src/fsdp/core/b.hpp": "", "include/fsdp/core/b.hpp": '#include "../../../src/fsdp/core/b.hpp"\n'}),
    # a folder without a layer
    ("is in no layer", {"include/fsdp/misc/a.hpp": ""}),
    ("is in no layer", {"src/trainer/a/b.cpp": ""}),
    # a library, or two headers of it, in two files; a header that users lack
    *(("more than one file: src/comm/a.cpp, src/comm/b.cpp",
       {"src/comm/a.cpp": f"#include <{header}>\n", "src/comm/b.cpp": f"#include <{header}>\n"})
      for header in ("mpi.h", "nccl.h", "dnnl.hpp", "cublasLt.h")),
    ("oneDNN is included by more than one file",
     {"src/fsdp/device/a.cpp": "#include <dnnl.h>\n", "src/fsdp/device/b.hpp": "#include <oneapi/dnnl/dnnl.hpp>\n"}),
    ("its users may not have", {"include/trainer/run/a.hpp": "#include <nlohmann/json.hpp>\n"}),
    # the kit may ask for GoogleTest, and nobody for the kit
    *(("may not include testing", {**KIT, file: "#include <tessera/fsdp/testing/a.hpp>\n"})
      for file in ("include/fsdp/training/a.hpp", "include/trainer/run/a.hpp", "include/trainer/train_main.hpp")),
    ("testing may not include trainer/run", {**CORE, **COMM, **RUN, "include/fsdp/testing/a.hpp": "#include <tessera/trainer/run/a.hpp>\n"}),
    ("its users may not have", {"include/fsdp/testing/a.hpp": "#include <benchmark/benchmark.h>\n"}),
])
def test_what_is_wrong_is_found(folder, sentence, files):
    wrong = check(files)
    assert len(wrong) == 1 and sentence in wrong[0], wrong


def test_a_page_with_other_layers():
    page = "".join(f"| `{place}` | {layer} | |\n" for layer, steps in enumerate(includes.LAYERS, 1) for step in steps for place in step)
    for name, place in includes.PAGE_NAMES.items():
        page = page.replace(f"`{place}`", f"`{name}`")
    assert includes.check_page(page) == []
    assert includes.check_page(page.replace("`core` | 1", "`core` | 99")) == ["docs/architecture.md: core is in layer 1"]
    last = page.replace("| `core` | 1 | |\n", "") + "| `core` | 1 | |\n"
    assert "device may include core, which comes later" in str(includes.check_page(last))
    assert "nn is on the page or in LAYERS" in str(includes.check_page(page.replace("`nn`", "`elsewhere`")))
