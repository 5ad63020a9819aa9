# SPDX-License-Identifier: Apache-2.0
# The libraries that users link: one for each component.

# The only folder of ours on any include path: sources, tests and users write <tessera/comm/...>, as after installation.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH TESSERA_SOURCES)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include")
file(CREATE_LINK "${TESSERA_SOURCES}/include" "${PROJECT_BINARY_DIR}/include/tessera" SYMBOLIC)

# tessera_headers(<out> <folder or header>... [EXCEPT <folder or header>...]): the headers below folders of include/, by
# the paths that the link gives them.
function(tessera_headers out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "EXCEPT")
  set(all "")
  foreach(place IN LISTS arg_UNPARSED_ARGUMENTS)
    if(place MATCHES "[.]hpp$")
      list(APPEND all "${place}")
      continue()
    endif()
    file(GLOB_RECURSE headers RELATIVE "${TESSERA_SOURCES}/include" CONFIGURE_DEPENDS
      "${TESSERA_SOURCES}/include/${place}/*.hpp")
    list(APPEND all ${headers})
  endforeach()
  foreach(place IN LISTS arg_EXCEPT)  # while paths are relative: what is above them may have any name
    list(FILTER all EXCLUDE REGEX "^${place}(/|$)")
  endforeach()
  list(TRANSFORM all PREPEND "${PROJECT_BINARY_DIR}/include/tessera/")
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# tessera_library(<target> <name> [SOURCES ...] [HOST ...] [HEADERS ...] [PUBLIC ...] [PRIVATE ...])
#
# A static library tessera::<name> with the headers of its users; without sources, headers alone. HOST: sources at
# TESSERA_HOST_LEVEL. PUBLIC, PRIVATE: what it links.
function(tessera_library target name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;HOST;HEADERS;PUBLIC;PRIVATE")
  set(parts ${target})
  if(arg_HOST)
    list(APPEND parts ${target}_host)
    add_library(${target}_host OBJECT ${arg_HOST})
    target_compile_options(${target}_host PRIVATE ${TESSERA_HOST_LEVEL})
    list(APPEND arg_SOURCES $<TARGET_OBJECTS:${target}_host>)
  endif()
  set(scope PUBLIC)
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${arg_PUBLIC})
    set(scope INTERFACE)
    set(parts "")
  endif()
  add_library(tessera::${name} ALIAS ${target})
  foreach(part IN LISTS parts)
    tessera_own_target(${part})
    set_target_properties(${part} PROPERTIES LINKER_LANGUAGE CXX)
    tessera_unity(${part} 16)
    target_include_directories(${part} PRIVATE "${PROJECT_BINARY_DIR}/include")
    target_link_libraries(${part} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  endforeach()
  target_compile_features(${target} ${scope} cxx_std_20)
  target_sources(${target} ${scope}
    FILE_SET HEADERS BASE_DIRS "${PROJECT_BINARY_DIR}/include" FILES ${arg_HEADERS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  if(NOT PROJECT_IS_TOP_LEVEL)  # our headers are a system's for our parent
    set_target_properties(${target} PROPERTIES SYSTEM ON)
  endif()
  set_property(GLOBAL APPEND PROPERTY TESSERA_COMPONENT_TARGETS ${target})
endfunction()
