# SPDX-License-Identifier: Apache-2.0
# The stacks that are compiled into the program: for each communicator and precision one source, made from
# src/program/stacks/stack.cpp.in, with the strategy types of src/program/cli/strategies.hpp. Every strategy, layout and
# place of the optimizer is a value of these.
#
# TESSERA_COMMS and TESSERA_PRECISIONS choose less than all that this build can have. To add one: its name to the list of
# its axis below, and its type.

set(TESSERA_COMM_NAMES threads mpi nccl)
set(TESSERA_COMM_threads "fsdp::comm::Threads<>")
set(TESSERA_COMM_mpi "fsdp::comm::Mpi<>")
set(TESSERA_COMM_nccl "fsdp::comm::Nccl<>")

set(TESSERA_PRECISION_NAMES fp32 bf16 bf16_wire)
set(TESSERA_PRECISION_fp32 "fsdp::Fp32")
set(TESSERA_PRECISION_bf16 "fsdp::Bf16Mixed")
set(TESSERA_PRECISION_bf16_wire "fsdp::Bf16Wire<fsdp::Bf16Mixed>")

# Sets `out` to the names of a list, or to those of `known` if it is "all". Stops with an error for another name.
function(tessera_names_of variable known out)
  set(names "${${variable}}")
  if(names STREQUAL "all")
    set(names "${known}")
  endif()
  foreach(name IN LISTS names)
    if(NOT name IN_LIST known)
      list(JOIN known ", " known)
      message(FATAL_ERROR "tessera: ${variable} has '${name}', which this build cannot have; it can have ${known}")
    endif()
  endforeach()
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

# Adds the stacks to <target>, and the header <stacks.inc>, which has FSDP_STACK(name) for each source.
function(tessera_add_stacks target)
  set(comms threads)
  if(TARGET tessera_mpi)
    list(APPEND comms mpi)
  endif()
  if(TARGET tessera_nccl AND TARGET tessera_cuda)
    list(APPEND comms nccl)
  endif()
  tessera_names_of(TESSERA_COMMS "${comms}" comms)
  tessera_names_of(TESSERA_PRECISIONS "${TESSERA_PRECISION_NAMES}" precisions)
  set(directory "${PROJECT_BINARY_DIR}/stacks/${target}")
  set(lines "")
  foreach(COMM IN LISTS comms)
    set(COMM_TYPE "${TESSERA_COMM_${COMM}}")
    set(MODULES_HEADER "tessera/fsdp/nn/instances.hpp")
    if(COMM STREQUAL "nccl")
      set(MODULES_HEADER "tessera/fsdp/nn/cuda_instances.hpp")
    endif()
    foreach(PRECISION IN LISTS precisions)
      set(PRECISION_TYPE "${TESSERA_PRECISION_${PRECISION}}")
      set(source "${directory}/${COMM}_${PRECISION}.cpp")
      configure_file("${PROJECT_SOURCE_DIR}/src/program/stacks/stack.cpp.in" "${source}" @ONLY)
      target_sources(${target} PRIVATE "${source}")
      set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${TESSERA_STACK_LEVEL}")
      string(APPEND lines "FSDP_STACK(${COMM}_${PRECISION})\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT "${directory}/stacks.inc" CONTENT "${lines}")
  target_include_directories(${target} PRIVATE "${directory}")
endfunction()
