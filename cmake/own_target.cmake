# SPDX-License-Identifier: Apache-2.0

# C++20 without extensions, all warnings. They are errors only where Tessera itself is being worked on, so that a newer
# compiler never breaks the build of somebody who uses it.
function(tessera_own_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 at -O3, CMake's own Release, sees overlapping copies inside std::string that are not there.
    target_compile_options(${target} PRIVATE -Wno-error=restrict)
  endif()
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF COMPILE_WARNING_AS_ERROR ${PROJECT_IS_TOP_LEVEL})
endfunction()
