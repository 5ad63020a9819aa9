# SPDX-License-Identifier: Apache-2.0

# C++20 without extensions, all warnings. They are errors only where Tessera itself is being worked on, so that a newer
# compiler never breaks the build of somebody who uses it.
function(tessera_own_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 at -O3, CMake's own Release, sees overlapping copies inside std::string that are not there.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=restrict>)
  endif()
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF COMPILE_WARNING_AS_ERROR ${PROJECT_IS_TOP_LEVEL})
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
