# SPDX-License-Identifier: Apache-2.0

# Sets C++20 without extensions, and all warnings. They are errors only in CI (TESSERA_WERROR), so that a newer compiler
# cannot break a user's build; a sub-project has none, whatever its parent's flags are.
function(tessera_own_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_definitions(${target} PRIVATE TESSERA_OWN_TARGET)  # include/fsdp/core/lists.hpp
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${TESSERA_COMPILER_MEMORY}>")
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>)
  else()
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-w>)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 at -O3, as in CMake's Release, wrongly warns about overlapping and too long copies inside std::string.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 17)
    # libstdc++ 12's std::stable_sort calls a function that libstdc++ itself has deprecated; clang says so from 17 on.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
  endif()
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF COMPILE_WARNING_AS_ERROR ${TESSERA_WERROR})
endfunction()

# The same for CUDA: C++20, warnings of nvcc and its host compiler; allows constexpr functions in kernels. Suppresses
# warning 554, which ignores the requires-clause of Tensor's conversion to const.
function(tessera_own_cuda_target target)
  tessera_own_target(${target})
  target_compile_features(${target} PRIVATE cuda_std_20)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra;-diag-suppress=554>")
  if(NOT PROJECT_IS_TOP_LEVEL)  # a parent's warnings are options of the host compiler, which nvcc does not know
    set_target_properties(${target} PROPERTIES COMPILE_OPTIONS "--expt-relaxed-constexpr;-diag-suppress=554;-w;-Xcompiler=-w")
  endif()
  set_target_properties(${target} PROPERTIES CUDA_EXTENSIONS OFF CUDA_ARCHITECTURES "${TESSERA_CUDA_ARCHITECTURES}")
endfunction()
