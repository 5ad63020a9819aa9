# SPDX-License-Identifier: Apache-2.0
# The stacks that are compiled into the program: for each communicator one source, made from
# src/program/stacks/stack.cpp.in, with each precision and the strategy types of src/program/cli/stack_choice.hpp. Every
# strategy, layout and place of the optimizer is a value of these.
#
# TESSERA_COMMS and TESSERA_PRECISIONS choose less than all that this build can have. To add a communicator: its name and
# type to the lists below, and its name as a flag's value to src/program/cli/stack_choice.hpp. To add a precision: the same,
# its text to stack_choice.cpp, and its type to the lists of src/program/stacks/planned_stacks.hpp.

set(TESSERA_COMM_NAMES threads mpi nccl)  # each with its header <tessera/comm/NAME.hpp>
set(TESSERA_COMM_threads "fsdp::comm::Threads<>")
set(TESSERA_COMM_mpi "fsdp::comm::Mpi<>")
set(TESSERA_NEEDS_mpi tessera_mpi)
set(TESSERA_COMM_nccl "fsdp::comm::Nccl<>")
set(TESSERA_NEEDS_nccl tessera_nccl tessera_cuda)
set(TESSERA_MODULES_nccl cuda_instances)  # the header of modules that are compiled for its device; default: instances

set(TESSERA_PRECISION_NAMES fp32 bf16 bf16_wire)
set(TESSERA_FURTHER_PRECISION_NAMES bf16_fp32)  # for --precision-of; not part of 'all', since stacks take long to compile
set(TESSERA_PRECISION_fp32 "fsdp::Fp32")
set(TESSERA_PRECISION_bf16 "fsdp::Bf16Mixed")
set(TESSERA_PRECISION_bf16_wire "fsdp::Bf16Wire<fsdp::Bf16Mixed>")
set(TESSERA_PRECISION_bf16_fp32 "fsdp::PrecisionBy<fsdp::Fp32, fsdp::Bf16Mixed>")

# Sets `out` to the names of a list, or to those of `known` if it is "all". Stops with an error for a name that is neither in
# `known` nor in the further arguments.
function(tessera_names_of variable known out)
  set(names "${${variable}}")
  if(names STREQUAL "all")
    set(names "${known}")
  endif()
  if(NOT names)
    message(FATAL_ERROR "tessera: ${variable} is empty; it may be all, or a list of ${known}")
  endif()
  list(APPEND known ${ARGN})
  foreach(name IN LISTS names)
    if(NOT name IN_LIST known)
      list(JOIN known ", " known)
      message(FATAL_ERROR "tessera: ${variable} has '${name}', which this build cannot have; it can have ${known}")
    endif()
  endforeach()
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

# Sets `out` to the communicators that the program gets.
function(tessera_chosen_comms out)
  set(comms "")
  foreach(comm IN LISTS TESSERA_COMM_NAMES)
    set(found TRUE)
    foreach(needed IN LISTS TESSERA_NEEDS_${comm})
      if(NOT TARGET ${needed})
        set(found FALSE)
      endif()
    endforeach()
    if(found)
      list(APPEND comms ${comm})
    endif()
  endforeach()
  tessera_names_of(TESSERA_COMMS "${comms}" comms)
  set(${out} "${comms}" PARENT_SCOPE)
endfunction()

# Adds a source to <target> for each communicator of the program, made from a file in which @COMM@ is its name and
# @COMM_TYPE@ its type. They are compiled one by one: each uses a backend, which the program links only if it has stacks on it.
function(tessera_add_for_comms target file)
  tessera_chosen_comms(comms)
  foreach(COMM IN LISTS comms)
    set(COMM_TYPE "${TESSERA_COMM_${COMM}}")
    set(source "${PROJECT_BINARY_DIR}/stacks/${target}/on_${COMM}.cpp")
    configure_file("${file}" "${source}" @ONLY)
    target_sources(${target} PRIVATE "${source}")
    set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# Writes the header <comms.inc>, which includes all communicators that the program may have and has FSDP_COMM(type) for each.
function(tessera_list_comms target)
  set(directory "${PROJECT_BINARY_DIR}/stacks/${target}")
  set(includes "")
  set(lines "")
  foreach(comm IN LISTS TESSERA_COMM_NAMES)
    string(APPEND includes "#include <tessera/comm/${comm}.hpp>\n")
    string(APPEND lines "FSDP_COMM(${TESSERA_COMM_${comm}})\n")
  endforeach()
  file(CONFIGURE OUTPUT "${directory}/comms.inc" CONTENT "#ifdef FSDP_COMM\n${lines}#else\n${includes}#endif\n")
  target_include_directories(${target} PRIVATE "${directory}")
endfunction()

# Adds the stacks to <target>, and the header <stacks.inc>, which has FSDP_STACK(name) for each source. The stacks of all
# precisions of a communicator are one source, since half of the code that they need is the same.
function(tessera_add_stacks target)
  tessera_chosen_comms(comms)
  tessera_names_of(TESSERA_PRECISIONS "${TESSERA_PRECISION_NAMES}" precisions ${TESSERA_FURTHER_PRECISION_NAMES})
  if(bf16_fp32 IN_LIST precisions)
    target_compile_definitions(${target} PRIVATE TESSERA_BF16_FP32)
  endif()
  set(directory "${PROJECT_BINARY_DIR}/stacks/${target}")
  set(lines "")
  set(ADD_STACKS "")
  foreach(precision IN LISTS precisions)
    string(APPEND ADD_STACKS "  add_stacks<${TESSERA_PRECISION_${precision}}>(list);\n")
  endforeach()
  foreach(COMM IN LISTS comms)
    set(COMM_TYPE "${TESSERA_COMM_${COMM}}")
    set(MODULES "${TESSERA_MODULES_${COMM}}")
    if(NOT MODULES)
      set(MODULES instances)
    endif()
    set(source "${directory}/${COMM}.cpp")
    configure_file("${PROJECT_SOURCE_DIR}/src/program/stacks/stack.cpp.in" "${source}" @ONLY)
    target_sources(${target} PRIVATE "${source}")
    set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${TESSERA_STACK_LEVEL}")
    string(APPEND lines "FSDP_STACK(${COMM})\n")
  endforeach()
  file(CONFIGURE OUTPUT "${directory}/stacks.inc" CONTENT "${lines}")
  target_include_directories(${target} PRIVATE "${directory}")
endfunction()
