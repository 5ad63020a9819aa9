# SPDX-License-Identifier: Apache-2.0

# Precompiled headers: less time from nothing, more after an edit, as with unity builds. No source may rely on them: the
# build that checks sources (TESSERA_CHECK_SOURCES) is without.
#
#   tessera_precompile(<target> <header>...)             # for this target
#   tessera_precompile(<target> REUSE_FROM <other>)      # those of a target of the same options and definitions
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
