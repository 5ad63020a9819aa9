# SPDX-License-Identifier: Apache-2.0

# Compiles kernels into `target` once per instruction set; the set is chosen at run time (src/fsdp/device/cpu/isa.hpp).
function(tessera_add_kernels target)
  set(isas baseline)
  set(flags_baseline "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    list(APPEND isas avx2 avx512_bf16)
    set(flags_avx2 -mavx2 -mfma -mf16c)
    set(flags_avx512_bf16 ${flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16)
  endif()
  foreach(isa IN LISTS isas)
    add_library(${target}_kernels_${isa} OBJECT ${ARGN})
    tessera_own_target(${target}_kernels_${isa})
    tessera_unity(${target}_kernels_${isa} 16)
    target_compile_definitions(${target}_kernels_${isa} PRIVATE FSDP_ISA=${isa})
    target_compile_options(${target}_kernels_${isa} PRIVATE
      ${flags_${isa}} -fno-math-errno -fno-trapping-math "$<$<CONFIG:Release,RelWithDebInfo>:-O3>")
    target_include_directories(${target}_kernels_${isa} PRIVATE "${PROJECT_BINARY_DIR}/include")
    target_link_libraries(${target}_kernels_${isa} PRIVATE OpenMP::OpenMP_CXX)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_kernels_${isa}>)
  endforeach()
endfunction()
