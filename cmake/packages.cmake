# SPDX-License-Identifier: Apache-2.0
# Settings for `cpack`, which makes Debian packages in the build folder: tessera (the program and the docs) and
# libtessera-dev (headers, libraries, and files for find_package and pkg-config).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_CONTACT "the maintainers of Tessera")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL dev)
if(TARGET tessera_program)
  list(APPEND CPACK_COMPONENTS_ALL program)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME tessera)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "${PROJECT_DESCRIPTION}
 The program 'tessera' and its pages.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libtessera-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_DESCRIPTION "${PROJECT_DESCRIPTION}, headers and libraries
 With CMake by find_package(tessera), else by pkg-config.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "g++ (>= 4:12), libdnnl-dev, libisal-dev, libpcre2-dev, libutf8proc-dev")
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "libgtest-dev, pkgconf")
if(TARGET tessera_mpi)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libopenmpi-dev")
endif()
include(CPack)
