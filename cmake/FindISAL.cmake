# SPDX-License-Identifier: Apache-2.0
# Finds ISA-L by its header and library: target ISAL::ISAL, variable ISAL_VERSION. Hint: ISAL_ROOT.
find_path(ISAL_INCLUDE_DIR isa-l/crc.h)
find_library(ISAL_LIBRARY isal)
mark_as_advanced(ISAL_INCLUDE_DIR ISAL_LIBRARY)

if(ISAL_INCLUDE_DIR AND EXISTS "${ISAL_INCLUDE_DIR}/isa-l.h")
  set(ISAL_VERSION "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${ISAL_INCLUDE_DIR}/isa-l.h" line REGEX "#define ISAL_${part}_VERSION +[0-9]+")
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND ISAL_VERSION ${number})
  endforeach()
  list(JOIN ISAL_VERSION "." ISAL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ISAL REQUIRED_VARS ISAL_LIBRARY ISAL_INCLUDE_DIR VERSION_VAR ISAL_VERSION)

if(ISAL_FOUND AND NOT TARGET ISAL::ISAL)
  add_library(ISAL::ISAL UNKNOWN IMPORTED)
  set_target_properties(ISAL::ISAL PROPERTIES
    IMPORTED_LOCATION "${ISAL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ISAL_INCLUDE_DIR}")
endif()
