# SPDX-License-Identifier: Apache-2.0
# The options of the build. Some defaults differ if Tessera is a sub-project.

set(components all)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(components auto)
endif()
set(TESSERA_COMPONENTS ${components} CACHE STRING "Parts to build: all, auto, or a list; see cmake/components.cmake")
set(TESSERA_OPTIONAL_COMPONENTS "" CACHE STRING "Parts to build besides a list of TESSERA_COMPONENTS if their libraries are found")
foreach(part MPI CUDA CUDNN NCCL)
  set(enabled AUTO)
  if(TESSERA_COMPONENTS STREQUAL "auto" AND NOT part STREQUAL "MPI")
    set(enabled OFF)  # nvcc is a compiler that a parent may not expect
  endif()
  set(TESSERA_ENABLE_${part} ${enabled} CACHE STRING "Build with ${part}: AUTO (if found), ON (missing is an error), OFF")
  set_property(CACHE TESSERA_ENABLE_${part} PROPERTY STRINGS AUTO ON OFF)
  if(NOT TESSERA_ENABLE_${part} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "tessera: TESSERA_ENABLE_${part} is '${TESSERA_ENABLE_${part}}'; it may be AUTO, ON or OFF")
  endif()
endforeach()

set(whole OFF)
if(PROJECT_IS_TOP_LEVEL AND TESSERA_COMPONENTS STREQUAL "all")
  set(whole ON)
endif()
foreach(part TESTS PROGRAM EXAMPLES)  # not cached: they follow TESSERA_COMPONENTS, unless they are given
  if(NOT DEFINED TESSERA_BUILD_${part})
    set(TESSERA_BUILD_${part} ${whole})
  endif()
endforeach()
option(TESSERA_POSITION_INDEPENDENT_CODE "Archives that can go into a shared library" ON)
option(TESSERA_INSTALL "Write install rules" ${PROJECT_IS_TOP_LEVEL})
if(PROJECT_IS_TOP_LEVEL AND DEFINED ENV{CI})
  set(in_ci ON)
else()
  set(in_ci OFF)
endif()
option(TESSERA_WERROR "Warnings are errors: only where Tessera itself is tested, with the compilers that it is tested with" ${in_ci})
option(TESSERA_CHECK_SOURCES "Let tests compile all headers alone, and compare all files with .clang-format (version 14)" OFF)

set(TESSERA_CUDA_ARCHITECTURES "90a" CACHE STRING
  "GPU architectures to compile for, as CMAKE_CUDA_ARCHITECTURES takes them; not 'native', which needs a GPU at hand")
if(DEFINED TESSERA_STACKS AND NOT TESSERA_STACKS STREQUAL "default")
  message(FATAL_ERROR "tessera: TESSERA_STACKS is no longer an option: the program has every strategy. -DTESSERA_COMMS=threads and "
    "-DTESSERA_PRECISIONS=bf16 choose the communicators and precisions; leave TESSERA_STACKS out (cmake -UTESSERA_STACKS)")
endif()
unset(TESSERA_STACKS CACHE)
set(TESSERA_COMMS "all" CACHE STRING "Communicators of the program: threads, mpi, nccl; 'all' for those that this build can have")
set(TESSERA_PRECISIONS "all" CACHE STRING "Precisions of the program: fp32, bf16, bf16_wire, or 'all' of these; further bf16_fp32")
set(TESSERA_TEST_AREAS "all" CACHE STRING "Folders of tests/ to build unit tests from, or 'all'")
set(TESSERA_TEST_PREFIX "" CACHE STRING "Put before the name of every test, to tell presets apart")

# The sanitizer of this build, by its flags: fuzzer, thread, address, another, or none.
set(TESSERA_SANITIZER "")
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=(fuzzer|thread|address)")
  set(TESSERA_SANITIZER "${CMAKE_MATCH_1}")
elseif(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(TESSERA_SANITIZER another)
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# version.hpp has the version, too, for users without CMake; it must be the project's.
file(STRINGS "${PROJECT_SOURCE_DIR}/include/fsdp/version.hpp" version_line REGEX "std::string_view version_string")
if(NOT version_line MATCHES "\"${PROJECT_VERSION}\"")
  message(FATAL_ERROR "tessera: project(VERSION) is ${PROJECT_VERSION}, but include/fsdp/version.hpp says otherwise: ${version_line}")
endif()
