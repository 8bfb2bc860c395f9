# LMDB as the system has it: Lmdb::Lmdb. (It has no CMake package.)
find_path(Lmdb_INCLUDE_DIR lmdb.h)
find_library(Lmdb_LIBRARY lmdb)
mark_as_advanced(Lmdb_INCLUDE_DIR Lmdb_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Lmdb REQUIRED_VARS Lmdb_LIBRARY Lmdb_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install liblmdb-dev, or run scripts/install_packages")
if(Lmdb_FOUND AND NOT TARGET Lmdb::Lmdb)
  add_library(Lmdb::Lmdb UNKNOWN IMPORTED)
  set_target_properties(Lmdb::Lmdb PROPERTIES IMPORTED_LOCATION ${Lmdb_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Lmdb_INCLUDE_DIR})
endif()
