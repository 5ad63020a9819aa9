# SPDX-License-Identifier: Apache-2.0
# Which stacks a program contains. A stack is compiled in a source file of its own, made from src/stacks/stack.cpp.in.
#
#   tessera_add_stack(<target> SHARDING fsdp2 COMM threads PRECISION bf16)
#
# adds one stack to <target>:
#  - <build>/stacks/fsdp2_threads_bf16.cpp, from src/stacks/stack.cpp.in with
#      @STACK_NAME@      fsdp2_threads_bf16, an identifier
#      @SHARDING@ @COMM@ @PRECISION@                    the short names
#      @SHARDING_TYPE@ @COMM_TYPE@ @PRECISION_TYPE@     the C++ types
#      @COMM_HEADER@     the backend's header, as in #include <@COMM_HEADER@>
#  - a line in the header <stacks.inc> that sources of <target> can include, after defining what it shall mean:
#      FSDP_STACK(fsdp2_threads_bf16)
#
# The dry run needs no stack of its own: every stack carries its own twin on Meta.
#
# To add a policy: its short name and type below, and in the list of short names of its axis.

set(TESSERA_SHARDING_NAMES fsdp2 fsdp2_no_reshard fsdp2_group zero1 zero2 zero3 hybrid hybrid_full replicated)
set(TESSERA_SHARDING_fsdp2 "fsdp::FullyShard<fsdp::ReshardAfterForward::yes>")
set(TESSERA_SHARDING_fsdp2_no_reshard "fsdp::FullyShard<fsdp::ReshardAfterForward::no>")
set(TESSERA_SHARDING_fsdp2_group "fsdp::FullyShard<fsdp::ReshardAfterForward::to_group>")
set(TESSERA_SHARDING_zero1 "fsdp::Zero1")
set(TESSERA_SHARDING_zero2 "fsdp::Zero2")
set(TESSERA_SHARDING_zero3 "fsdp::Zero3")
set(TESSERA_SHARDING_hybrid "fsdp::HybridShard<fsdp::FullyShard<>>")
set(TESSERA_SHARDING_hybrid_full "fsdp::HybridShard<fsdp::FullyShard<>, fsdp::OptimizerAcross::sharded>")
set(TESSERA_SHARDING_replicated "fsdp::Replicated")

set(TESSERA_COMM_NAMES self threads mpi)
set(TESSERA_COMM_self "fsdp::comm::Self<>")
set(TESSERA_COMM_threads "fsdp::comm::Threads<>")
set(TESSERA_COMM_mpi "fsdp::comm::Mpi<>")

set(TESSERA_PRECISION_NAMES fp32 bf16)
set(TESSERA_PRECISION_fp32 "fsdp::Fp32")
set(TESSERA_PRECISION_bf16 "fsdp::Bf16Mixed")

set(TESSERA_STACK_TEMPLATE "${PROJECT_SOURCE_DIR}/src/stacks/stack.cpp.in")

# Sets `out` to every stack that this build can have, each sharding/comm/precision.
function(tessera_default_stacks out)
  set(stacks "")
  set(comms threads)
  if(TARGET tessera_mpi)
    list(APPEND comms mpi)
  endif()
  foreach(sharding IN LISTS TESSERA_SHARDING_NAMES)
    foreach(comm IN LISTS comms)
      foreach(precision IN LISTS TESSERA_PRECISION_NAMES)
        list(APPEND stacks "${sharding}/${comm}/${precision}")
      endforeach()
    endforeach()
  endforeach()
  set(${out} "${stacks}" PARENT_SCOPE)
endfunction()

function(tessera_add_stack target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDING;COMM;PRECISION" "")
  foreach(axis SHARDING COMM PRECISION)
    list(JOIN TESSERA_${axis}_NAMES ", " known)
    if(NOT "${arg_${axis}}" IN_LIST TESSERA_${axis}_NAMES)
      message(FATAL_ERROR "tessera: no ${axis} is called '${arg_${axis}}' (stack "
                          "${arg_SHARDING}/${arg_COMM}/${arg_PRECISION}); known: ${known}. See cmake/stacks.cmake")
    endif()
    set(${axis} "${arg_${axis}}")
    set(${axis}_TYPE "${TESSERA_${axis}_${arg_${axis}}}")
  endforeach()
  if(COMM STREQUAL "mpi" AND NOT TARGET tessera_mpi)
    message(FATAL_ERROR "tessera: the stack ${SHARDING}/mpi/${PRECISION} needs MPI, and this build has none")
  endif()

  set(COMM_HEADER "comm/${COMM}.hpp")
  set(STACK_NAME "${SHARDING}_${COMM}_${PRECISION}")
  set(source "${PROJECT_BINARY_DIR}/stacks/${STACK_NAME}.cpp")
  configure_file("${TESSERA_STACK_TEMPLATE}" "${source}" @ONLY)
  target_sources(${target} PRIVATE "${source}")
  # A stack calls kernels and has no loops of its own worth more of the compiler's time.
  set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")

  get_target_property(listed ${target} TESSERA_STACK_LINES)
  if(NOT listed)
    set(directory "${PROJECT_BINARY_DIR}/stacks/${target}")
    file(GENERATE OUTPUT "${directory}/stacks.inc"
      CONTENT "$<JOIN:$<TARGET_PROPERTY:${target},TESSERA_STACK_LINES>,\n>\n")
    target_include_directories(${target} PRIVATE "${directory}")
  endif()
  set_property(TARGET ${target} APPEND PROPERTY TESSERA_STACK_LINES
    "FSDP_STACK(${STACK_NAME})")
endfunction()

# Adds all of a list of sharding/comm/precision; the word 'default' stands for tessera_default_stacks.
function(tessera_add_stacks target)
  set(stacks "${ARGN}")
  if(stacks STREQUAL "default")
    tessera_default_stacks(stacks)
  endif()
  foreach(stack IN LISTS stacks)
    if(NOT stack MATCHES "^([^/]+)/([^/]+)/([^/]+)$")
      message(FATAL_ERROR "tessera: '${stack}' is no stack; write sharding/comm/precision, such as fsdp2/threads/bf16")
    endif()
    tessera_add_stack(${target} SHARDING ${CMAKE_MATCH_1} COMM ${CMAKE_MATCH_2} PRECISION ${CMAKE_MATCH_3})
  endforeach()
endfunction()
