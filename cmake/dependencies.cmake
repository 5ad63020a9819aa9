# SPDX-License-Identifier: Apache-2.0
# Finds all dependencies, and prints a table of what it found.

set_property(GLOBAL PROPERTY TESSERA_TABLE "")

# Adds a row to the table. `detail`: a version, or the reason why something is missing.
function(tessera_row name found detail)
  set(state "not found")
  if(found)
    set(state "found")
  endif()
  set_property(GLOBAL APPEND PROPERTY TESSERA_TABLE "${name}|${state}|${detail}")
endfunction()

function(tessera_print_table)
  get_property(rows GLOBAL PROPERTY TESSERA_TABLE)
  message(STATUS "tessera ${PROJECT_VERSION}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}")
  foreach(row IN LISTS rows)
    string(REPLACE "|" ";" row "${row}")
    list(GET row 0 name)
    list(GET row 1 state)
    list(GET row 2 detail)
    string(SUBSTRING "${name}                  " 0 18 name)
    string(SUBSTRING "${state}           " 0 11 state)
    message(STATUS "  ${name}${state}${detail}")
  endforeach()
endfunction()

# Writes compiler, system and the table as a header: FSDP_BUILT_WITH(name, version) for each dependency that was found,
# FSDP_BUILT_WITHOUT(name) for the others.
function(tessera_write_built_with path)
  get_property(rows GLOBAL PROPERTY TESSERA_TABLE)
  set(text "FSDP_BUILT_WITH(\"compiler\", \"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}\")\n"
           "FSDP_BUILT_WITH(\"system\", \"${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}\")\n")
  list(JOIN text "" text)
  foreach(row IN LISTS rows)
    string(REGEX MATCH "^([^|]*)[|]([^|]*)[|](.*)$" whole "${row}")
    if(CMAKE_MATCH_2 STREQUAL "found")
      string(APPEND text "FSDP_BUILT_WITH(\"${CMAKE_MATCH_1}\", \"${CMAKE_MATCH_3}\")\n")
    else()
      string(APPEND text "FSDP_BUILT_WITHOUT(\"${CMAKE_MATCH_1}\")\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT "${path}" CONTENT "${text}")
endfunction()

# Finds a required dependency. The error names Debian's package.
macro(tessera_require package debian label)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "tessera: ${label} is missing. On Debian: apt-get install ${debian}, or run cmake/dependencies.sh")
  endif()
  if(NOT ${package}_VERSION)
    set(${package}_VERSION "${${package}_CXX_VERSION}")
  endif()
  if(NOT ${package}_VERSION AND ${package}_CXX_SPEC_DATE)  # OpenMP's, newer than what CMake knows
    set(${package}_VERSION "of ${${package}_CXX_SPEC_DATE}")
  endif()
  tessera_row("${label}" TRUE "${${package}_VERSION}")
endmacro()

# Finds an optional dependency (MPI, NCCL) as TESSERA_ENABLE_<part> says: AUTO, ON or OFF. Sets TESSERA_HAVE_<part>.
macro(tessera_optional part package)
  set(TESSERA_HAVE_${part} FALSE)
  if(TESSERA_ENABLE_${part} STREQUAL "OFF")
    tessera_row("${part}" FALSE "switched off")
  else()
    find_package(${package} ${ARGN} QUIET)
    if(${package}_FOUND)
      set(TESSERA_HAVE_${part} TRUE)
    elseif(TESSERA_ENABLE_${part} STREQUAL "ON")
      message(FATAL_ERROR "tessera: TESSERA_ENABLE_${part} is ON and ${part} was not found; "
                          "install it, or set TESSERA_ENABLE_${part} to AUTO or OFF")
    else()
      tessera_row("${part}" FALSE "")
    endif()
  endif()
endmacro()

set(MPI_CXX_SKIP_MPICXX TRUE)  # we only use the C interface
tessera_optional(MPI MPI COMPONENTS CXX)
if(TESSERA_HAVE_MPI)
  tessera_row("MPI" TRUE "standard ${MPI_CXX_VERSION}")
endif()
include(cmake/cuda.cmake)
include(cmake/cudnn.cmake)
tessera_optional(NCCL NCCL 2.18)
if(TESSERA_HAVE_NCCL AND TESSERA_HAVE_CUDA)
  tessera_row("NCCL" TRUE "${NCCL_VERSION}")
elseif(TESSERA_HAVE_NCCL)
  tessera_row("NCCL" FALSE "${NCCL_VERSION}, unused without CUDA")
endif()

# With clang, libomp is loaded before oneDNN's libgomp and serves both, so that there is one pool of threads. clang's
# -fopenmp=libgomp would ignore all pragmas.
tessera_require(OpenMP "g++, or libomp-dev for clang" "OpenMP" COMPONENTS CXX)
find_package(Threads REQUIRED)
# Does not use oneDNN's own dnnl-config.cmake: Debian's requires OpenCL headers that nobody needs.
tessera_require(oneDNN libdnnl-dev "oneDNN" 2.6)
if(NOT oneDNN_THREADS STREQUAL "OMP")
  message(FATAL_ERROR "tessera: oneDNN in ${oneDNN_INCLUDE_DIR} has its threads from ${oneDNN_THREADS}, and ranks set theirs by "
                      "OpenMP; give oneDNN_ROOT of one that was built with ONEDNN_CPU_RUNTIME=OMP")
endif()
tessera_require(ISAL libisal-dev "ISA-L" 2.30)
tessera_require(PCRE2 libpcre2-dev "PCRE2" 10.40)
tessera_require(utf8proc libutf8proc-dev "utf8proc" 2.8)
tessera_require(Boost libboost-dev "Boost" 1.74)
tessera_require(range-v3 librange-v3-dev "range-v3" CONFIG)
tessera_require(nlohmann_json nlohmann-json3-dev "nlohmann-json" CONFIG)
tessera_require(CLI11 libcli11-dev "CLI11" CONFIG)
tessera_require(tomlplusplus libtomlplusplus-dev "toml++" CONFIG)

tessera_write_built_with("${PROJECT_BINARY_DIR}/program/built_with.inc")  # for tessera --version
if(TESSERA_BUILD_TESTS)
  tessera_require(GTest libgtest-dev "GoogleTest" CONFIG)
  tessera_require(Python3 python3 "Python" COMPONENTS Interpreter)
endif()
