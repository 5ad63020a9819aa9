# SPDX-License-Identifier: Apache-2.0
"""Tessera as a Conan 2 package: headers, libraries and the conformance kit, without the program.

    conan create packages/conan -s compiler.cppstd=20

What it links are the system's libraries (docs/packages.md): nothing is fetched from a remote.
"""
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt

root = os.path.join("..", "..")


class Tessera(ConanFile):
    name = "tessera"
    description = "Sharded, tiled training of transformers in C++20"
    license = "Apache-2.0"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"mpi": [True, False], "fPIC": [True, False], "trainer": [True, False], "sharding_only": [True, False],
               "system_libraries": [True, False]}
    default_options = {"mpi": True, "fPIC": True, "trainer": True, "sharding_only": False, "system_libraries": True}

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, root, "CMakeLists.txt"))
        self.version = re.search(r"project\(tessera VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        source = os.path.normpath(os.path.join(self.recipe_folder, root))
        for name in ("CMakeLists.txt", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "cmake/*",
                     "include/*", "src/*", "docs/*", "examples/*", "bench/*"):
            copy(self, name, source, self.export_sources_folder)

    def configure(self):
        if self.options.sharding_only:
            self.options.trainer = False

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("tessera: ranks read each other's memory by Linux's calls; build it on Linux")
        if not self.options.system_libraries:
            raise ConanInvalidConfiguration("tessera: oneDNN and ISA-L are the system's; leave system_libraries at True")

    def components(self):
        """What CMake calls TESSERA_COMPONENTS."""
        parts = ["sharding"] if self.options.sharding_only else ["library", "checkpoint", "model_files", "testing"]
        return parts + [part for part in ("trainer", "mpi") if getattr(self.options, part)]

    def system_requirements(self):
        names = [] if self.options.sharding_only else ["libdnnl-dev", "libisal-dev", "nlohmann-json3-dev"]
        if self.options.trainer:
            names += ["libpcre2-dev", "libutf8proc-dev", "libcli11-dev", "libtomlplusplus-dev", "librange-v3-dev"]
        Apt(self).check(names + (["libopenmpi-dev"] if self.options.mpi else []))

    def generate(self):
        toolchain = CMakeToolchain(self, generator="Ninja")
        toolchain.cache_variables["TESSERA_COMPONENTS"] = ";".join(self.components())
        toolchain.cache_variables["TESSERA_POSITION_INDEPENDENT_CODE"] = bool(self.options.fPIC)
        if self.options.mpi:
            toolchain.cache_variables["TESSERA_ENABLE_MPI"] = "ON"
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # Consumers read Tessera's own package, which knows its components and what they link.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "tessera"))
