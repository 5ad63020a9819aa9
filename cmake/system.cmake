# SPDX-License-Identifier: Apache-2.0

# Stops with an error on unsupported systems, before anything is searched.
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "Tessera runs on Linux, and this is ${CMAKE_SYSTEM_NAME}: affinity masks and control groups, by which ranks share "
    "cores and memory, locks of open files, which keep checkpoint directories to one run, and /proc would be missing. "
    "Build in a Linux container or virtual machine (WSL 2 is one).")
endif()
if(CMAKE_SIZEOF_VOID_P LESS 8)
  message(FATAL_ERROR "Tessera needs 64-bit addresses; this compiler makes ${CMAKE_SIZEOF_VOID_P}-byte ones.")
endif()
if(PROJECT_BINARY_DIR STREQUAL PROJECT_SOURCE_DIR)
  message(FATAL_ERROR "Tessera is built in a folder of its own, whose include/ is not that of the sources: cmake -B build; of a "
                      "parent that is built in its sources: add_subdirectory(FOLDER tessera-build)")
endif()
