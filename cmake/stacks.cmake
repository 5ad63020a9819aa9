# SPDX-License-Identifier: Apache-2.0
# Chooses the stacks that are compiled into a program. Stacks are compiled in generated source files, made from
# src/program/stacks/*.in: one file per strategy type, whose stacks share most of the compiler's work.
#
#   tessera_add_stacks(<target> fsdp2/threads/bf16 mine/mpi/bf16)
#
# adds stacks to <target>. Strategies with the same placements are one type, chosen at run time: the short names fsdp2
# and zero3 both compile RunTimeSharded, which contains fsdp2, zero1, zero2 and zero3 (tessera/fsdp/sharding/run_time.hpp).
#  - <build>/stacks/sharded.cpp, from src/program/stacks/stack.cpp.in, once for each communicator and precision with
#      @STACK_NAME@      sharded_threads_bf16, an identifier
#      @SHARDING@ @COMM@ @PRECISION@                    the short names
#      @COMM_TYPE@ @PRECISION_TYPE@                     the C++ types
#      @COMM_HEADER@     the backend's header, as in #include <@COMM_HEADER@>
#      @MODULES_HEADER@  that of modules that are compiled for the backend's device
#  - a line for each stack in the header <stacks.inc>, which sources of <target> include after defining the macro:
#      FSDP_STACK(sharded_threads_bf16)
#
# To add a policy: add its short name to the list of its axis below, and its type; that of a strategy stands in
# src/program/cli/strategies.hpp, and its dry runs in src/program/stacks/planned_on_cpu.cpp and planned_on_cuda.cpp. If one
# type represents several strategies, add their short names to TESSERA_KINDS_<type>.

set(TESSERA_SHARDING_NAMES sharded grouped hybrid_full replicated sharded_offload)  # the types of strategies.hpp
set(TESSERA_KINDS_sharded fsdp2 fsdp2_no_reshard zero1 zero2 zero3)
set(TESSERA_KINDS_grouped fsdp2_group hybrid)
set(TESSERA_KINDS_sharded_offload fsdp2_offload zero1_offload zero2_offload zero3_offload)

set(TESSERA_COMM_NAMES self threads mpi nccl)
set(TESSERA_COMM_self "fsdp::comm::Self<>")
set(TESSERA_COMM_threads "fsdp::comm::Threads<>")
set(TESSERA_COMM_mpi "fsdp::comm::Mpi<>")
set(TESSERA_COMM_nccl "fsdp::comm::Nccl<>")

set(TESSERA_PRECISION_NAMES fp32 bf16 bf16_wire)
set(TESSERA_PRECISION_fp32 "fsdp::Fp32")
set(TESSERA_PRECISION_bf16 "fsdp::Bf16Mixed")
set(TESSERA_PRECISION_bf16_wire "fsdp::Bf16Wire<fsdp::Bf16Mixed>")

# Policies with only one stack each in the default program. Users compile other stacks with them in their own program
# (fsdp::train_main).
set(TESSERA_RARE_POLICIES sharded_offload bf16_wire)
set(TESSERA_RARE_STACKS sharded_offload/threads/bf16 sharded/threads/bf16_wire)

set(TESSERA_STACK_TEMPLATE "${PROJECT_SOURCE_DIR}/src/program/stacks/stack.cpp.in")

# Sets `out` to the default stacks of this build, each as sharding/comm/precision.
function(tessera_default_stacks out)
  set(stacks "")
  set(comms threads)
  set(shardings ${TESSERA_SHARDING_NAMES})
  set(precisions ${TESSERA_PRECISION_NAMES})
  list(REMOVE_ITEM shardings ${TESSERA_RARE_POLICIES})
  list(REMOVE_ITEM precisions ${TESSERA_RARE_POLICIES})
  if(TARGET tessera_mpi)
    list(APPEND comms mpi)
  endif()
  foreach(sharding IN LISTS shardings)
    foreach(comm IN LISTS comms)
      foreach(precision IN LISTS precisions)
        list(APPEND stacks "${sharding}/${comm}/${precision}")
      endforeach()
    endforeach()
  endforeach()
  list(APPEND stacks ${TESSERA_RARE_STACKS})
  if(TARGET tessera_nccl AND TARGET tessera_cuda)  # another device: these share no code with the others
    foreach(sharding sharded grouped hybrid_full replicated)
      list(APPEND stacks "${sharding}/nccl/bf16")
    endforeach()
    list(APPEND stacks "sharded/nccl/fp32")
  endif()
  set(${out} "${stacks}" PARENT_SCOPE)
endfunction()

