# SPDX-License-Identifier: Apache-2.0
# Finds PCRE2's 8-bit library by its header and library: target PCRE2::PCRE2, variable PCRE2_VERSION. Hint: PCRE2_ROOT.
find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
mark_as_advanced(PCRE2_INCLUDE_DIR PCRE2_LIBRARY)

if(PCRE2_INCLUDE_DIR)
  set(PCRE2_VERSION "")
  foreach(part MAJOR MINOR)
    file(STRINGS "${PCRE2_INCLUDE_DIR}/pcre2.h" line REGEX "#define PCRE2_${part} +[0-9]+")
    string(REGEX MATCH " [0-9]+" number "${line}")
    string(STRIP "${number}" number)
    list(APPEND PCRE2_VERSION ${number})
  endforeach()
  list(JOIN PCRE2_VERSION "." PCRE2_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PCRE2 REQUIRED_VARS PCRE2_LIBRARY PCRE2_INCLUDE_DIR VERSION_VAR PCRE2_VERSION)

if(PCRE2_FOUND AND NOT TARGET PCRE2::PCRE2)
  add_library(PCRE2::PCRE2 UNKNOWN IMPORTED)
  set_target_properties(PCRE2::PCRE2 PROPERTIES
    IMPORTED_LOCATION "${PCRE2_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${PCRE2_INCLUDE_DIR}")
endif()
