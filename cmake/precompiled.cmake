# SPDX-License-Identifier: Apache-2.0

# Precompiled headers: like unity builds, they make a full build faster and rebuilds after an edit slower. Sources must
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
