# SPDX-License-Identifier: Apache-2.0

# C++20 without extensions, all warnings. They are errors only where Tessera itself is being worked on, so that a newer
# compiler never breaks the build of somebody who uses it.
function(tessera_own_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF COMPILE_WARNING_AS_ERROR ${PROJECT_IS_TOP_LEVEL})
endfunction()
