# find_package(bursar): the target bursar::bursar is the shared library, bursar::static the other one. Each exists if it was installed.
get_filename_component(bursar_prefix "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
find_package(Threads REQUIRED)

foreach(bursar_kind bursar static)
  set(bursar_suffix ${CMAKE_SHARED_LIBRARY_SUFFIX})
  if(bursar_kind STREQUAL static)
    set(bursar_suffix ${CMAKE_STATIC_LIBRARY_SUFFIX})
  endif()
  find_file(bursar_file_${bursar_kind} libbursar${bursar_suffix}
    PATHS ${bursar_prefix} PATH_SUFFIXES lib/${CMAKE_LIBRARY_ARCHITECTURE} lib lib64 NO_DEFAULT_PATH)
  if(bursar_file_${bursar_kind} AND NOT TARGET bursar::${bursar_kind})
    add_library(bursar::${bursar_kind} UNKNOWN IMPORTED)
    set_target_properties(bursar::${bursar_kind} PROPERTIES
      IMPORTED_LOCATION ${bursar_file_${bursar_kind}}
      INTERFACE_INCLUDE_DIRECTORIES ${bursar_prefix}/include)
  endif()
  mark_as_advanced(bursar_file_${bursar_kind})
endforeach()
if(TARGET bursar::static)
  set_property(TARGET bursar::static PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads ${CMAKE_DL_LIBS} m)
endif()

if(NOT TARGET bursar::bursar AND NOT TARGET bursar::static)
  set(bursar_NOT_FOUND_MESSAGE "no libbursar below ${bursar_prefix}: was `cargo cinstall` run with another --libdir?")
  set(bursar_FOUND FALSE)
endif()
