# SPDX-License-Identifier: Apache-2.0
# Finds oneDNN by its header and library: target oneDNN::oneDNN, variables oneDNN_VERSION and oneDNN_THREADS
# (OMP, TBB, SEQ, THREADPOOL). Hint: oneDNN_ROOT.
find_path(oneDNN_INCLUDE_DIR oneapi/dnnl/dnnl_version.h)
find_library(oneDNN_LIBRARY dnnl)
mark_as_advanced(oneDNN_INCLUDE_DIR oneDNN_LIBRARY)

if(oneDNN_INCLUDE_DIR)
  set(oneDNN_VERSION "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" line REGEX "#define DNNL_VERSION_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND oneDNN_VERSION ${number})
  endforeach()
  list(JOIN oneDNN_VERSION "." oneDNN_VERSION)
  file(STRINGS "${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h" line REGEX "#define DNNL_CPU_THREADING_RUNTIME +DNNL_RUNTIME_")
  string(REGEX MATCH "[A-Z]+$" oneDNN_THREADS "${line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(oneDNN REQUIRED_VARS oneDNN_LIBRARY oneDNN_INCLUDE_DIR VERSION_VAR oneDNN_VERSION)

if(oneDNN_FOUND AND NOT TARGET oneDNN::oneDNN)
  add_library(oneDNN::oneDNN UNKNOWN IMPORTED)
  set_target_properties(oneDNN::oneDNN PROPERTIES
    IMPORTED_LOCATION "${oneDNN_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${oneDNN_INCLUDE_DIR}")
endif()
