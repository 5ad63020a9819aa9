# SPDX-License-Identifier: Apache-2.0
# Headers that are parsed once for all sources with the same flags: about a second less for each of them.

set(precompile ON)
if(NOT PROJECT_IS_TOP_LEVEL OR CMAKE_CXX_COMPILER_LAUNCHER)
  set(precompile OFF)  # a launcher such as ccache knows a source by its text, which then is not in its command
endif()
option(TESSERA_PRECOMPILE "Parse the standard headers once for all sources with the same flags" ${precompile})

set(TESSERA_STANDARD_HEADERS <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <functional> <map> <memory>
  <optional> <span> <string> <string_view> <utility> <variant> <vector>)

# tessera_precompile(<target> <group> [HEADERS ...] [OPTIONS ...] [LIBRARIES ...]): the sources of <target> share the
# precompiled headers of a group, which are the standard ones and HEADERS. All targets of a group must be compiled with
# the group's OPTIONS and what comes with its LIBRARIES.
function(tessera_precompile target group)
  if(NOT TESSERA_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "HEADERS;OPTIONS;LIBRARIES")
  set(owner tessera_precompiled_${group})
  if(NOT TARGET ${owner})
    file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp" CONTENT "// Owns precompiled headers.\n")
    add_library(${owner} OBJECT "${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp")
    tessera_own_target(${owner})
    target_compile_options(${owner} PRIVATE ${arg_OPTIONS})
    target_link_libraries(${owner} PRIVATE ${arg_LIBRARIES})
    target_precompile_headers(${owner} PRIVATE ${TESSERA_STANDARD_HEADERS} ${arg_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
