# SPDX-License-Identifier: Apache-2.0
# Which parts of Tessera this build has: TESSERA_WITH_<part> for the library's optional components. Only their libraries are
# searched.
#
#   all       everything, with MPI, CUDA and NCCL as TESSERA_ENABLE_* say; a missing library is an error
#   auto      the same, without the parts whose libraries are missing: what a sub-project has, of which only what is linked
#             is built
#   a list    of library, checkpoint, trainer, testing, mpi, nccl, cuda: these, and what they need
set(parts library checkpoint trainer testing mpi nccl cuda)
foreach(component IN LISTS TESSERA_COMPONENTS)
  if(NOT component IN_LIST parts AND NOT TESSERA_COMPONENTS MATCHES "^(all|auto)$")
    list(JOIN parts ", " known)
    message(FATAL_ERROR "tessera: TESSERA_COMPONENTS names '${component}'; it may be all, auto, or a list of ${known}")
  endif()
endforeach()

if(TESSERA_COMPONENTS STREQUAL "")
  message(FATAL_ERROR "tessera: TESSERA_COMPONENTS is empty; it may be all, auto, or a list such as library")
endif()
set(components ${TESSERA_COMPONENTS})
if(TESSERA_COMPONENTS MATCHES "^(all|auto)$")
  set(components ${parts})
endif()
foreach(part LIBRARY CHECKPOINT TRAINER TESTING MPI NCCL CUDA)
  string(TOLOWER "${part}" component)
  set(TESSERA_WITH_${part} FALSE)
  if(component IN_LIST components)
    set(TESSERA_WITH_${part} TRUE)
  endif()
endforeach()
if(TESSERA_WITH_TRAINER OR TESSERA_WITH_TESTING)
  set(TESSERA_WITH_CHECKPOINT TRUE)
endif()
if(TESSERA_WITH_NCCL)
  set(TESSERA_WITH_CUDA TRUE)
endif()
set(TESSERA_WITH_LIBRARY TRUE)
foreach(part TESTS PROGRAM EXAMPLES)
  if(TESSERA_BUILD_${part} AND NOT TESSERA_COMPONENTS MATCHES "^(all|auto)$")
    message(FATAL_ERROR "tessera: TESSERA_BUILD_${part} is ON and needs all components, and TESSERA_COMPONENTS is "
                        "'${TESSERA_COMPONENTS}'; set it to OFF, or take another build folder")
  endif()
endforeach()
foreach(part MPI NCCL CUDA)
  if(TESSERA_WITH_${part} AND NOT TESSERA_COMPONENTS MATCHES "^(all|auto)$")
    if(TESSERA_ENABLE_${part} STREQUAL "OFF" AND NOT part STREQUAL "CUDA" AND PROJECT_IS_TOP_LEVEL)
      message(FATAL_ERROR "tessera: TESSERA_COMPONENTS '${TESSERA_COMPONENTS}' has ${part}, and TESSERA_ENABLE_${part} is OFF; leave one of them out")
    endif()
    set(TESSERA_ENABLE_${part} ON)  # it was named: that it is missing is an error
  elseif(NOT TESSERA_WITH_${part})
    if(TESSERA_ENABLE_${part} STREQUAL "ON")
      message(FATAL_ERROR "tessera: TESSERA_ENABLE_${part} is ON, and TESSERA_COMPONENTS '${TESSERA_COMPONENTS}' lack it; add it")
    endif()
    set(TESSERA_ENABLE_${part} OFF)
  endif()
endforeach()
if(NOT TESSERA_WITH_CUDA)
  set(TESSERA_ENABLE_CUDNN OFF)
endif()
