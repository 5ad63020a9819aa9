# SPDX-License-Identifier: Apache-2.0
# Rules of `cmake --install`: headers to include/tessera/, libraries, the program, the package for find_package; docs
# and examples to share/doc/tessera/.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(doc_directory "${CMAKE_INSTALL_DATAROOTDIR}/doc/tessera")  # not CMAKE_INSTALL_DOCDIR, which may be a parent's
set(package_directory "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")
get_property(targets GLOBAL PROPERTY TESSERA_COMPONENT_TARGETS)
set(TESSERA_COMPONENTS_BUILT "")
foreach(target IN LISTS targets)
  get_target_property(name ${target} EXPORT_NAME)
  list(APPEND TESSERA_COMPONENTS_BUILT ${name})
endforeach()

# Before anything is copied: an installation that broke off at a library that was not built would leave headers that
# find_package does not know.
set(built_for_dev ${targets})
set(built_for_program tessera_program)
foreach(component dev program)
  foreach(target IN LISTS built_for_${component})
    if(NOT TARGET ${target})
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "INTERFACE_LIBRARY")
      continue()
    endif()
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
      message(FATAL_ERROR \"Nothing was installed: $<TARGET_FILE:${target}> is not there; build all of it first (cmake --build ${PROJECT_BINARY_DIR})\")
    endif()" COMPONENT ${component})
  endforeach()
endforeach()

# An export set for each component: find_package then asks for the libraries of those alone that were named. The COMPONENTs of
# installing are Debian's packages: dev (headers and libraries), and program (the program and the docs).
foreach(target IN LISTS targets)
  get_target_property(name ${target} EXPORT_NAME)
  install(TARGETS ${target} EXPORT ${target}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev)
  install(EXPORT ${target} FILE tessera-${name}.cmake NAMESPACE tessera:: DESTINATION "${package_directory}" COMPONENT dev)
endforeach()
if(TARGET tessera_program)
  install(TARGETS tessera_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
endif()

if(TESSERA_WITH_LIBRARY)
  cmake_path(GET oneDNN_INCLUDE_DIR PARENT_PATH tessera_oneDNN_root)
  string(REGEX MATCH "^([0-9]+)\\.[0-9]+" tessera_oneDNN_least "${oneDNN_VERSION}")
  math(EXPR tessera_oneDNN_next "${CMAKE_MATCH_1} + 1")
endif()
configure_package_config_file(cmake/tesseraConfig.cmake.in "${PROJECT_BINARY_DIR}/tesseraConfig.cmake"
  INSTALL_DESTINATION "${package_directory}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tesseraConfig.cmake" "${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake"
  cmake/FindoneDNN.cmake cmake/FindISAL.cmake cmake/FindPCRE2.cmake cmake/Findutf8proc.cmake cmake/FindcuDNN.cmake cmake/FindNCCL.cmake DESTINATION "${package_directory}"
  COMPONENT dev)
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md DESTINATION "${doc_directory}" COMPONENT program)
install(FILES bench/README.md bench/mlp_table.svg DESTINATION "${doc_directory}/bench" COMPONENT program)
install(DIRECTORY docs examples DESTINATION "${doc_directory}" COMPONENT program PATTERN train.sh EXCLUDE
  PATTERN finetune.sh EXCLUDE PATTERN build.sh EXCLUDE PATTERN Doxyfile EXCLUDE PATTERN docs/site EXCLUDE)

include(cmake/pkg_config.cmake)
if(PROJECT_IS_TOP_LEVEL)
  include(cmake/packages.cmake)
endif()
