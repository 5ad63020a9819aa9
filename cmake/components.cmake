# SPDX-License-Identifier: Apache-2.0
# Which parts of Tessera this build has: TESSERA_WITH_<part> for each; tessera::core, on which all stand, is always there. Only
# their libraries are searched.
#
#   all       everything, with MPI, CUDA and NCCL as TESSERA_ENABLE_* say; a missing library is an error
#   auto      the same, without the parts whose libraries are missing: what a sub-project has, of which only what is linked
#             is built
#   a list    of text, sharding, library, checkpoint, model_files, trainer, testing, mpi, nccl, cuda: these, and what they need; those
#             of TESSERA_OPTIONAL_COMPONENTS too, if their libraries are found
set(known core json text sharding library checkpoint model_files trainer testing mpi nccl cuda)
set(whole FALSE)  # whether parts are not named one by one
set(components ${TESSERA_COMPONENTS})
if(TESSERA_COMPONENTS MATCHES "^(all|auto)$")
  set(whole TRUE)
  set(components ${known})
endif()
if(NOT components)
  message(FATAL_ERROR "tessera: TESSERA_COMPONENTS is empty; it may be all, auto, or a list such as sharding")
endif()
foreach(component IN LISTS components)
  if(NOT component IN_LIST known)
    list(JOIN known ", " known)
    message(FATAL_ERROR "tessera: TESSERA_COMPONENTS names '${component}'; it may be all, auto, or a list of ${known}")
  endif()
endforeach()
foreach(part TESTS PROGRAM EXAMPLES)
  if(TESSERA_BUILD_${part} AND NOT whole
      AND NOT (part STREQUAL "TESTS" AND components STREQUAL "text" AND NOT TESSERA_OPTIONAL_COMPONENTS))
    message(FATAL_ERROR "tessera: TESSERA_BUILD_${part} is ON and needs all components, and TESSERA_COMPONENTS is "
                        "'${TESSERA_COMPONENTS}'; set it to OFF, or take another build folder")
  endif()
endforeach()

# with_below(<out> <component>...): the components, and what they stand on.
function(with_below out)
  set(list core ${ARGN})
  if(NOT "${ARGN}" MATCHES "^(core|json|text)(;(core|json|text))*$")
    list(APPEND list sharding)
  endif()
  if("trainer" IN_LIST list)
    list(APPEND list text)
  endif()
  if("trainer" IN_LIST list OR "testing" IN_LIST list)
    list(APPEND list model_files)
  endif()
  if("model_files" IN_LIST list)
    list(APPEND list library checkpoint)
  endif()
  if("checkpoint" IN_LIST list OR "text" IN_LIST list)
    list(APPEND list json)
  endif()
  if("cuda" IN_LIST list)
    list(APPEND list library)
  endif()
  if("nccl" IN_LIST list)  # CUDA's runtime; its operations only where the library is
    list(APPEND list cuda)
  endif()
  set(${out} "${list}" PARENT_SCOPE)
endfunction()
with_below(required ${components})
set(components "${required}")
set(TESSERA_OPTIONAL_PARTS "")  # those that this build does without if their libraries are missing
if(TESSERA_COMPONENTS STREQUAL "auto")
  set(TESSERA_OPTIONAL_PARTS "${known}")
  list(REMOVE_ITEM TESSERA_OPTIONAL_PARTS core sharding)  # on which all but text stand
elseif(NOT whole)
  foreach(component IN LISTS TESSERA_OPTIONAL_COMPONENTS)
    if(NOT component MATCHES "^(text|library|checkpoint|model_files|trainer|testing)$")
      message(FATAL_ERROR "tessera: TESSERA_OPTIONAL_COMPONENTS names '${component}'; it may be a list of text, library, checkpoint, model_files, trainer, testing")
    endif()
  endforeach()
  with_below(components ${components} ${TESSERA_OPTIONAL_COMPONENTS})
  set(TESSERA_OPTIONAL_PARTS "${components}")
  list(REMOVE_ITEM TESSERA_OPTIONAL_PARTS ${required})
endif()
foreach(component IN LISTS known)
  string(TOUPPER "${component}" part)
  set(TESSERA_WITH_${part} FALSE)
  if(component IN_LIST components)
    set(TESSERA_WITH_${part} TRUE)
  endif()
endforeach()

foreach(part MPI NCCL CUDA)
  if(whole)
    continue()
  elseif(TESSERA_WITH_${part} AND TESSERA_ENABLE_${part} STREQUAL "OFF")
    message(FATAL_ERROR "tessera: TESSERA_COMPONENTS '${TESSERA_COMPONENTS}' need ${part}, and TESSERA_ENABLE_${part} is OFF; leave one of them out")
  elseif(TESSERA_WITH_${part})
    set(TESSERA_ENABLE_${part} ON)  # it was named: that it is missing is an error
  elseif(TESSERA_ENABLE_${part} STREQUAL "ON")
    message(FATAL_ERROR "tessera: TESSERA_ENABLE_${part} is ON, and TESSERA_COMPONENTS '${TESSERA_COMPONENTS}' lack it; add it")
  else()
    set(TESSERA_ENABLE_${part} OFF)
  endif()
endforeach()
if(NOT TESSERA_WITH_CUDA)
  set(TESSERA_ENABLE_CUDNN OFF)
endif()