# Sets `out` to the type that represents a strategy's short name, or to the name itself if there is none.
function(tessera_type_of_sharding name out)
  set(${out} "${name}" PARENT_SCOPE)
  foreach(type IN LISTS TESSERA_SHARDING_NAMES)
    if("${name}" IN_LIST TESSERA_KINDS_${type})
      set(${out} "${type}" PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# Stops with an error if `name` is not one of an axis's short names.
function(tessera_require_policy axis name stack)
  if(NOT "${name}" IN_LIST TESSERA_${axis}_NAMES)
    set(names ${TESSERA_${axis}_NAMES})
    if(axis STREQUAL "SHARDING")
      set(names ${TESSERA_KINDS_sharded} ${TESSERA_KINDS_grouped} ${TESSERA_KINDS_sharded_offload} ${names})
    endif()
    list(JOIN names ", " known)
    message(FATAL_ERROR "tessera: no ${axis} is called '${name}' (stack ${stack}); known: ${known}. See cmake/stacks.cmake")
  endif()
endfunction()

function(tessera_add_stack target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDING" "STACKS")
  set(SHARDING "${arg_SHARDING}")
  set(content "")
  get_target_property(listed ${target} TESSERA_STACK_LINES)
  foreach(stack IN LISTS arg_STACKS)
    string(REPLACE "/" ";" parts "${stack}")
    list(GET parts 0 COMM)
    list(GET parts 1 PRECISION)
    foreach(axis SHARDING COMM PRECISION)
      tessera_require_policy(${axis} "${${axis}}" "${SHARDING}/${stack}")
      set(${axis}_TYPE "${TESSERA_${axis}_${${axis}}}")
    endforeach()
    if(COMM STREQUAL "mpi" AND NOT TARGET tessera_mpi)
      message(FATAL_ERROR "tessera: the stack ${SHARDING}/${stack} needs MPI, and this build has none")
    elseif(COMM STREQUAL "nccl" AND NOT (TARGET tessera_nccl AND TARGET tessera_cuda))
      message(FATAL_ERROR "tessera: the stack ${SHARDING}/${stack} needs CUDA and NCCL, and this build lacks one of them")
    endif()
    set(COMM_HEADER "tessera/comm/${COMM}.hpp")
    set(MODULES_HEADER "tessera/fsdp/nn/instances.hpp")
    if(COMM STREQUAL "nccl")
      set(MODULES_HEADER "tessera/fsdp/nn/cuda_instances.hpp")
    endif()
    set(STACK_NAME "${SHARDING}_${COMM}_${PRECISION}")
    file(READ "${TESSERA_STACK_TEMPLATE}" text)
    string(CONFIGURE "${text}" text @ONLY)
    string(APPEND content "${text}")
    set_property(TARGET ${target} APPEND PROPERTY TESSERA_STACK_LINES "FSDP_STACK(${STACK_NAME})")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${TESSERA_STACK_TEMPLATE}")
  set(source "${PROJECT_BINARY_DIR}/stacks/${target}/${SHARDING}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${content}" @ONLY)
  target_sources(${target} PRIVATE "${source}")
  set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_OPTIONS "${TESSERA_STACK_LEVEL}")

  if(NOT listed)
    set(directory "${PROJECT_BINARY_DIR}/stacks/${target}")
    file(GENERATE OUTPUT "${directory}/stacks.inc"
      CONTENT "$<JOIN:$<TARGET_PROPERTY:${target},TESSERA_STACK_LINES>,\n>\n")
    target_include_directories(${target} PRIVATE "${directory}")
  endif()
endfunction()

# Adds a list of stacks, each sharding/comm/precision; 'default' means tessera_default_stacks.
function(tessera_add_stacks target)
  set(stacks "${ARGN}")
  if(stacks STREQUAL "default")
    tessera_default_stacks(stacks)
  endif()
  set(shardings "")
  foreach(stack IN LISTS stacks)
    if(NOT stack MATCHES "^([^/]+)/([^/]+/[^/]+)$")
      message(FATAL_ERROR "tessera: '${stack}' is no stack; write sharding/comm/precision, such as fsdp2/threads/bf16")
    endif()
    set(rest "${CMAKE_MATCH_2}")
    tessera_type_of_sharding("${CMAKE_MATCH_1}" sharding)
    list(APPEND shardings "${sharding}")
    list(APPEND "stacks_of_${sharding}" "${rest}")
  endforeach()
  list(REMOVE_DUPLICATES shardings)
  foreach(sharding IN LISTS shardings)
    list(REMOVE_DUPLICATES stacks_of_${sharding})
    tessera_add_stack(${target} SHARDING ${sharding} STACKS ${stacks_of_${sharding}})
  endforeach()
endfunction()
