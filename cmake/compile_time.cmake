# SPDX-License-Identifier: Apache-2.0
# What makes Tessera compile faster. Each stands here once, with what it saves: processor seconds of g++ 12 with and
# without it, measured as docs/architecture.md says ("Compile time").

# Small sources are compiled several at a time: FIGURE_UNITY.
option(TESSERA_UNITY_BUILD "Compile small sources several at a time: less time from nothing, more after an edit" ON)

# tessera_unity(<target> <n>): n sources at a time.
function(tessera_unity target sources)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TESSERA_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE ${sources})
endfunction()

# Precompiled headers: FIGURE_PCH. Sources must not rely on them: the build that checks
# sources (TESSERA_CHECK_SOURCES) does not use them.
#
#   tessera_precompile(<target> <header>...)             # precompiles headers for the target
#   tessera_precompile(<target> REUSE_FROM <other>)      # reuses <other>'s, which needs the same options and
#                                                      # definitions
function(tessera_precompile target)
  if(NOT TESSERA_UNITY_BUILD OR TESSERA_CHECK_SOURCES)
    return()
  endif()
  if("${ARGV1}" STREQUAL "REUSE_FROM")
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Where a stack is instantiated, the kernels and modules that take time are compiled elsewhere
# (tessera/fsdp/nn/instances.hpp: FIGURE_INSTANCES), so that its own code
# gets -O0: FIGURE_O0. At -O0 g++ emits std::move and std::forward as functions unless it is told not to:
# FIGURE_FOLD.
set(TESSERA_O0 -O0)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
  list(APPEND TESSERA_O0 -ffold-simple-inlines)
endif()
set(TESSERA_STACK_LEVEL "$<$<CONFIG:Release>:${TESSERA_O0}>")

# Sources that decide, plan, read, report and enqueue compute nothing: -O1 is enough, FIGURE_O1. Instrumented by a
# sanitizer they take 2.5 times as long to compile at -O1 as at -O0. Fuzzers run them millions of times.
set(TESSERA_HOST_LEVEL $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize" AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=fuzzer")
  set(TESSERA_HOST_LEVEL -O0)
endif()

# g++'s garbage collection: FIGURE_GGC. If the machine has 3 GiB per core, let
# g++ allocate 1 GiB before the first collection (it then uses up to 1.6 GiB in total instead of 1.1 GiB).
set(TESSERA_COMPILER_MEMORY "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)  # MiB
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR memory_per_core "${memory} / ${cores}")
  if(memory_per_core GREATER_EQUAL 3072)
    set(TESSERA_COMPILER_MEMORY "SHELL:--param ggc-min-heapsize=1048576")  # KiB
  endif()
endif()
