# SPDX-License-Identifier: Apache-2.0

# g++ collects garbage while it compiles, which takes it a fifth of the time of a whole stack. Where 3 GiB are there for
# each core it may take 1 GiB before it begins (up to 1.6 GiB in all instead of 1.1 GiB).
set(TESSERA_COMPILER_MEMORY "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)  # MiB
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR memory_per_core "${memory} / ${cores}")
  if(memory_per_core GREATER_EQUAL 3072)
    set(TESSERA_COMPILER_MEMORY "SHELL:--param ggc-min-heapsize=1048576")  # KiB
  endif()
endif()

# C++20 without extensions, all warnings. They are errors only in CI (TESSERA_WERROR), so that a newer compiler never
# breaks somebody's build.
function(tessera_own_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
    "$<$<COMPILE_LANGUAGE:CXX>:${TESSERA_COMPILER_MEMORY}>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 at -O3, CMake's own Release, sees overlapping copies inside std::string that are not there.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=restrict>)
  endif()
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF COMPILE_WARNING_AS_ERROR ${TESSERA_WERROR})
endfunction()

# The same with kernels: nvcc in C++20, its warnings and those of its host compiler; our constexpr functions run in
# kernels too. Warning 554 overlooks that Tensor's conversion to const has a requires-clause.
function(tessera_own_cuda_target target)
  tessera_own_target(${target})
  target_compile_features(${target} PRIVATE cuda_std_20)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra;-diag-suppress=554>")
  set_target_properties(${target} PROPERTIES CUDA_EXTENSIONS OFF CUDA_ARCHITECTURES "${TESSERA_CUDA_ARCHITECTURES}")
endfunction()
