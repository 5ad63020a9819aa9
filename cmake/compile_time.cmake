# SPDX-License-Identifier: Apache-2.0
# What makes Tessera compile faster: each means stands here once, with what it saves in processor seconds of g++ 12 (`user` of
# bash's `time`). "A file of stacks" is a command such as that of stacks/tessera_program/threads.cpp.o (`ninja -t commands`),
# which instantiates four for each precision; the seconds below are of a file that instantiated seven in all.

# Small sources are compiled several at a time: 168 s instead of 380 s for `ninja tessera_checkpoint tessera_model_files
# tessera_cli` with all below them.
option(TESSERA_UNITY_BUILD "Compile small sources several at a time: less time from nothing, more after an edit" ON)

# tessera_unity(<target> <n>): n sources at a time.
function(tessera_unity target sources)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TESSERA_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE ${sources})
endfunction()

# Precompiled headers, for tests, examples and the program: 6.1 s instead of 7.5 s for an example, 4.0 s instead of 4.5 s
# for eight sources of tests/data. Libraries gained nothing from them (168 s with and without, as above). Sources must
# not rely on them: the build that checks sources (TESSERA_CHECK_SOURCES) does not use them.
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

# Where a stack is instantiated, kernels and modules are compiled elsewhere (tessera/fsdp/nn/instances.hpp; for CUDA's modules
# alone a file of stacks takes 19.6 s instead of 22.0 s), so that its own code gets -O0: 24 s instead of 41 s at -O1. At
# -O0 g++ emits std::move and std::forward as functions unless it is told not to: 22.0 s instead of 24.4 s.
set(TESSERA_O0 -O0)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
  list(APPEND TESSERA_O0 -ffold-simple-inlines)
endif()
set(TESSERA_STACK_LEVEL "$<$<CONFIG:Release>:${TESSERA_O0}>")

# g++ at -O0 spends two thirds of its time on the functions that a file emits, and most of them are no stack's: a copy of a
# struct of lists, or the growth of a list, is some thirty. So what knows no stack is compiled into the library (or
# once for all tests): a file of three stacks of the tests takes 10.7 s instead of 13.4 s (without precompiled headers)
# and emits 8600 functions instead of 11400 since plans, records, digests and results are. With strings, lists of numbers
# (tessera/fsdp/core/lists.hpp) and the memory of blocks in the library as well, it later took 6.7 s instead of 7.3 s and emitted
# 4740 functions instead of 6110. A second stack of a file costs a tenth of the first, so that the tests' stacks are three
# objects, one of each kind: 53 s instead of 77 s in five.

# Sources that decide, plan, read, report and enqueue compute nothing: -O1 is enough, 11.3 s instead
# of 15.0 s at -O2 for sixteen of the trainer's. Instrumented by a sanitizer they take 2.5 times as long to compile at
# -O1 as at -O0. Fuzzers run them millions of times.
set(TESSERA_HOST_LEVEL $<$<CONFIG:Release>:-O1>)
if(TESSERA_SANITIZER MATCHES "address|thread|another")
  set(TESSERA_HOST_LEVEL -O0)
endif()

# g++ collects garbage less often if it may allocate 1 GiB before the first time: 24.8 s instead of 28.6 s for a file of
# stacks, and up to 1.6 GiB in total instead of 1.1 GiB. Only where the machine has 3 GiB per core.
set(TESSERA_COMPILER_MEMORY "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)  # MiB
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR memory_per_core "${memory} / ${cores}")
  if(memory_per_core GREATER_EQUAL 3072)
    set(TESSERA_COMPILER_MEMORY "SHELL:--param ggc-min-heapsize=1048576")  # KiB
  endif()
endif()

# gold, if binutils has it, takes 0.6 s instead of 0.95 s of ld for one of the tests' programs.
if(PROJECT_IS_TOP_LEVEL AND NOT TESSERA_SANITIZER)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold TESSERA_HAVE_GOLD)
endif()
